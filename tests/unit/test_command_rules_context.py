"""Rules about the context, its cache, and positions beyond the trained length."""

from typing import Any

import pytest

from controlpanel.llamacpp.facts import HostFacts, ModelFacts
from tests.unit.test_command_rules import FORK, UPSTREAM, big_model, refused, warned

NATIVE = 262_144


def test_a_quantised_v_cache_needs_flash_attention() -> None:
    values: dict[str, object] = {"cache_type_v": "q8_0", "flash_attn": "off"}
    assert "Flash attention" in refused(UPSTREAM, values)["cache_type_v"]
    assert refused(UPSTREAM, {**values, "cache_type_v": "bf16"}) == {}
    assert refused(UPSTREAM, {"cache_type_v": "q8_0"}) == {}
    assert refused(UPSTREAM, {"cache_type_k": "q8_0", "flash_attn": "off"}) == {}
    assert "Flash attention" in refused(UPSTREAM, {}, "-ctv", "q8_0", "-fa", "off")["extra_args"]


def test_a_context_above_the_native_one_is_warned_about_per_slot() -> None:
    model = ModelFacts("qwen35", context_length=4096)
    assert "4096" in warned(UPSTREAM, {"ctx_size": 8192}, model=model)["ctx_size"]
    assert warned(UPSTREAM, {"ctx_size": 8192, "parallel": 2}, model=model) == {}
    assert warned(UPSTREAM, {"ctx_size": 4096}, model=model) == {}
    unified: dict[str, object] = {"ctx_size": 8192, "parallel": 2, "kv_unified": "on"}
    assert "8192" in warned(UPSTREAM, unified, model=model)["ctx_size"]
    assert warned(UPSTREAM, {"ctx_size": 8192}, "--rope-freq-scale", "0.5", model=model) == {}


@pytest.mark.parametrize(("size", "factor"), [(524_288, "2"), (400_000, "1.53"), (NATIVE + 256, "1.01")])
def test_the_factor_of_yarn_is_the_wanted_context_by_the_trained_one(size: int, factor: str) -> None:
    asked = warned(UPSTREAM, {"ctx_size": size}, model=big_model())["ctx_size"]
    assert f"RoPE scale to {factor} and" in asked
    assert f"YaRN to {NATIVE}" in asked
    values: dict[str, object] = {
        "ctx_size": size,
        "rope_scaling": "yarn",
        "rope_scale": factor,
        "yarn_orig_ctx": NATIVE,
    }
    assert warned(UPSTREAM, values, model=big_model()) == {}


@pytest.mark.parametrize("factor", [None, "1.5", 4])
def test_a_wrong_factor_is_answered_with_the_right_one(factor: object) -> None:
    values: dict[str, object] = {"ctx_size": 524_288, "rope_scaling": "yarn", "rope_scale": factor}
    assert "factor 2 here" in warned(UPSTREAM, values, model=big_model())["rope_scale"]
    assert warned(UPSTREAM, values) == {}


def test_a_wrong_trained_context_is_answered_with_the_right_one() -> None:
    values: dict[str, object] = {"ctx_size": 524_288, "rope_scaling": "yarn", "rope_scale": 2}
    wrong = warned(UPSTREAM, {**values, "yarn_orig_ctx": 32_768}, model=big_model())
    assert f"give {NATIVE}" in wrong["yarn_orig_ctx"]
    assert warned(UPSTREAM, {**values, "yarn_orig_ctx": 0}, model=big_model()) == {}


def test_yarn_within_the_trained_context_costs_quality_for_nothing() -> None:
    values: dict[str, object] = {"ctx_size": NATIVE, "rope_scaling": "yarn", "rope_scale": 4}
    assert list(warned(UPSTREAM, values, model=big_model())) == ["rope_scaling"]
    assert "not needed" in warned(UPSTREAM, values, model=big_model())["rope_scaling"]
    assert "rope_scaling" not in warned(UPSTREAM, {**values, "ctx_size": 4 * NATIVE}, model=big_model())
    assert warned(UPSTREAM, {"rope_scaling": "none"}, model=big_model()) == {}


def test_a_file_that_brings_its_own_scaling_is_not_asked_for_more() -> None:
    facts: dict[str, Any] = {"context_length": 131_072, "rope_scaling": "yarn", "original_context": 32_768}
    model = big_model(**facts)
    assert warned(UPSTREAM, {"ctx_size": 131_072}, model=model) == {}
    text = warned(UPSTREAM, {"ctx_size": 262_144}, model=model)["ctx_size"]
    assert "its file holds" in text
    assert "yarn" not in text
    assert warned(UPSTREAM, {"ctx_size": 131_072, "rope_scale": 4}, model=model) == {}


def test_a_factor_without_a_kind_of_scaling_is_no_yarn() -> None:
    values: dict[str, object] = {"ctx_size": 524_288, "rope_scale": 2}
    assert "linear" in warned(UPSTREAM, values, model=big_model())["rope_scale"]
    assert warned(UPSTREAM, {**values, "rope_scaling": "linear"}, model=big_model()) == {}


def test_another_base_frequency_than_the_file_holds_is_refused() -> None:
    text = refused(UPSTREAM, {"rope_freq_base": 1_000_000}, model=big_model())["rope_freq_base"]
    assert "10000000," in text
    assert "with 1000000 " in text
    assert "10000000," in refused(UPSTREAM, {}, "--rope-freq-base", "1e6", model=big_model())["extra_args"]
    assert "same" in warned(UPSTREAM, {"rope_freq_base": 10_000_000}, model=big_model())["rope_freq_base"]
    assert warned(UPSTREAM, {}, model=big_model()) == {}


def test_a_base_frequency_is_warned_about_where_the_file_says_nothing() -> None:
    for model in (None, ModelFacts("qwen35")):
        text = warned(UPSTREAM, {"rope_freq_base": 1_000_000}, model=model)["rope_freq_base"]
        assert "nearly always" in text


def test_turbo_keys_of_many_heads_really_are_q8_0() -> None:
    values: dict[str, object] = {"cache_type_k": "turbo4", "cache_type_v": "turbo4"}
    text = warned(FORK, values, model=big_model())["cache_type_k"]
    assert "6 heads per KV head" in text
    assert "keys as q8_0" in text
    off = {"TURBO_AUTO_ASYMMETRIC": "0"}
    assert warned(FORK, values, model=big_model(), environment=off) == {}
    assert warned(FORK, values, model=big_model(gqa=4)) == {}
    assert warned(FORK, values, model=ModelFacts("qwen35")) == {}
    assert warned(FORK, {**values, "cache_type_k": "q8_0"}, model=big_model()) == {}
    assert warned(FORK, {**values, "cache_type_v": "turbo3"}, model=big_model()) == {}


def test_turbo2_values_of_the_outer_layers_are_named() -> None:
    values: dict[str, object] = {"cache_type_k": "turbo2", "cache_type_v": "turbo2"}
    assert "last two layers" in warned(FORK, values, model=big_model())["cache_type_k"]
    off = {"TURBO_LAYER_ADAPTIVE": "0"}
    assert "two layers" not in warned(FORK, values, model=big_model(), environment=off)["cache_type_k"]


def test_slots_that_get_little_context_are_warned_about() -> None:
    text = warned(UPSTREAM, {"ctx_size": 16_384, "parallel": 8})["parallel"]
    assert "8 gets 2048" in text
    assert warned(UPSTREAM, {"ctx_size": 16_384, "parallel": 4}) == {}
    assert warned(UPSTREAM, {"ctx_size": 16_384, "parallel": 8, "kv_unified": "on"}) == {}
    assert warned(UPSTREAM, {"ctx_size": 2048, "parallel": 1}) == {}
    assert warned(UPSTREAM, {"ctx_size": 2048}) == {}


def test_the_prompt_cache_leaves_half_of_the_memory() -> None:
    small, big = HostFacts(memory_mib=12_000), HostFacts(memory_mib=128_000)
    assert "8192 MiB" in warned(UPSTREAM, {}, host=small)["cache_ram"]
    assert warned(UPSTREAM, {"cache_ram": 4096}, host=small) == {}
    assert warned(UPSTREAM, {"cache_ram": 0}, host=small) == {}
    assert warned(UPSTREAM, {}, host=big) == {}
    assert "Without a limit" in warned(UPSTREAM, {"cache_ram": -1}, host=big)["cache_ram"]
    assert warned(UPSTREAM, {"cache_ram": -1}) == {}


def test_checkpoints_of_recurrent_states_leave_half_of_the_memory() -> None:
    host = HostFacts(memory_mib=32_000)
    text = warned(UPSTREAM, {"parallel": 4}, model=big_model(), host=host)["ctx_checkpoints"]
    assert "take up to 19152 MiB" in text
    assert warned(UPSTREAM, {"parallel": 1}, model=big_model(), host=host) == {}
    assert warned(UPSTREAM, {"parallel": 4, "ctx_checkpoints": 8}, model=big_model(), host=host) == {}
    assert warned(UPSTREAM, {"parallel": 4}, model=big_model(state_size=0), host=host) == {}
    assert warned(UPSTREAM, {"parallel": 4}, model=big_model()) == {}
