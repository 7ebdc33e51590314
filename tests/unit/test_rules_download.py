"""Each rule of the area "download" finds its own failure, and is silent at what only looks like it."""

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from controlpanel.llamacpp import rules
from controlpanel.llamacpp.rule_log import literal_of
from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules import diagnose
from controlpanel.llamacpp.rules_download import DOWNLOAD_RULES

DATA: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "diagnosis" / "download.json").read_text(encoding="utf-8")
)
# The same words mean two things; only facts of the host tell which.
FACTS_DECIDE = [["Error: I/O error No space left on device (os error 28)"]]
POSITIVE = [(key, log) for key, logs in DATA["positive"].items() for log in logs]
LOOKALIKE = [(key, log) for key, logs in DATA["lookalike"].items() for log in logs]


def around(log: list[str], count: int = 1) -> str:
    """A failed log with ordinary output and harmless messages before the decisive lines."""
    return "\n".join([*DATA["ordinary"] * count, *DATA["benign"], *log, *DATA["end"], ""])


def keys(log: str, exit_code: int | None = None, facts: dict[str, object] | None = None) -> list[str]:
    """The cause keys of a log, best first."""
    return [found.cause_key for found in diagnose(log, "download", exit_code, facts or {})]


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["id"])
def test_the_first_cause_is_the_known_one_also_deep_in_a_long_log(case: dict[str, Any]) -> None:
    assert keys("\n".join(case["log"]))[:1] == [case["cause_key"]]
    assert keys(around(case["log"], 1000), 1)[:1] == [case["cause_key"]]
    assert keys(around(case["log"]).replace("\n", "\r\n"), 2)[:1] == [case["cause_key"]]


@pytest.mark.parametrize("key, log", POSITIVE, ids=lambda value: value if isinstance(value, str) else "")
def test_each_wording_of_a_failure_is_found(key: str, log: list[str]) -> None:
    assert keys("\n".join(log))[:1] == [key]
    assert keys(around(log), 1)[:1] == [key]


@pytest.mark.parametrize("key, log", LOOKALIKE, ids=lambda value: value if isinstance(value, str) else "")
def test_what_only_looks_like_a_failure_is_not_taken_for_it(key: str, log: list[str]) -> None:
    assert key not in keys("\n".join(log))
    assert key not in keys(around(log), 1)


@pytest.mark.parametrize("exit_code", [0, None, 1, 134, -15])
def test_harmless_messages_are_no_cause_however_it_ended(exit_code: int | None) -> None:
    assert keys(around([]), exit_code) == []
    for line in [*DATA["ordinary"], *DATA["benign"], *DATA["end"]]:
        assert keys(line, exit_code) == []


def test_what_ended_well_has_no_cause() -> None:
    for case in DATA["cases"]:
        assert keys(around(case["log"]), 0) == []


@pytest.mark.parametrize(
    "rule",
    [dataclasses.replace(rule, patterns=(text,)) for rule in DOWNLOAD_RULES for text in rule.patterns],
    ids=lambda rule: f"{rule.cause_key}: {rule.patterns[0][:40]}",
)
def test_no_pattern_is_without_a_sample(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "AREAS", {"one": (dataclasses.replace(rule, when=None),)})
    logs = [log for key, log in POSITIVE if key == rule.cause_key]
    logs += [case["log"] for case in DATA["cases"] if case["cause_key"] == rule.cause_key]
    logs += FACTS_DECIDE
    assert any(diagnose("\n".join(log), "one") for log in logs)


def test_every_cause_has_samples_and_lookalikes() -> None:
    known = {rule.cause_key for rule in DOWNLOAD_RULES}
    assert set(DATA["positive"]) == set(DATA["lookalike"]) == known


@pytest.mark.parametrize("key, log", POSITIVE, ids=lambda value: value if isinstance(value, str) else "")
def test_every_diagnosis_says_what_happened_and_what_to_do(key: str, log: list[str]) -> None:
    found = diagnose("\n".join(log), "download")[0]
    assert "\n" not in str(found.title) and 10 < len(str(found.title)) < 110
    assert len(str(found.remedy)) > 40
    assert "%(" not in f"{found.title}{found.remedy}" and "“”" not in str(found.title)
    assert 1 <= len(found.evidence) <= 5


def test_the_free_space_of_the_host_tells_which_disk_is_full() -> None:
    log = FACTS_DECIDE[0][0]
    assert keys(log, 1) == ["tmpfs_full"]
    assert keys(log, 1, {"disk_free": 500 * 1024**3}) == ["tmpfs_full"]
    assert keys(log, 1, {"disk_free": 4096}) == ["disk_full"]


def test_a_refused_repository_is_explained_once() -> None:
    log = [
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://huggingface.co/o/m/x.gguf",
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-0)",
        "Cannot access gated repo for url https://huggingface.co/o/m/x.gguf.",
        "Your request to access model o/m has been rejected by the repo's authors.",
        "LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub",
    ]
    assert keys("\n".join(log), 1) == ["hf_access_denied"]


def test_a_server_without_tls_can_be_built_again_with_it() -> None:
    found = diagnose("HTTPS is not supported. Please rebuild with one of:", "download", 1)[0]
    assert [(item.field, item.value) for item in found.change] == [("definitions", [["LLAMA_OPENSSL", "ON"]])]


@pytest.mark.parametrize("rule", DOWNLOAD_RULES, ids=lambda rule: rule.cause_key)
def test_no_pattern_explodes_on_lines_made_for_it(rule: Rule) -> None:
    near = [item.pattern for item in (*rule.with_, *rule.unless_near)]
    literals = [literal_of(pattern) for pattern in (*rule.patterns, *near)]
    lines = [
        line
        for literal in literals
        for filler in ("a", "a/", "'", " ", "1.", "(", ".a", '"', f"{literal} ")
        for line in ((literal + filler * 4096)[:4096], (filler * 4096)[: 4096 - len(literal)] + literal)
    ]
    begin = time.process_time()
    for pattern in (*rule.patterns, *rule.unless, *near):
        for line in lines:
            re.search(pattern, line)
    assert time.process_time() - begin < 2
