"""What the tests of all areas of the diagnosis share: samples of failures, and what holds for every rule."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from controlpanel.llamacpp import rules
from controlpanel.llamacpp.rule_log import literal_of
from controlpanel.llamacpp.rule_types import Diagnosis, Rule
from controlpanel.llamacpp.rules import diagnose

FOLDER = Path(__file__).parents[1] / "data" / "diagnosis"
_FILLERS = ("a", "a/", "'", " ", "1.", "(", ".a", '"')


class Areas:
    """Areas with the samples of their files; `data` holds those by the area's name."""

    def __init__(self, *names: str) -> None:
        self.data: dict[str, dict[str, Any]] = {
            name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in names
        }
        self.cases = [
            pytest.param(name, case, id=case["id"]) for name in names for case in self.data[name]["cases"]
        ]

    def samples(self, kind: str) -> list[Any]:
        """The samples of all areas as parameters (area, cause key, log)."""
        return [
            pytest.param(name, key, log, id=f"{name}-{key}-{number}")
            for name, data in self.data.items()
            for key, logs in data[kind].items()
            for number, log in enumerate(logs)
        ]

    def has_sample(self, name: str, rule: Rule, patch: pytest.MonkeyPatch, *more: list[str]) -> bool:
        """Tell whether the rule finds one of the logs of its cause, or of `more`."""
        logs = [*self.data[name]["positive"][rule.cause_key], *more]
        logs += [case["log"] for case in self.data[name]["cases"] if case["cause_key"] == rule.cause_key]
        patch.setattr(rules, "AREAS", {"one": (rule,)})
        return any(diagnose("\n".join(log), "one") for log in logs)


def keys(
    name: str, log: str, exit_code: int | None = None, facts: Mapping[str, object] | None = None
) -> list[str]:
    """The cause keys of a log, best first."""
    return [found.cause_key for found in diagnose(log, name, exit_code, facts or {})]


def check_words(found: Diagnosis) -> None:
    """A diagnosis says in one line what happened, in more what to do, and shows its lines."""
    assert "\n" not in str(found.title) and 10 < len(str(found.title)) < 110
    assert len(str(found.remedy)) > 40
    assert "%(" not in f"{found.title}{found.remedy}" and "“”" not in str(found.title)
    assert 1 <= len(found.evidence) <= 5


def check_bounded(rule: Rule, literals_of: Iterable[str], *fillers: str) -> None:
    """No pattern of the rule takes long on lines of 4,096 characters that are made for it."""
    near = [item.pattern for item in (*rule.with_, *rule.unless_near)]
    literals = [literal_of(pattern) for pattern in literals_of]
    lines = [
        line
        for literal in literals
        for filler in (*_FILLERS, *fillers, f"{literal} ")
        for line in ((literal + filler * 4096)[:4096], (filler * 4096)[: 4096 - len(literal)] + literal)
    ]
    begin = time.process_time()
    for pattern in (*rule.patterns, *rule.unless, *near):
        for line in lines:
            re.search(pattern, line)
    assert time.process_time() - begin < 2
