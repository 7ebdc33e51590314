"""Rules between the fields of a profile, the build, the host and the model files."""

from __future__ import annotations

import dataclasses

from controlpanel.llamacpp import (
    command_rules_cache,
    command_rules_context,
    command_rules_files,
    command_rules_gpus,
    command_rules_mtp,
    command_rules_work,
)
from controlpanel.llamacpp.command_rules_case import Case, Rule
from controlpanel.llamacpp.extra_args import FIELD, fields_in_extra
from controlpanel.llamacpp.problems import Problem

__all__ = ["Case", "check_rules"]

_RULES: tuple[Rule, ...] = (
    *command_rules_files.RULES,
    *command_rules_mtp.RULES,
    *command_rules_cache.RULES,
    *command_rules_context.RULES,
    *command_rules_gpus.RULES,
    *command_rules_work.RULES,
)


def check_rules(case: Case) -> list[Problem]:
    """Return what the rules find, errors and warnings in the order of the rules.

    A flag among the extra arguments counts as the field that it stands for; what is wrong with it is said
    where it was written.
    """
    typed = fields_in_extra(case.extra, case.caps)
    typed = {key: value for key, value in typed.items() if case.settings.get(key) is None}
    whole = dataclasses.replace(case, settings={**case.settings, **typed})
    found = [problem for rule in _RULES if (problem := rule(whole)) is not None]
    return [
        dataclasses.replace(problem, field=FIELD) if problem.field in typed else problem for problem in found
    ]
