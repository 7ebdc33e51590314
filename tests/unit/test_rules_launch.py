"""Rules of the areas "launch", "mtp" and "vision" find their own failures, and no look-alikes."""

import dataclasses
from typing import Any

import pytest

from controlpanel.llamacpp.rule_types import GENERIC, Rule
from controlpanel.llamacpp.rules import AREAS, diagnose
from controlpanel.llamacpp.rules_mtp import MTP_START_RULES
from controlpanel.llamacpp.rules_vision import VISION_START_RULES
from tests.unit.rule_areas import FOLDER, Areas, check_bounded, check_words, keys

NAMES = ("launch", "mtp", "vision")
AREA = Areas(*NAMES)
DATA = AREA.data


def own_rules(name: str) -> list[Rule]:
    """The rules whose samples are in the area's file."""
    keys = set(DATA[name]["positive"])
    return [rule for rule in AREAS[name] if rule.cause_key in keys]


# What a log can show both at the start and later has only samples of later.
STARTS = {rule.cause_key for rule in (*MTP_START_RULES, *VISION_START_RULES)} - {"mtp_vision"}
OWN = [(name, rule) for name in NAMES for rule in own_rules(name)]
# Causes that the usual last lines of a failed start never hide or come before.
LOUD = {rule.cause_key for _, rule in OWN} - {
    rule.cause_key for _, rule in OWN if rule.rank <= GENERIC and rule.patterns
}


CASES = AREA.cases
POSITIVE = AREA.samples("positive")


def around(name: str, log: list[str], count: int = 1, end: bool = True) -> str:
    """A log with ordinary output and harmless messages before the decisive lines."""
    data = DATA[name]
    return "\n".join([*data["ordinary"] * count, *data["benign"], *log, *(data["end"] if end else []), ""])


@pytest.mark.parametrize("name, case", CASES)
def test_the_first_cause_is_the_known_one_also_deep_in_a_long_log(name: str, case: dict[str, Any]) -> None:
    loud = case["cause_key"] in LOUD
    assert keys(name, "\n".join(case["log"]))[:1] == [case["cause_key"]]
    assert keys(name, around(name, case["log"], 1000, end=loud), 1)[:1] == [case["cause_key"]]
    text = around(name, case["log"], end=loud).replace("\n", "\r\n")
    assert keys(name, text, 2)[:1] == [case["cause_key"]]


@pytest.mark.parametrize("name, key, log", POSITIVE)
def test_each_wording_of_a_failure_is_found(name: str, key: str, log: list[str]) -> None:
    assert keys(name, "\n".join(log))[:1] == [key]
    assert keys(name, around(name, log, end=key in LOUD), 1)[:1] == [key]


@pytest.mark.parametrize("name, key, log", [case for case in POSITIVE if case.values[1] in STARTS])
def test_a_launch_also_names_what_is_wrong_with_speculation_and_vision(
    name: str, key: str, log: list[str]
) -> None:
    assert keys("launch", "\n".join(log))[:1] == [key]


@pytest.mark.parametrize("name, key, log", AREA.samples("lookalike"))
def test_what_only_looks_like_a_failure_is_not_taken_for_it(name: str, key: str, log: list[str]) -> None:
    assert key not in keys(name, "\n".join(log))
    assert key not in keys(name, around(name, log, end=key != "model_not_loaded"), 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("exit_code", [0, None, 1, -15, 143])
def test_harmless_messages_are_no_cause_however_it_ended(name: str, exit_code: int | None) -> None:
    assert keys(name, around(name, [], end=False), exit_code) == []
    for line in [*DATA[name]["ordinary"], *DATA[name]["benign"]]:
        assert keys(name, line, exit_code) == []


@pytest.mark.parametrize("name, key, log", POSITIVE)
def test_a_stop_that_was_asked_for_has_no_cause(name: str, key: str, log: list[str]) -> None:
    for exit_code in (None, 1, -6, 134, -9, -11):
        assert keys(name, around(name, log), exit_code, {"stop_requested": True}) == []


@pytest.mark.parametrize(
    "name, rule",
    [
        pytest.param(name, dataclasses.replace(rule, patterns=(text,)), id=f"{rule.cause_key}: {text[:40]}")
        for name, rule in OWN
        for text in rule.patterns
    ],
)
def test_no_pattern_is_without_a_sample(name: str, rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = dataclasses.replace(rule, when=None, exit_codes=())
    assert AREA.has_sample(name, bare, monkeypatch)


@pytest.mark.parametrize("name", NAMES)
def test_every_cause_has_samples_and_lookalikes(name: str) -> None:
    assert set(DATA[name]["positive"]) == set(DATA[name]["lookalike"])
    assert set(DATA[name]["positive"]) <= {rule.cause_key for rule in AREAS[name]}


@pytest.mark.parametrize("name, key, log", POSITIVE)
def test_every_diagnosis_says_what_happened_and_what_to_do(name: str, key: str, log: list[str]) -> None:
    check_words(diagnose("\n".join(log), name)[0])


@pytest.mark.parametrize("rule", [rule for _, rule in OWN], ids=lambda rule: rule.cause_key)
def test_no_pattern_explodes_on_lines_made_for_it(rule: Rule) -> None:
    check_bounded(rule, rule.patterns, "0")


@pytest.mark.parametrize(
    "file, exit_code, expected",
    [
        ("launch-fork-ctx-too-large", -11, ["oom_kv_cache"]),
        ("launch-fork-memory-limit", -6, ["oom_host"]),
        ("launch-fork-missing-file", 1, ["model_path_wrong"]),
        ("launch-fork-truncated", 1, ["truncated_gguf"]),
        ("launch-fork-unknown-arch", 1, ["unknown_architecture_old_build"]),
        ("launch-fork-bad-cache-type", 1, ["cache_type_unknown"]),
        ("launch-upstream-bad-cache-type", 1, ["turboquant_not_in_build"]),
        ("launch-fork-ctx-above-train", 0, ["context_above_training"]),
        ("launch-upstream-ctx-above-train", 0, ["yarn_context_capped"]),
        ("launch-fork-sigkill", -9, ["killed"]),
        ("launch-fork-sigkill", 137, ["killed"]),
        ("launch-skulk-sigill", -4, ["illegal_instruction"]),
        ("launch-skulk-sigill", 132, ["illegal_instruction"]),
        ("launch-upstream-vquant-fa-off", 1, ["v_cache_needs_fa"]),
        ("launch-upstream-port-in-use", 1, ["port_in_use"]),
        ("mtp-fork-mtp-without-heads", 1, ["mtp_heads_missing"]),
        ("mtp-fork-parallel4-mtp", 1, ["mtp_one_slot"]),
        ("mtp-fork-bad-spec-type", 1, ["spec_type_renamed"]),
        ("mtp-upstream-bad-spec-type", 1, ["spec_type_renamed"]),
        ("mtp-upstream-mtp-without-heads", 1, ["mtp_heads_missing"]),
        ("vision-fork-mmproj-missing", 1, ["mmproj_file_missing"]),
        ("vision-upstream-mmproj-missing", 1, ["mmproj_file_missing"]),
        ("vision-fork-mmproj-is-text-model", 1, ["mmproj_is_text_model"]),
        ("vision-upstream-mmproj-is-text-model", 1, ["mmproj_is_text_model"]),
        ("vision-fork-mmproj-dim-mismatch", 1, ["mmproj_mismatch"]),
    ],
)
def test_a_launch_that_failed_for_real_is_explained_once(
    file: str, exit_code: int, expected: list[str]
) -> None:
    log = (FOLDER / f"{file}.txt").read_text(encoding="utf-8")
    assert keys("launch", log, exit_code) == expected
    for name in ("mtp", "vision"):
        assert keys(name, log, exit_code) == (expected if file.startswith(name) else [])


@pytest.mark.parametrize("file", ["mtp-ok-fork-stopped", "mtp-ok-fork-pictures", "vision-ok-upstream"])
@pytest.mark.parametrize("exit_code", [0, None, -6, 134])
def test_a_server_that_worked_and_was_stopped_has_no_cause(file: str, exit_code: int | None) -> None:
    log = (FOLDER / f"{file}.txt").read_text(encoding="utf-8")
    for name in NAMES:
        assert keys(name, log, exit_code) == []
        assert keys(name, log, exit_code, {"stop_requested": True, "dialect": "fork"}) == []


@pytest.mark.parametrize(
    "exit_code, expected",
    [
        (-9, ["killed"]),
        (-6, ["aborted"]),
        (134, ["aborted"]),
        (-11, ["crashed"]),
        (139, ["crashed"]),
        (-4, ["illegal_instruction"]),
        (126, ["not_executable"]),
        (127, ["program_missing"]),
        (1, []),
        (None, []),
    ],
)
def test_without_words_the_exit_code_says_how_it_ended(exit_code: int | None, expected: list[str]) -> None:
    log = around("launch", [], end=False)
    assert keys("launch", log, exit_code, {"stop_requested": False}) == expected
    assert keys("launch", log, exit_code, {"stop_requested": True}) == []


def test_an_abort_is_silent_where_nobody_knows_whether_a_stop_was_asked_for() -> None:
    assert keys("launch", around("launch", [], end=False), -6) == []


def test_the_lines_of_a_message_that_comes_twice_are_one_cause() -> None:
    line = "llama_model_load: error loading model: unknown model architecture: 'qwenXX'"
    fit = (
        "common_fit_params: encountered an error while trying to fit params to free device memory: "
        "failed to load model"
    )
    found = diagnose("\n".join([line, fit, line]), "launch", 1)
    assert [item.cause_key for item in found] == ["unknown_architecture_old_build"]
    assert [evidence.text for evidence in found[0].evidence] == [line, line]


def test_a_missing_later_part_is_not_called_a_missing_model() -> None:
    log = "gguf_init_from_file: failed to open GGUF file '/m-00002-of-00003.gguf' (No such file or directory)"
    assert keys("launch", log, 1) == ["split_part_missing"]


def test_a_warning_is_said_only_where_nothing_else_is_wrong() -> None:
    note = "warning: no usable GPU found, --gpu-layers option will be ignored"
    failed = "llama_init_from_model: V cache quantization requires flash_attn"
    assert keys("launch", note, None) == ["cpu_only_build"]
    assert keys("launch", f"{note}\n{failed}", 1) == ["v_cache_needs_fa"]
    assert keys("launch", note, None, {"gpus": 0}) == []


@pytest.mark.parametrize(
    "log, expected",
    [
        (
            "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime "
            "version\nwarning: no usable GPU found, --gpu-layers option will be ignored",
            "driver_too_old",
        ),
        (
            "CUDA error: no kernel image is available for execution on the device\n"
            "  current device: 0, in function ggml_cuda_compute_forward\n"
            '/src/ggml-cuda.cu:100: GGML_ABORT("CUDA error")',
            "no_kernel_image",
        ),
    ],
)
def test_what_cuda_says_explains_the_rest(log: str, expected: str) -> None:
    assert keys("launch", log, 1) == [expected]
