"""Fields of a profile: switches, decimals, bounds and groups, in both dialects and in older builds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.meaning_decimals import DECIMAL
from controlpanel.llamacpp.meaning_kinds import CHOICE
from controlpanel.llamacpp.meaning_switches import SWITCH, switch_value
from controlpanel.llamacpp.meanings import GROUPS, MEANINGS
from tests.unit.drawn_profiles import extremes, millionths

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text())
FORK = capabilities_from((HELP / "help-fork.txt").read_text())
# Builds until 2025 had a flag only for what was not so already.
OLDER = capabilities_from(
    "-nkvo, --no-kv-offload   disable KV offload\n"
    "--no-warmup              skip warming up\n"
    "-cb,   --cont-batching   enable\n"
    "-nocb, --no-cont-batching   disable\n"
)
SWITCHES = [key for key, meaning in MEANINGS.items() if meaning.kind is SWITCH]
DECIMALS = [key for key, meaning in MEANINGS.items() if meaning.kind is DECIMAL]


def words(key: str, caps: Capabilities, value: object) -> str:
    """What a field becomes on the command line."""
    assert MEANINGS[key].problem(caps, value) is None, (key, value)
    pairs = MEANINGS[key].render(caps, value)
    return " ".join(part for pair in pairs for part in pair if part is not None)


def test_each_field_is_in_a_group_and_the_groups_come_in_order() -> None:
    order = [key for key, _title in GROUPS]
    assert order == [
        "context",
        "gpus",
        "speculation",
        "vision",
        "serving",
        "sampling",
        "rope",
        "logging",
    ]
    places = [order.index(meaning.group) for meaning in MEANINGS.values()]
    assert places == sorted(places) and set(places) == set(range(len(order)))


def test_no_two_fields_share_a_spelling_or_a_variable() -> None:
    spellings = [name for meaning in MEANINGS.values() for name in (*meaning.names, *meaning.more)]
    assert len(set(spellings)) == len(spellings)
    variables = [meaning.env for meaning in MEANINGS.values() if meaning.env]
    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize("caps", [UPSTREAM, FORK])
def test_the_spellings_and_variables_of_a_field_are_those_of_one_flag_of_the_build(
    caps: Capabilities,
) -> None:
    others = {"--draft", "--draft-n", "--draft-n-min"}  # removed from both
    for meaning in MEANINGS.values():
        flag = caps.find(*meaning.names)
        assert flag is not None, meaning.key
        for name in meaning.more:
            if name not in others and meaning.key != "load_mode":
                assert caps.find(name) is flag, name
        assert caps is FORK or flag.env == meaning.env, meaning.key


@pytest.mark.parametrize("caps", [UPSTREAM, FORK])
def test_a_switch_says_on_and_off_as_the_build_does(caps: Capabilities) -> None:
    assert words("kv_offload", caps, "on") == "--kv-offload"
    assert words("kv_offload", caps, "off") == "--no-kv-offload"
    assert words("mmproj_offload", caps, "off") == "--no-mmproj-offload"
    assert MEANINGS["warmup"].offered(caps) == ("on", "off")
    for key in ("swa_full", "cpu_moe"):
        assert MEANINGS[key].offered(caps) == ("on",)
        assert "not off" in str(MEANINGS[key].problem(caps, "off"))


def test_a_switch_offers_only_what_the_build_can_say() -> None:
    assert MEANINGS["log_prefix"].offered(UPSTREAM) == ("on", "off")
    assert MEANINGS["log_prefix"].offered(FORK) == ("on",)
    assert "--log-prefix, but not off" in str(MEANINGS["log_prefix"].problem(FORK, "off"))
    assert MEANINGS["kv_offload"].offered(OLDER) == ("off",)
    assert "--no-kv-offload, but not on" in str(MEANINGS["kv_offload"].problem(OLDER, "on"))
    assert words("warmup", OLDER, "off") == "--no-warmup"
    assert words("cont_batching", OLDER, "on") == "--cont-batching"
    assert words("cont_batching", OLDER, "off") == "--no-cont-batching"
    assert "no --kv-unified" in str(MEANINGS["kv_unified"].problem(OLDER, "off"))
    assert MEANINGS["kv_unified"].offered(OLDER) == ("on", "off")


def test_short_negative_names_say_off() -> None:
    for caps in (UPSTREAM, FORK, OLDER):
        assert switch_value(caps.find("-nkvo"), "-nkvo") == "off"
        assert switch_value(caps.find("-nocb"), "-nocb") == "off"
        assert switch_value(caps.find("-cb"), "-cb") == "on"
    assert switch_value(UPSTREAM.find("-kvu"), "-kvu") == "on"
    assert switch_value(UPSTREAM.find("-no-kvu"), "-no-kvu") == "off"


@pytest.mark.parametrize("key", SWITCHES)
@pytest.mark.parametrize("value", [True, False, 1, 0, "1", "true", "On", "auto", "", None, []])
def test_a_switch_takes_nothing_but_on_and_off(key: str, value: object) -> None:
    assert "on or off" in str(MEANINGS[key].problem(UPSTREAM, value))


@pytest.mark.parametrize(
    ("value", "word"),
    [(0, "0"), (1, "1"), ("0.70", "0.7"), ("0.000001", "0.000001"), (0.1, "0.1"), (1e-5, "0.00001")]
    + [("1.000000", "1"), (10, "10"), ("-0", "0"), (2.0, "2")],
)
def test_a_decimal_is_written_without_exponent_and_needless_zeros(value: object, word: str) -> None:
    assert words("temperature", UPSTREAM, value) == f"--temp {word}"


@pytest.mark.parametrize(
    "value",
    ["", "warm", "1e-1", ".5", "5.", "+1", "0x1", "1,5", "nan", "inf", "0.0000001", "٠.٥", True, None, []]
    + [float("nan"), float("inf"), 1e-7, 1e300, 10**400, -1, "10.000001", 11, [0.5]],
)
def test_a_decimal_that_is_none_or_out_of_bounds_is_refused_with_the_bounds(value: object) -> None:
    text = str(MEANINGS["temperature"].problem(UPSTREAM, value))
    assert "from 0 to 10" in text and "0.7" in text


@settings(max_examples=300, deadline=None)
@given(st.integers(-(10**19), 10**19), st.floats())
def test_any_number_is_a_decimal_in_bounds_or_refused(number: int, other: float) -> None:
    for key in DECIMALS:
        meaning = MEANINGS[key]
        for value in (millionths(number), other):
            problem = meaning.problem(UPSTREAM, value)
            if problem is None:
                word = meaning.render(UPSTREAM, value)[0][1]
                assert word is not None and set(word) <= set("-.0123456789")
                assert float(word) == pytest.approx(float(value), rel=1e-12)
                assert meaning.low <= float(word) <= meaning.high


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("cache_ram", [-1, 0, 16_777_216], [-2, 16_777_217]),
        ("ctx_checkpoints", [0, 10_000], [-1]),
        ("main_gpu", [0, 63], [-1, 64]),
        ("n_cpu_moe", [0, 1_000], [-1]),
        ("draft_min", [0, 64], [-1, 65]),
        ("draft_p_min", [0, "0.75", 1], ["1.01", -1]),
        ("image_max_tokens", [1, 65_536], [0]),
        ("threads_batch", [1, 1_024], [0, -1]),
        ("reasoning_budget", [-1, 0, 4_096], [-2]),
        ("sleep_idle", [1, 31_536_000], [0, -1]),
        ("top_k", [0, 40], [-1, "0.5"]),
        ("presence_penalty", [-10, "-0.5", 10], [-11]),
        ("repeat_penalty", ["0.01", 1, 10, 1.05], [0, "0.009", 11]),
        ("tensor_split", [",".join(["1"] * 15)], [",".join(["1"] * 16)]),
        ("seed", [-1, 0, 4_294_967_294], [-2, 4_294_967_295]),
        ("rope_scale", [1, "1.5", 1_024], [0, "0.5"]),
        ("rope_freq_base", [1, 10_000_000, 10**12], [0]),
        ("split_mode", ["none", "layer", "row", "tensor"], ["rows", ""]),
        ("fit", ["on", "off"], ["auto", True]),
        ("rope_scaling", ["none", "linear", "yarn"], ["dynamic"]),
        ("reasoning_format", ["none", "auto", "deepseek", "deepseek-legacy"], ["off"]),
    ],
)
def test_each_newer_field_takes_its_values_and_refuses_others(
    key: str, good: list[object], bad: list[object]
) -> None:
    for caps in (UPSTREAM, FORK):
        for value in good:
            assert MEANINGS[key].problem(caps, value) is None, value
        for value in bad:
            assert str(MEANINGS[key].problem(caps, value)), value


@pytest.mark.parametrize("caps", [UPSTREAM, FORK])
def test_the_values_of_a_choice_are_the_builds_own(caps: Capabilities) -> None:
    for key, meaning in MEANINGS.items():
        flag = caps.find(*meaning.names)
        if meaning.kind is CHOICE and flag and flag.choices:
            assert meaning.offered(caps) == flag.choices, key
    other = capabilities_from(
        "--reasoning-format FORMAT   one of:\n" + " " * 40 + "- none: a\n" + " " * 40 + "- loud: b\n"
    )
    assert MEANINGS["reasoning_format"].offered(other) == ("none", "loud")


def test_a_build_without_the_flag_is_named_for_every_field() -> None:
    bare = capabilities_from("--model X  m")
    for key, meaning in MEANINGS.items():
        reason = meaning.problem(bare, extremes(key, UPSTREAM)[0])
        assert reason is not None and str(reason), key
