"""All rules for servers that ran: refused requests, failed steps, crashes, ends from outside.

Facts, each unknown when it is missing: "settings" (the profile's meanings), "dialect" (name of the build's
dialect), "stop_requested" (whether the panel itself ended the server), "mmproj" (whether a projector is
loaded), "gpus" (their number), "n_ctx" (tokens of one slot).
"""

from __future__ import annotations

import dataclasses

from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules_quoted import unquoted
from controlpanel.llamacpp.rules_runtime_cuda import CUDA_ERROR_RULES
from controlpanel.llamacpp.rules_runtime_end import END_RULES
from controlpanel.llamacpp.rules_runtime_quality import QUALITY_RULES
from controlpanel.llamacpp.rules_runtime_requests import REQUEST_RULES
from controlpanel.llamacpp.rules_runtime_steps import STEP_RULES

# A server lives on after these: they are not why it ended.
_SURVIVED = (
    *dict.fromkeys(rule.cause_key for rule in (*REQUEST_RULES, *QUALITY_RULES)),
    "kv_cache_full",
    "kv_position_bug",
    "step_failed",
)


def _fatal(rule: Rule) -> Rule:
    return dataclasses.replace(rule, explains=(*rule.explains, *_SURVIVED))


RUNTIME_RULES: tuple[Rule, ...] = unquoted(
    *map(_fatal, (*CUDA_ERROR_RULES, *END_RULES)),
    *STEP_RULES,
    *REQUEST_RULES,
    *QUALITY_RULES,
)
