"""What the rules for speculation say depends on the model and on what is set already."""

from pathlib import Path

import pytest

from controlpanel.llamacpp.rules import diagnose

FOLDER = Path(__file__).parents[1] / "data" / "diagnosis"
UNSUPPORTED = "srv    load_model: MTP not supported for trunk architecture 'glm4moe'"
LOW = "draft acceptance rate = 0.34000 (  128 accepted /   376 generated)"
ZERO = "draft acceptance rate = 0.00000 (    0 accepted /   412 generated)"
OLD_BUILD = "llama_model_load: error loading model: missing tensor 'blk.40.ssm_conv1d.weight'"


def keys(log: str, facts: dict[str, object] | None = None, exit_code: int | None = None) -> list[str]:
    """The cause keys of a log, best first."""
    return [found.cause_key for found in diagnose(log, "mtp", exit_code, facts or {})]


def change(log: str, facts: dict[str, object] | None = None) -> dict[str, object]:
    """The fields that the best diagnosis mends."""
    return {item.field: item.value for item in diagnose(log, "mtp", None, facts or {})[0].change}


@pytest.mark.parametrize(
    "heads, expected",
    [(None, "mtp_heads_missing"), (0, "mtp_heads_missing"), (1, "mtp_architecture")],
)
def test_a_model_with_heads_is_not_told_that_they_are_missing(heads: int | None, expected: str) -> None:
    assert keys(UNSUPPORTED, {"model_mtp_heads": heads}) == [expected]
    assert change(UNSUPPORTED, {"model_mtp_heads": heads}) == {"speculation": "none"}


def test_a_missing_tensor_is_no_old_build_where_the_model_has_no_heads() -> None:
    assert keys(OLD_BUILD) == ["mtp_gguf_old_build"]
    assert keys(OLD_BUILD, {"model_mtp_heads": 0}) == []
    assert [found.cause_key for found in diagnose(OLD_BUILD, "launch", 1, {"model_mtp_heads": 0})] == [
        "missing_tensor"
    ]


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, {"draft_max": 2}),
        ({"draft_max": 4}, {"draft_max": 2}),
        ({"draft_max": 2}, {"speculation": "none"}),
    ],
)
def test_drafts_that_are_refused_get_shorter_until_there_are_none(
    settings: dict[str, object], expected: dict[str, object]
) -> None:
    assert change(LOW, {"settings": settings}) == expected


def test_no_accepted_draft_is_the_bug_only_with_a_quantised_cache() -> None:
    assert keys(ZERO) == ["mtp_low_acceptance"]
    assert keys(ZERO, {"settings": {"cache_type_k": "f16"}}) == ["mtp_low_acceptance"]
    assert keys(ZERO, {"settings": {"cache_type_v": "q8_0"}}) == ["mtp_zero_acceptance_kv"]


def test_a_few_refused_drafts_say_nothing() -> None:
    assert keys("draft acceptance = 0.00000 (    0 accepted /   111 generated), mean len =  1.00") == []


def test_a_crash_is_laid_to_speculation_with_vision_only_where_both_were_on() -> None:
    line = "srv    load_model: speculative decoding is not supported by multimodal, it will be disabled"
    assert keys(line, exit_code=-11) == ["mtp_vision"]
    assert keys(line, exit_code=1) == []
    assert keys("srv    load_model: loaded multimodal model", exit_code=-11) == []


def test_why_the_drafting_part_failed_comes_before_that_it_failed() -> None:
    log = (FOLDER / "mtp-upstream-mtp-without-heads.txt").read_text(encoding="utf-8")
    found = diagnose(log, "mtp", 1)
    assert [item.cause_key for item in found] == ["mtp_heads_missing"]
    assert "doesn't contain MTP layers" in found[0].evidence[0].text
    assert keys("srv    load_model: failed to create MTP context", exit_code=1) == ["mtp_context_failed"]


def test_too_little_memory_for_the_drafting_part_is_named_as_such_at_launch() -> None:
    log = (
        "allocating 100.00 MiB on device 0: cudaMalloc failed: out of memory\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
        "common_speculative_init_result: failed to create MTP context\n"
        "main: exiting due to model loading error"
    )
    assert [found.cause_key for found in diagnose(log, "launch", 1)] == ["oom_kv_cache"]
