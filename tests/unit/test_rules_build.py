"""Each rule for builds finds its own failure in real logs, and is silent at what only looks like it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from controlpanel.llamacpp import rules
from controlpanel.llamacpp.rule_types import Rule
from controlpanel.llamacpp.rules import diagnose
from controlpanel.llamacpp.rules_build import BUILD_RULES
from tests.unit.rule_areas import check_words

DATA: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "diagnosis" / "build.json").read_text(encoding="utf-8")
)
FAILURES = [case for case in DATA["cases"] if case["cause_key"]]
BENIGN = [line for case in DATA["cases"] if not case["cause_key"] for line in case["log"]]
POSITIVE = [(key, log) for key, logs in DATA["positive"].items() for log in logs]
LOOKALIKE = [(key, log) for key, logs in DATA["lookalike"].items() for log in logs]


def compiled(count: int) -> list[str]:
    """What a compiler says while all is well."""
    return [
        f"[{number}/{count}] Building CXX object src/CMakeFiles/llama.dir/models/model-{number}.cpp.o"
        for number in range(1, count + 1)
    ]


def around(log: list[str], count: int) -> str:
    """A failed log with ordinary output and harmless messages before the decisive lines."""
    lines = [*DATA["configure"], *BENIGN, *compiled(count), *log, *compiled(3)]
    return "\n".join([*lines, "ninja: build stopped: subcommand failed.", ""])


def keys(log: str, exit_code: int | None = None) -> list[str]:
    """The cause keys of a log, best first."""
    return [found.cause_key for found in diagnose(log, "build", exit_code)]


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case["id"])
def test_the_first_cause_is_the_known_one_also_deep_in_a_long_log(case: dict[str, Any]) -> None:
    assert keys("\n".join(case["log"]))[:1] == [case["cause_key"]]
    assert keys(around(case["log"], 10_000), 1)[:1] == [case["cause_key"]]
    assert keys(around(case["log"], 10).replace("\n", "\r\n"), 2)[:1] == [case["cause_key"]]


@pytest.mark.parametrize("key, log", POSITIVE, ids=lambda value: value if isinstance(value, str) else "")
def test_each_wording_of_a_failure_is_found(key: str, log: list[str]) -> None:
    assert keys("\n".join(log))[:1] == [key]
    assert keys(around(log, 30), 1)[:1] == [key]


@pytest.mark.parametrize("key, log", LOOKALIKE, ids=lambda value: value if isinstance(value, str) else "")
def test_what_only_looks_like_a_failure_is_not_taken_for_it(key: str, log: list[str]) -> None:
    assert key not in keys("\n".join(log))
    assert key not in keys(around(log, 30), 1)


@pytest.mark.parametrize("exit_code", [0, None, 1, 2, -15])
def test_harmless_messages_are_no_cause_whether_the_build_ended_well_or_not(exit_code: int | None) -> None:
    assert keys("\n".join([*DATA["configure"], *BENIGN, *compiled(20)]), exit_code) == []
    for line in BENIGN:
        assert keys(line, exit_code) == []


def test_a_build_that_ended_well_has_no_cause() -> None:
    assert keys(around(FAILURES[2]["log"], 5), 0) == []


@pytest.mark.parametrize(
    "rule",
    [
        dataclasses.replace(rule, patterns=(pattern,))
        for rule in BUILD_RULES
        if not rule.exit_codes
        for pattern in rule.patterns
    ],
    ids=lambda rule: f"{rule.cause_key}: {rule.patterns[0][:40]}",
)
def test_no_pattern_is_without_a_sample(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "AREAS", {"one": (rule,)})
    logs = [log for key, log in POSITIVE if key == rule.cause_key]
    logs += [case["log"] for case in FAILURES if case["cause_key"] == rule.cause_key]
    assert any(diagnose("\n".join(log), "one") for log in logs)


def test_every_cause_has_samples_and_lookalikes() -> None:
    known = {rule.cause_key for rule in BUILD_RULES} - {"killed"}
    assert set(DATA["positive"]) == set(DATA["lookalike"]) == known


@pytest.mark.parametrize("key, log", POSITIVE, ids=lambda value: value if isinstance(value, str) else "")
def test_every_diagnosis_says_what_happened_and_what_to_do(key: str, log: list[str]) -> None:
    check_words(diagnose("\n".join(log), "build")[0])


def change(log: str, facts: dict[str, object] | None = None, exit_code: int = 1) -> dict[str, object]:
    """The fields that the best diagnosis mends."""
    found = diagnose(log, "build", exit_code, facts or {})
    return {item.field: item.value for item in found[0].change}


@pytest.mark.parametrize(
    "log, expected",
    [
        ("error: #error -- unsupported GNU version! gcc versions later than 12", {"host_compiler": "g++-12"}),
        (
            "#error -- unsupported clang version! clang version must be less than 19 and greater than 3.2",
            {"host_compiler": "clang++-18"},
        ),
        ("c++: fatal error: Killed signal terminated program cc1plus", {"jobs": "half"}),
        (
            "FAILED: [code=137] x/template-instances/fattn-vec-instance-q5_1-q4_1.cu.o",
            {"jobs": "half", "fa_quants": ""},
        ),
        (
            "FAILED: [code=137] x/template-instances/fattn-vec-instance-q8_0-q8_0.cu.o",
            {"jobs": "half"},
        ),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120a'", {"architectures": ["86"]}),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_86'", {"architectures": ["80"]}),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_'", {"architectures": ["75", "80", "86"]}),
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_61'",
            {"nvcc": "/usr/local/cuda-12.9/bin/nvcc"},
        ),
        (
            "-- Found CUDAToolkit: /opt/cuda-12.8/targets/x86_64-linux/include (found version 12.8.93)\n"
            "CMake Error at x (enable_language):\n  No CMAKE_CUDA_COMPILER could be found.",
            {"nvcc": "/opt/cuda-12.8/bin/nvcc"},
        ),
        (
            "  The CMAKE_CUDA_COMPILER:\n\n    /x/nvcc\n\n  is not a full path to an existing compiler tool.",
            {"nvcc": ""},
        ),
        (
            "  The CMAKE_CXX_COMPILER:\n\n    g++-99\n\n  is not a full path and was not found in the PATH.",
            {"host_compiler": ""},
        ),
        ("ccache: error: Failed to create x: Permission denied", {"ccache": False}),
        (
            "/usr/bin/ld: x.so: undefined reference to `cuMemCreate'",
            {"definitions": [["CMAKE_EXE_LINKER_FLAGS", "-Wl,--allow-shlib-undefined"]]},
        ),
        ("/usr/bin/ld: cannot find -lcuda: x", {"definitions": [["GGML_CUDA_NO_VMM", "ON"]]}),
        (
            "  LLAMA_CUBLAS is deprecated, use GGML_CUDA instead",
            {"definitions": [["LLAMA_CUBLAS", None]], "backend": "cuda"},
        ),
        ("ninja: error: unknown target 'llama-fit-params'", {"targets": ["llama-server"]}),
        ("ninja: error: unknown target 'llama-server'", {}),
        ("fatal: couldn't find remote ref refs/heads/nope", {"ref": ""}),
        ("x.cpp:1:2: error: expected ‘;’", {}),
        ("fatal: write error: No space left on device", {}),
    ],
)
def test_the_change_names_a_field_and_the_value_that_mends_it(log: str, expected: dict[str, object]) -> None:
    assert change(log) == expected


def test_facts_of_the_host_and_the_form_make_the_change_fit() -> None:
    dropped = "nvcc fatal   : Unsupported gpu architecture 'compute_61'"
    nvccs = [{"path": f"/opt/cuda-{v}/bin/nvcc", "version": v} for v in ("12.4", "12.9", "13.0")]
    assert change(dropped, {"architectures": ["61", "86-real"]}) == {"architectures": ["86-real"]}
    assert change(dropped, {"architectures": ["61"], "nvccs": nvccs}) == {"nvcc": "/opt/cuda-12.9/bin/nvcc"}
    assert change(dropped, {"nvccs": nvccs[2:]}) == {}
    unknown = "nvcc fatal   : Unsupported gpu architecture 'compute_120a'"
    assert change(unknown, {"architectures": ["89", "120a-real"]}) == {"architectures": ["89"]}
    missing = "CMake Error at x:\n  No CMAKE_CUDA_COMPILER could be found."
    assert change(missing, {"nvccs": nvccs}) == {"nvcc": "/opt/cuda-13.0/bin/nvcc"}
    assert change(missing, {"nvccs": []}) == {}
    empty = "  CMAKE_CUDA_ARCHITECTURES must be non-empty if set."
    assert change(empty, {"gpu_architectures": ["89"]}) == {"architectures": ["89"]}
    target = "ninja: error: unknown target 'llama-fit-params'"
    chosen = ["llama-server", "llama-bench", "llama-fit-params"]
    assert change(target, {"targets": chosen}) == {"targets": ["llama-server", "llama-bench"]}


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_kill_without_words_is_memory_where_something_was_compiled(exit_code: int) -> None:
    found = diagnose("\n".join(compiled(5)), "build", exit_code)
    assert [item.cause_key for item in found] == ["compile_out_of_memory"]
    assert found[0].evidence[-1].text == compiled(5)[-1]
    assert keys("remote: Counting objects: 3, done.", exit_code) == ["killed"]
    assert keys("", exit_code) == ["killed"]
    assert keys("\n".join(compiled(5)), 1) == []


def test_the_cause_comes_before_what_follows_from_it() -> None:
    log = (
        "/usr/include/bits/mathcalls.h(79): error: exception specification is incompatible with that of "
        'previous function "cospi" (declared at line 2601 of /usr/local/cuda/include/crt/math_functions.h)\n'
        "/data/source/ggml/src/ggml-cuda/fattn.cu(12): error: no operator matches\n"
        "ninja: build stopped: subcommand failed."
    )
    assert keys(log) == ["glibc_vs_cuda_headers"]
    assert keys("/src/a.cpp:1:2: error: x\nfatal: write error: No space left on device") == [
        "disk_full",
        "fork_source_bug",
    ]
