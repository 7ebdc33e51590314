"""Rules of the areas "runtime", "gpu", "host" and "container" find their failures, and no look-alikes."""

import dataclasses
import time
from typing import Any

import pytest

from controlpanel.llamacpp.rule_types import Diagnosis, Rule
from controlpanel.llamacpp.rules import AREAS, diagnose
from servers.domain import living
from tests.unit.rule_areas import Areas, check_bounded, check_words, keys

NAMES = ("runtime", "gpu", "host", "container")
AREA = Areas(*NAMES)
DATA = AREA.data
BY_EXIT_CODE = {"killed", "ended_from_outside", "crashed", "memory_limit"}
SERVED = "main: server is listening on http://127.0.0.1:18170\nsrv  update_slots: all slots are idle\n"
TOO_LONG = "request (5000 tokens) exceeds the available context size (2048 tokens), try increasing it"
FULL = "srv  update_slots: decode() failed: Context size has been exceeded."
MEMORY = "slot launch_slot_: id  0 | task 3 | processing task\nCUDA error: out of memory\n"
KILLED = "Out of memory: Killed process 92787 (llama-server) total-vm:9kB, oom_score_adj:0"


CASES = AREA.cases
POSITIVE = AREA.samples("positive")


def around(name: str, log: list[str], count: int = 1) -> str:
    """A failed log with ordinary output and harmless messages before the decisive lines."""
    data = DATA[name]
    return "\n".join([*data["benign"], *data["ordinary"] * count, *log, *data["end"], ""])


def found(
    name: str, log: str, exit_code: int | None = None, facts: dict[str, object] | None = None
) -> list[Diagnosis]:
    """The causes of a log, best first."""
    return diagnose(log, name, exit_code, facts or {})


def change(name: str, log: str, facts: dict[str, object] | None = None) -> dict[str, object]:
    """The fields that the best cause of a log mends."""
    return {item.field: item.value for item in found(name, log, 1, facts)[0].change}


@pytest.mark.parametrize("name, case", CASES)
def test_the_first_cause_is_the_known_one_also_deep_in_a_long_log(name: str, case: dict[str, Any]) -> None:
    assert keys(name, "\n".join(case["log"]))[:1] == [case["cause_key"]]
    assert keys(name, around(name, case["log"], 1000), 1)[:1] == [case["cause_key"]]
    assert keys(name, around(name, case["log"]).replace("\n", "\r\n"), 134)[:1] == [case["cause_key"]]


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
        if rule.cause_key not in BY_EXIT_CODE
    ],
)
def test_no_pattern_is_without_a_sample(name: str, rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    assert AREA.has_sample(name, dataclasses.replace(rule, when=None), monkeypatch)


@pytest.mark.parametrize("name", NAMES)
def test_every_cause_has_samples_and_lookalikes(name: str) -> None:
    known = {rule.cause_key for rule in AREAS[name]} - BY_EXIT_CODE
    assert set(DATA[name]["positive"]) == set(DATA[name]["lookalike"]) == known


@pytest.mark.parametrize("name, key, log", POSITIVE)
def test_every_diagnosis_says_what_happened_and_what_to_do(name: str, key: str, log: list[str]) -> None:
    check_words(found(name, "\n".join(log))[0])


@pytest.mark.parametrize(
    "rule", [rule for name in NAMES for rule in AREAS[name]], ids=lambda rule: rule.cause_key
)
def test_no_pattern_explodes_on_lines_made_for_it(rule: Rule) -> None:
    check_bounded(rule, rule.patterns, "kswapd1 ")


@pytest.mark.parametrize("line", ["CUDA error: out of memory", "GGML_ASSERT(x) failed", f"error: {TOO_LONG}"])
def test_a_log_of_one_message_alone_takes_bounded_time(line: str) -> None:
    log = f"{line}\n" * (8 * 1024 * 1024 // len(line))
    begin = time.process_time()
    keys("runtime", log)
    assert time.process_time() - begin < 20


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_kill_without_words_is_named_unless_the_panel_did_it(exit_code: int) -> None:
    assert keys("runtime", SERVED, exit_code) == ["killed"]
    assert keys("runtime", "", exit_code) == ["killed"]
    assert keys("runtime", SERVED, exit_code, {"stop_requested": False}) == ["killed"]
    assert keys("runtime", SERVED, exit_code, {"stop_requested": True}) == []


def test_a_request_that_was_refused_is_not_why_the_server_was_killed_or_crashed() -> None:
    log = f"{SERVED}srv    send_error: task id = 7, error: {TOO_LONG}\n"
    assert keys("runtime", log) == ["context_overflow"]
    assert keys("runtime", log, -9) == ["killed"]
    assert keys("runtime", log, -11) == ["crashed"]
    assert keys("runtime", log + "CUDA error: misaligned address", 134) == ["misaligned_address"]


@pytest.mark.parametrize("exit_code", [-11, 139, -7, 132])
def test_a_crash_shows_what_the_server_did_last_and_is_none_of_a_server_that_never_served(
    exit_code: int,
) -> None:
    (crash,) = found("runtime", SERVED, exit_code)
    assert (crash.cause_key, crash.evidence[-1].text) == ("crashed", SERVED.splitlines()[-1])
    assert keys("runtime", "srv    load_model: loading model '/models/m.gguf'", exit_code) == []
    ending = f"{SERVED}srv    operator(): operator(): cleaning up before exit...\n"
    assert keys("runtime", ending, exit_code) == []


def test_an_end_that_the_panel_did_not_ask_for_is_said_only_when_that_is_known() -> None:
    for exit_code in (0, -15, 143):
        assert keys("runtime", SERVED, exit_code) == []
        assert keys("runtime", SERVED, exit_code, {"stop_requested": True}) == []
        assert keys("runtime", SERVED, exit_code, {"stop_requested": False}) == ["ended_from_outside"]


def test_an_unknown_end_stays_unknown() -> None:
    for exit_code in (1, 2, 134, -6):
        assert keys("runtime", SERVED, exit_code) == []


def test_settings_tell_a_divided_context_from_one_that_was_not_applied() -> None:
    log = f"srv    send_error: task id = 7, error: {TOO_LONG}"

    def cause(n_ctx: int, **settings: object) -> list[str]:
        return keys("runtime", log, None, {"settings": settings, "n_ctx": n_ctx})

    assert cause(2048, ctx_size="2048") == ["context_overflow"]
    assert cause(2048, ctx_size="8192", parallel="4", kv_unified="off") == ["context_divided_by_parallel"]
    assert cause(2048, ctx_size=8192, parallel=4) == ["context_divided_by_parallel"]
    assert cause(2048, ctx_size=65536, parallel=4) == ["config_not_applied"]
    assert cause(2048, ctx_size=8192, parallel=4, kv_unified="on") == ["config_not_applied"]
    assert cause(2048, ctx_size="57675") == ["config_not_applied"]


def test_a_known_context_of_the_profile_is_not_called_a_default() -> None:
    log = (
        "slot update_slots: id  0 | task 5 | new prompt, n_ctx_slot = 2048, n_keep = 0\n"
        f"srv    send_error: task id = 5, error: {TOO_LONG}"
    )
    assert keys("runtime", log) == ["config_not_applied"]
    facts: dict[str, object] = {"settings": {"ctx_size": "2048"}, "n_ctx": 2048}
    assert keys("runtime", log, None, facts) == ["context_overflow"]


@pytest.mark.parametrize(
    "name, log, settings, expected",
    [
        ("runtime", f"error: {TOO_LONG}", {}, {"ctx_size": "fit"}),
        (
            "runtime",
            f"error: {TOO_LONG}",
            {"parallel": 4, "kv_unified": "off"},
            {"parallel": 1, "kv_unified": "on"},
        ),
        (
            "runtime",
            "error: input (992 tokens) is too large to process. increase the physical batch size",
            {},
            {"batch": 1024, "ubatch": 1024},
        ),
        ("runtime", FULL, {"parallel": "4"}, {"ctx_size": "fit", "parallel": 2}),
        ("runtime", FULL, {"parallel": "1"}, {"ctx_size": "fit"}),
        ("runtime", "error: Invalid input batch.", {}, {"parallel": 1, "cache_ram": 0}),
        ("runtime", "error: Invalid input batch.", {"parallel": 1}, {"cache_ram": 0}),
        ("runtime", MEMORY, {"ubatch": "1024"}, {"ubatch": 512, "ctx_size": "less"}),
        ("runtime", MEMORY, {}, {"ubatch": 256, "ctx_size": "less"}),
        ("runtime", "CUDA error: misaligned address", {"split_mode": "row"}, {"split_mode": "layer"}),
        ("runtime", "CUDA error: misaligned address", {}, {}),
        ("host", KILLED, {"cache_ram": "8192"}, {"cache_ram": 4096}),
        ("host", KILLED, {"cache_ram": -1}, {"cache_ram": 0}),
        ("host", KILLED, {"cache_ram": 0}, {}),
    ],
)
def test_the_change_names_a_field_and_the_value_that_mends_it(
    name: str, log: str, settings: dict[str, object], expected: dict[str, object]
) -> None:
    assert change(name, log, {"settings": settings}) == expected


def test_what_follows_from_a_lost_card_is_not_named_beside_it() -> None:
    positive = DATA["gpu"]["positive"]
    log = "\n".join(line for key in ("xid45", "xid43", "xid31") for line in positive[key][0])
    lost = "NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus."
    assert keys("gpu", log) == ["xid31"]
    assert keys("gpu", f"{log}\n{lost}") == ["xid79"]


def test_the_kernels_words_name_the_process_that_it_killed() -> None:
    assert "llama-server" in str(found("host", KILLED)[0].title)
    assert "mysqld" in str(found("host", KILLED.replace("llama-server", "mysqld"))[0].title)


@pytest.mark.parametrize(
    "line",
    [
        "srv  log_server_r: request:  {}",
        "srv  log_server_r: response: {}",
        "0.12.345.678 D srv    operator(): converted request: {}",
        "formatted prompt: <|im_start|>user {}",
        "srv  params_from_: Generation prompt: '{}'",
        "srv  params_from_: reasoning budget: tokens=-1, generation_prompt='{}', start=1 toks",
        "Parsing PEG input with format Content-only: {}",
        "Parsed message: {}",
        "data stream, to_send: data: {}",
        "slot process_token: id  0 | task 3 | n_decoded = 9, n_remaining = 8, next token:   12 '{}'",
        "slot update_slots: id  0 | task 3 | prompt token   0:     12 '{}'",
    ],
)
def test_what_people_write_is_no_failure_of_a_living_server(line: str) -> None:
    said = [
        "CUDA error: an illegal memory access was encountered",
        TOO_LONG,
        "NVRM: Xid (PCI:0000:65:00): 79, pid=4711, GPU has fallen off the bus.",
        "accept: Too many open files",
        "encoding image slice... CUDA error: out of memory",
        "speculative decoding is not supported by multimodal, it will be disabled",
    ]
    quoted = "".join(f"{line.format(text)}\n" for text in said)
    plain = "\n".join(said).encode()
    assert len(living.signs(SERVED.encode() + plain, 0, {})) > 3
    assert living.signs(SERVED.encode() + quoted.encode(), 0, {}) == []
    refused = f"srv    send_error: task id = 7, error: {TOO_LONG}\n"
    (sign,) = living.signs(f"{SERVED}{quoted}{refused}".encode(), 0, {})
    assert (sign.diagnosis.cause_key, sign.times) == ("context_overflow", 1)
