"""Which changes are offered when a profile does not fit, and that each does what it promises."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from controlpanel.llamacpp.capabilities import capabilities_from
from controlpanel.llamacpp.gguf_header import GgufHeader, Tensor, Value
from controlpanel.llamacpp.memory import Device, Estimate, EstimateError, estimate
from controlpanel.llamacpp.memory_learn import Learned
from controlpanel.llamacpp.memory_types import Dialect
from controlpanel.llamacpp.tradeoffs import Loss, Offered, Tradeoff, applied, offered_by, tradeoffs
from controlpanel.llamacpp.tradeoffs_trial import LIMIT, Trial
from tests.unit.memory_headers import F16, Q8_0, Shapes, big_qwen, make_header, small_qwen, smol

HELP = Path(__file__).parent.parent / "data" / "help"
FORK = offered_by(capabilities_from((HELP / "help-fork.txt").read_text()))
UPSTREAM = offered_by(capabilities_from((HELP / "upstream-b11434.txt").read_text()))
BIG = big_qwen()
TWO = (Device("CUDA0", 24_576), Device("CUDA1", 24_576))
SMALL = (Device("CUDA0", 20_480), Device("CUDA1", 20_480))

# A 27B model with MTP and vision on two cards, as an article on the fork runs it.
RECIPE: dict[str, object] = {
    "ctx_size": 262_144,
    "gpu_layers": 99,
    "tensor_split": "1,1",
    "cache_type_k": "turbo4",
    "cache_type_v": "turbo4",
    "flash_attn": "on",
    "ubatch": 1024,
    "speculation": "mtp",
    "draft_max": 3,
    "parallel": 1,
}


def vision() -> GgufHeader:
    """A projector of 885 MiB."""
    metadata: dict[str, Value] = {
        "general.architecture": "clip",
        "clip.projector_type": "qwen3vl_merger",
        "clip.has_vision_encoder": True,
        "clip.vision.patch_size": 16,
        "clip.vision.spatial_merge_size": 2,
        "clip.vision.embedding_length": 1152,
        "clip.vision.feed_forward_length": 4304,
    }
    tensors = (Tensor("v.blk.0.weight", (1,), F16, 0, 885 * 2**20),)
    return GgufHeader(3, 885 * 2**20, 0, 32, metadata, {}, tensors)


def experts() -> GgufHeader:
    """A model of 24 layers with 64 experts each, 8 of them in use: 18 GiB, most of it experts."""

    def shapes() -> Shapes:
        yield "token_embd.weight", (2048, 151_936), Q8_0
        yield "output_norm.weight", (2048,), 0
        yield "output.weight", (2048, 151_936), Q8_0
        for index in range(24):
            for name, width in (("attn_q", 4096), ("attn_k", 512), ("attn_v", 512)):
                yield f"blk.{index}.{name}.weight", (2048, width), Q8_0
            yield f"blk.{index}.attn_output.weight", (4096, 2048), Q8_0
            yield f"blk.{index}.ffn_gate_inp.weight", (2048, 64), 0
            for name in ("ffn_gate_exps", "ffn_up_exps"):
                yield f"blk.{index}.{name}.weight", (2048, 1920, 64), Q8_0
            yield f"blk.{index}.ffn_down_exps.weight", (1920, 2048, 64), Q8_0

    keys = {
        "block_count": 24,
        "context_length": 40_960,
        "embedding_length": 2048,
        "feed_forward_length": 6144,
        "expert_count": 64,
        "expert_used_count": 8,
        "expert_feed_forward_length": 1920,
        "attention.head_count": 32,
        "attention.head_count_kv": 4,
        "attention.key_length": 128,
        "attention.value_length": 128,
    }
    return make_header("qwen3moe", keys, shapes(), 151_936)


def without(offered: Offered, key: str) -> Offered:
    """The same build without a flag."""
    return Offered({name: values for name, values in offered.values.items() if name != key})


def promised(
    model: GgufHeader,
    mmproj: GgufHeader | None,
    settings: Mapping[str, object],
    dialect: Dialect,
    devices: Sequence[Device],
    found: Sequence[Tradeoff],
    learned: Learned | None = None,
) -> None:
    """Check each change against the estimate of the whole files with the change applied."""
    now = estimate(model, mmproj, settings, dialect, devices, learned)
    for entry in found:
        after = estimate(model, mmproj, applied(settings, entry.changes), dialect, devices, learned)
        assert (entry.verdict, entry.verdict_now) == (after.verdict, now.verdict), entry
        if entry.freed is not None:
            assert entry.freed == pytest.approx(room(after) - room(now)), entry
        assert entry.worst_over == pytest.approx(max(0.0, -room(after))), entry
        assert any(settings.get(key) != value for key, value in entry.changes.items()), entry
        assert entry.key == "context_up" or room(after) > room(now) or after.verdict != now.verdict, entry


def room(found: Estimate) -> float:
    """What the fullest of the cards in use has left, as far as it is known."""
    rooms = []
    for fit in found.devices:
        mine = {key: value for key, value in fit.terms.items() if key != "others"}
        held = sum(value for value in fit.terms.values() if value is not None)
        rooms.append((any(value != 0 for value in mine.values()), fit.capacity * (1 - fit.safety) - held))
    return min(left for used, left in rooms if used or not any(used for used, _left in rooms))


def found_for(
    settings: Mapping[str, object],
    devices: Sequence[Device] = TWO,
    *,
    model: GgufHeader = BIG,
    mmproj: GgufHeader | None = None,
    dialect: Dialect = "fork",
    offered: Offered = FORK,
    learned: Learned | None = None,
) -> list[Tradeoff]:
    """The changes, each checked."""
    found = tradeoffs([model], mmproj, settings, dialect, devices, offered, learned)
    promised(model, mmproj, settings, dialect, devices, found, learned)
    for entry in found:
        assert offered.allows_all(entry.changes), entry
    return found


def by_key(found: Sequence[Tradeoff], key: str) -> Tradeoff:
    """The first change of a kind."""
    return next(entry for entry in found if entry.key == key)


def keys(found: Sequence[Tradeoff]) -> set[str]:
    """The kinds of all changes."""
    return {entry.key for entry in found}


@pytest.mark.parametrize(
    ("tokens", "now", "ubatch"), [(262_144, "does not fit", 128), (204_800, "tight", 256)]
)
def test_the_recipe_of_the_article_does_not_fit_and_the_list_says_what_does(
    tokens: int, now: str, ubatch: int
) -> None:
    settings = {**RECIPE, "ctx_size": tokens}
    found = found_for(settings, mmproj=vision())
    assert found[0].verdict_now == now
    assert found[0].verdict == "fits" and found[0].loss <= Loss.SPEED
    assert dict(by_key(found, "ubatch").changes) == {"ubatch": ubatch}
    assert str(by_key(found, "ubatch").label) == f"Micro-batch {ubatch} instead of 1024"
    assert by_key(found, "context").verdict == "fits"
    assert {"split", "draft_max", "cache_types", "speculation", "gpu_layers"} <= keys(found)


def test_the_drafts_that_the_fork_makes_unasked_are_cut_to_the_usual_ones_at_no_loss() -> None:
    settings = {key: value for key, value in RECIPE.items() if key != "draft_max"}
    entry = next(entry for entry in found_for(settings) if dict(entry.changes) == {"draft_max": 3})
    assert entry.loss == Loss.NONE
    assert entry.freed is not None and entry.freed > 900


def test_when_nothing_fits_alone_combinations_do() -> None:
    found = found_for(RECIPE, SMALL, mmproj=vision())
    alone = [entry for entry in found if entry.key != "combined" and entry.loss < Loss.SLOW]
    assert all(entry.verdict != "fits" for entry in alone)
    together = [entry for entry in found if entry.key == "combined"]
    assert 0 < len(together) <= 3
    assert all(entry.verdict == "fits" and len(entry.changes) > 1 for entry in together)
    assert found[0].key == "combined" and "; " in str(found[0].label)


def test_a_combination_names_only_what_it_needs() -> None:
    groups = {"cache_type_v": "cache_type_k", "draft_type_v": "draft_type_k"}
    without_mtp = dict.fromkeys(("draft_max", "draft_type_k", "draft_type_v"), "speculation")
    for entry in found_for(RECIPE, SMALL, mmproj=vision()):
        if entry.key != "combined" or "ctx_size" in entry.changes:
            continue
        one = without_mtp if "speculation" in entry.changes else groups
        for key in {one.get(key, key) for key in entry.changes}:
            fewer = {name: value for name, value in entry.changes.items() if one.get(name, name) != key}
            after = estimate(BIG, vision(), applied(RECIPE, fewer), "fork", SMALL)
            assert after.verdict != "fits", (entry, key)


def test_what_fits_comes_first_then_what_costs_least() -> None:
    found = found_for(RECIPE, mmproj=vision())
    order = ["fits", "tight", "unknown", "does not fit"]
    ranks = [(order.index(entry.verdict), entry.loss) for entry in found]
    assert ranks == sorted(ranks)


def test_the_context_that_is_offered_is_the_largest_that_fits() -> None:
    settings: dict[str, object] = {"ctx_size": 262_144, "parallel": 1}
    entry = by_key(found_for(settings, SMALL, dialect="upstream", offered=UPSTREAM), "context")
    tokens = entry.changes["ctx_size"]
    assert isinstance(tokens, int) and tokens % 1024 == 0
    more = estimate(BIG, None, {**settings, "ctx_size": tokens + 1024}, "upstream", SMALL)
    assert entry.verdict == "fits" and more.verdict != "fits"
    assert str(entry.label) == f"Context size {tokens:,} instead of 262,144"


def test_a_profile_that_fits_is_told_how_long_its_context_could_be() -> None:
    found = found_for({"ctx_size": 8192, "parallel": 1}, SMALL, dialect="upstream", offered=UPSTREAM)
    entry = by_key(found, "context_up")
    tokens = entry.changes["ctx_size"]
    assert isinstance(tokens, int) and 8192 < tokens < 262_144
    more = estimate(BIG, None, {"ctx_size": tokens + 1024, "parallel": 1}, "upstream", SMALL)
    assert entry.verdict == "fits" and more.verdict != "fits"
    assert keys(found).isdisjoint({"context", "gpu_layers", "speculation", "slots", "combined"})


def test_there_is_no_longer_context_than_the_models_own() -> None:
    one = (Device("CUDA0", 24_576),)
    assert "context_up" not in keys(found_for({"parallel": 1}, one, model=smol()))
    found = found_for({"ctx_size": 1024, "parallel": 1}, one, model=smol())
    assert by_key(found, "context_up").changes == {"ctx_size": 8192}


def test_quantised_values_bring_flash_attention_with_them() -> None:
    settings: dict[str, object] = {"ctx_size": 131_072, "parallel": 1, "flash_attn": "off"}
    found = found_for(settings, dialect="upstream", offered=UPSTREAM)
    assert by_key(found, "cache_types").changes["flash_attn"] == "on"
    assert by_key(found, "flash_attn").loss == Loss.NONE


def test_turbo_types_are_offered_by_builds_that_have_them_only() -> None:
    settings: dict[str, object] = {"ctx_size": 262_144, "cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    one = (Device("CUDA0", 40_960),)
    types = {"turbo4", "turbo3"}
    forks = found_for(settings | {"parallel": 1}, one)
    assert by_key(forks, "cache_types").changes["cache_type_v"] in types
    theirs = found_for(settings | {"parallel": 1}, one, dialect="upstream", offered=UPSTREAM)
    assert all(types.isdisjoint(map(str, entry.changes.values())) for entry in theirs)


def test_fewer_slots_keep_fewer_states_and_go_on_sharing_one_cache() -> None:
    settings: dict[str, object] = {"ctx_size": 262_144, "speculation": "mtp", "parallel": 16}
    settings |= {"kv_unified": "on", "cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    found = found_for(settings, dialect="upstream", offered=UPSTREAM)
    slots = by_key(found, "slots").changes["parallel"]
    assert slots in (1, 2, 4, 8)
    # Slots that nobody set share one cache; a number of slots alone would divide it.
    automatic = {key: value for key, value in settings.items() if key not in ("parallel", "kv_unified")}
    narrow = (Device("CUDA0", 20_992), Device("CUDA1", 20_992))
    found = found_for(automatic, narrow, dialect="upstream", offered=UPSTREAM)
    entry = by_key(found, "slots")
    assert entry.changes["parallel"] == 1 or entry.changes["kv_unified"] == "on"


def test_one_cache_for_all_slots_is_offered_where_it_takes_less() -> None:
    keys_of: dict[str, Value] = {"block_count": 30, "context_length": 131_072, "embedding_length": 2560}
    keys_of |= {"feed_forward_length": 10_240, "attention.head_count": 8, "attention.head_count_kv": 4}
    keys_of |= {"attention.key_length": 256, "attention.value_length": 256, "attention.sliding_window": 1024}
    model = make_header("gemma3", keys_of, vocabulary=262_144)
    settings: dict[str, object] = {"ctx_size": 32_768, "parallel": 16, "ubatch": 64}
    found = found_for(settings, TWO[:1], model=model, dialect="upstream", offered=UPSTREAM)
    assert by_key(found, "unified").changes == {"kv_unified": "on"}
    # Without windows a cache of each slot's own takes no more than one for all.
    plain: dict[str, object] = {"ctx_size": 8192, "parallel": 4}
    assert "unified" not in keys(
        found_for(plain, TWO[:1], model=smol(), dialect="upstream", offered=UPSTREAM)
    )


def test_without_mtp_nothing_of_drafts_is_left() -> None:
    settings = {**RECIPE, "draft_type_k": "f16", "draft_min": 1}
    entry = by_key(found_for(settings), "speculation")
    changed = applied(settings, entry.changes)
    assert not {"speculation", "draft_max", "draft_min", "draft_type_k"} & set(changed)


def test_nothing_is_offered_that_a_build_has_no_flag_for() -> None:
    found = found_for(RECIPE, mmproj=vision(), offered=Offered({}))
    # What is left is to leave a field alone.
    assert {value for entry in found for value in entry.changes.values()} == {None}


def test_without_a_card_there_is_nothing_to_free() -> None:
    assert found_for(RECIPE, ()) == []


def test_settings_without_an_estimate_have_no_tradeoffs_either() -> None:
    with pytest.raises(EstimateError):
        tradeoffs([BIG], None, {**RECIPE, "parallel": 4}, "fork", TWO, FORK)


def test_of_an_architecture_whose_cache_is_unknown_only_what_is_known_is_said() -> None:
    model = make_header(
        "glm-dsa",
        {"block_count": 8, "context_length": 4096, "embedding_length": 1024, "feed_forward_length": 4096},
        ((f"blk.{index}.ffn_up.weight", (1024, 1_048_576), Q8_0) for index in range(8)),
        1000,
    )
    two = (Device("CUDA0", 4096), Device("CUDA1", 16_384))
    settings: dict[str, object] = {"ctx_size": 4096, "parallel": 1, "tensor_split": "1,1"}
    found = found_for(settings, two, model=model, dialect="upstream", offered=UPSTREAM)
    assert by_key(found, "split").verdict == "unknown"
    assert "context" not in keys(found) and "cache_types" not in keys(found)
    nothing = make_header("llama", {})
    assert found_for(settings, two, model=nothing, dialect="upstream", offered=UPSTREAM) == []


def test_the_estimate_of_summed_tensors_is_that_of_the_whole_files() -> None:
    for model in (BIG, small_qwen(True), smol(), experts()):
        for settings in ({"n_cpu_moe": 5}, {"gpu_layers": 7}, {"tensor_split": "3,1"}):
            values: dict[str, object] = {"ctx_size": 4096, "parallel": 1, **settings}
            trial = Trial([model], None, values, "upstream", TWO)
            assert estimate(trial.parts, None, values, "upstream", TWO) == estimate(
                model, None, values, "upstream", TWO
            )


def test_what_an_earlier_start_taught_counts() -> None:
    taught = Learned(flash=True, work=0.2, draft=0.2, driver=300.0)
    plain, corrected = found_for(RECIPE, SMALL), found_for(RECIPE, SMALL, learned=taught)
    contexts = [by_key(found, "context").changes["ctx_size"] for found in (plain, corrected)]
    assert isinstance(contexts[0], int) and isinstance(contexts[1], int) and contexts[0] < contexts[1]


def test_a_list_for_a_big_model_takes_few_estimates_and_little_time() -> None:
    small = (Device("CUDA0", 16_384), Device("CUDA1", 12_288), Device("CUDA2", 12_288))
    trial = Trial([BIG], vision(), RECIPE | {"tensor_split": "1,1,1"}, "fork", small)
    started = time.perf_counter()
    tradeoffs([BIG], vision(), trial.settings, "fork", small, FORK)
    # An estimate of the whole file takes a millisecond; the bound is wide for slow hosts.
    assert time.perf_counter() - started < 1.0
    for count in range(LIMIT + 50):
        trial.outcome({"ctx_size": 256 * (count + 1)})
    assert trial.spent == LIMIT
