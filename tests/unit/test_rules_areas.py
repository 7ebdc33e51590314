"""Rules of the areas "download" and "gguf" find their own failures, and no look-alikes."""

import dataclasses
from typing import Any

import pytest

from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules import AREAS, diagnose
from tests.unit.rule_areas import Areas, check_bounded, check_words, keys

NAMES = ("download", "gguf")
AREA = Areas(*NAMES)
DATA = AREA.data
# The same words mean two things; only facts of the host tell which.
FACTS_DECIDE = {"download": [["Error: I/O error No space left on device (os error 28)"]], "gguf": []}


CASES = AREA.cases
POSITIVE = AREA.samples("positive")


def around(name: str, log: list[str], count: int = 1) -> str:
    """A failed log with ordinary output and harmless messages before the decisive lines."""
    data = DATA[name]
    return "\n".join([*data["ordinary"] * count, *data["benign"], *log, *data["end"], ""])


@pytest.mark.parametrize("name, case", CASES)
def test_the_first_cause_is_the_known_one_also_deep_in_a_long_log(name: str, case: dict[str, Any]) -> None:
    assert keys(name, "\n".join(case["log"]))[:1] == [case["cause_key"]]
    assert keys(name, around(name, case["log"], 1000), 1)[:1] == [case["cause_key"]]
    assert keys(name, around(name, case["log"]).replace("\n", "\r\n"), 2)[:1] == [case["cause_key"]]


@pytest.mark.parametrize("name, key, log", POSITIVE)
def test_each_wording_of_a_failure_is_found(name: str, key: str, log: list[str]) -> None:
    assert keys(name, "\n".join(log))[:1] == [key]
    assert keys(name, around(name, log), 1)[:1] == [key]


@pytest.mark.parametrize("name, key, log", AREA.samples("lookalike"))
def test_what_only_looks_like_a_failure_is_not_taken_for_it(name: str, key: str, log: list[str]) -> None:
    assert key not in keys(name, "\n".join(log))
    assert key not in keys(name, around(name, log), 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("exit_code", [0, None, 1, 134, -15])
def test_harmless_messages_are_no_cause_however_it_ended(name: str, exit_code: int | None) -> None:
    assert keys(name, around(name, []), exit_code) == []
    for line in [*DATA[name]["ordinary"], *DATA[name]["benign"], *DATA[name]["end"]]:
        assert keys(name, line, exit_code) == []


@pytest.mark.parametrize("name, case", CASES)
def test_what_ended_well_has_no_cause(name: str, case: dict[str, Any]) -> None:
    assert keys(name, around(name, case["log"]), 0) == []


@pytest.mark.parametrize(
    "name, rule",
    [
        pytest.param(name, dataclasses.replace(rule, patterns=(text,)), id=f"{rule.cause_key}: {text[:40]}")
        for name in NAMES
        for rule in AREAS[name]
        for text in rule.patterns
    ],
)
def test_no_pattern_is_without_a_sample(name: str, rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = dataclasses.replace(rule, when=None)
    assert AREA.has_sample(name, bare, monkeypatch, *FACTS_DECIDE[name])


@pytest.mark.parametrize("name", NAMES)
def test_every_cause_has_samples_and_lookalikes(name: str) -> None:
    known = {rule.cause_key for rule in AREAS[name]}
    assert set(DATA[name]["positive"]) == set(DATA[name]["lookalike"]) == known


@pytest.mark.parametrize("name, key, log", POSITIVE)
def test_every_diagnosis_says_what_happened_and_what_to_do(name: str, key: str, log: list[str]) -> None:
    check_words(diagnose("\n".join(log), name)[0])


@pytest.mark.parametrize(
    "rule", [rule for name in NAMES for rule in AREAS[name]], ids=lambda rule: rule.cause_key
)
def test_no_pattern_explodes_on_lines_made_for_it(rule: Rule) -> None:
    near = [item.pattern for item in (*rule.with_, *rule.unless_near)]
    check_bounded(rule, (*rule.patterns, *near))


def test_the_free_space_of_the_host_tells_which_disk_is_full() -> None:
    [[log]] = FACTS_DECIDE["download"]
    assert keys("download", log, 1) == ["tmpfs_full"]
    assert keys("download", log, 1, {"disk_free": 500 * 1024**3}) == ["tmpfs_full"]
    assert keys("download", log, 1, {"disk_free": 4096}) == ["disk_full"]


def test_a_refused_repository_is_explained_once() -> None:
    log = [
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://huggingface.co/o/m/x.gguf",
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-0)",
        "Cannot access gated repo for url https://huggingface.co/o/m/x.gguf.",
        "Your request to access model o/m has been rejected by the repo's authors.",
        "LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub",
    ]
    assert keys("download", "\n".join(log), 1) == ["hf_access_denied"]


def test_a_server_without_tls_can_be_built_again_with_it() -> None:
    found = diagnose("HTTPS is not supported. Please rebuild with one of:", "download", 1)[0]
    assert [(item.field, item.value) for item in found.change] == [("definitions", [["LLAMA_OPENSSL", "ON"]])]


def test_the_first_part_is_chosen_where_a_later_one_was() -> None:
    log = (
        "llama_model_load: error loading model: illegal split file idx: 2 "
        "(file: /models/a b-00003-of-00012.gguf), model must be loaded with the first split"
    )
    changes = diagnose(log, "gguf", 1)[0].change
    assert [(item.field, item.value) for item in changes] == [("model", "/models/a b-00001-of-00012.gguf")]


def test_a_renamed_later_part_changes_no_field() -> None:
    log = (
        "llama_model_load: error loading model: illegal split file idx: 2 (file: /models/renamed.gguf), "
        "model must be loaded with the first split"
    )
    assert diagnose(log, "gguf", 1)[0].change == ()


def test_a_missing_part_is_not_called_a_missing_file() -> None:
    log = [
        "gguf_init_from_file: failed to open GGUF file '/a-00002-of-00003.gguf' (No such file or directory)",
        "llama_model_load: error loading model: llama_model_loader: failed to load GGUF split from "
        "/a-00002-of-00003.gguf",
    ]
    assert keys("gguf", "\n".join(log)) == ["split_part_missing"]
