"""Caches by type, slots and kind of layer; MTP of both dialects; unknown stays unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlpanel.llamacpp.gguf import read_header
from controlpanel.llamacpp.gguf_header import GgufHeader, Tensor
from controlpanel.llamacpp.memory import Device, Estimate, EstimateError, estimate
from controlpanel.llamacpp.memory_types import Dialect
from tests.models import tiny_models
from tests.unit.memory_headers import F16, Q8_0, big_qwen, make_header, small_qwen, smol

BIG = big_qwen()
GPU = (Device("CUDA0", 81_920),)
MTP: dict[str, object] = {"speculation": "mtp", "draft_max": 3, "parallel": 1}


def on_gpu(model: GgufHeader, settings: dict[str, object], dialect: Dialect = "upstream") -> Estimate:
    """The estimate for one big card."""
    return estimate(model, None, settings, dialect, GPU)


def term(model: GgufHeader, name: str, settings: dict[str, object], dialect: Dialect = "upstream") -> float:
    """One term of that card."""
    value = on_gpu(model, settings, dialect).devices[0].terms[name]
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("types", "kib"),
    [
        (("f16", "f16"), 64),
        (("q8_0", "q8_0"), 34),
        (("q8_0", "turbo4"), 25.5),
        (("turbo4", "turbo4"), 25.5),
        (("q8_0", "turbo3"), 23.25),
        (("turbo3", "turbo3"), 23.25),
        (("q4_0", "q4_0"), 18),
        (("f32", "f32"), 128),
        (("bf16", "bf16"), 64),
        (("q5_0", "q5_0"), 22),
        (("q5_1", "q5_1"), 24),
        (("q4_1", "q4_1"), 20),
        (("iq4_nl", "iq4_nl"), 18),
        (("f16", "turbo4"), 40.5),
    ],
)
@pytest.mark.parametrize("tokens", [32_768, 204_800, 262_144])
def test_a_token_of_the_big_model_takes_what_its_types_take(
    types: tuple[str, str], kib: float, tokens: int
) -> None:
    settings: dict[str, object] = {
        "ctx_size": tokens,
        "parallel": 1,
        "cache_type_k": types[0],
        "cache_type_v": types[1],
    }
    assert term(BIG, "kv", settings, "fork") == pytest.approx(tokens * kib / 1024, abs=0.01)


def test_turbo2_values_are_kept_better_in_the_outer_layers() -> None:
    settings: dict[str, object] = {
        "ctx_size": 4096,
        "parallel": 1,
        "cache_type_k": "q8_0",
        "cache_type_v": "turbo2",
    }
    # 65 layers with the MTP layer: of the last two, number 63 has a cache; of the first two, none.
    row = 1024 * 34 / 32 * 16 + 1024 * 34 / 128 * 15 + 1024 * 34 / 32
    assert term(BIG, "kv", settings, "fork") == pytest.approx(row * 4096 / 2**20, abs=0.001)


def test_turbo_types_pad_each_head() -> None:
    settings: dict[str, object] = {"ctx_size": 4096, "parallel": 1}
    turbo = {**settings, "cache_type_k": "q8_0", "cache_type_v": "turbo4"}
    # Three heads of 64 become three of 128.
    row = 192 * 34 / 32 + 384 * 68 / 128
    assert term(smol(), "kv", turbo, "fork") == pytest.approx(row * 4096 * 30 / 2**20, abs=0.001)


@pytest.mark.parametrize(
    ("settings", "tokens", "states"),
    [
        ({"ctx_size": 10_000, "parallel": 1}, 10_240, 1),
        ({"ctx_size": 10_000}, 10_240, 4),
        ({"ctx_size": 10_000, "parallel": 3}, 3 * 3584, 3),
        ({"ctx_size": 10_000, "parallel": 3, "kv_unified": True}, 10_240, 3),
        ({"ctx_size": 10_000, "kv_unified": "off"}, 4 * 2560, 4),
        ({"ctx_size": 100, "parallel": 2}, 512, 2),
        ({"parallel": 1}, 262_144, 1),
    ],
)
def test_slots_share_the_context_or_divide_it(settings: dict[str, object], tokens: int, states: int) -> None:
    assert term(BIG, "kv", settings) == tokens * 64 / 1024
    assert term(BIG, "recurrent", settings) == pytest.approx(149.625 * states)


def test_mtp_upstream_shares_the_weights_and_keeps_a_state_per_draft() -> None:
    settings = {**MTP, "ctx_size": 204_800, "parallel": 4, "kv_unified": True}
    assert term(BIG, "recurrent", settings) + term(BIG, "mtp_recurrent", settings) == pytest.approx(2394)
    assert term(BIG, "mtp_kv", settings) == 800
    head = term(BIG, "mtp_weights", settings)
    assert head == pytest.approx(430, abs=25)
    plain: dict[str, object] = {"ctx_size": 204_800, "parallel": 1}
    terms = on_gpu(BIG, plain).devices[0].terms
    assert not {key for key in terms if key.startswith("mtp")}
    assert term(BIG, "weights", plain) == term(BIG, "weights", settings)


def test_mtp_of_the_fork_loads_head_and_output_twice_and_drafts_sixteen() -> None:
    settings: dict[str, object] = {"speculation": "mtp", "parallel": 1, "ctx_size": 204_800}
    upstream = {**settings, "draft_max": 3}
    states = term(BIG, "recurrent", settings, "fork") + term(BIG, "mtp_recurrent", settings, "fork")
    assert states == pytest.approx(2543.6, abs=0.1)
    head = term(BIG, "mtp_weights", upstream)
    output = 5120 * 248_320 * 34 / 32 / 2**20
    assert term(BIG, "mtp_weights", settings, "fork") == pytest.approx(head + output, abs=0.1)
    assert term(BIG, "weights", settings, "fork") == pytest.approx(term(BIG, "weights", upstream) + head)
    assert term(BIG, "mtp_compute", settings, "fork") > 512 * 248_320 * 4 / 2**20


def test_the_draft_cache_has_types_of_its_own() -> None:
    settings = {**MTP, "ctx_size": 204_800, "cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    assert term(BIG, "mtp_kv", settings) == 800
    assert term(BIG, "mtp_kv", {**settings, "draft_type_k": "q8_0", "draft_type_v": "q8_0"}) == 425


def gemma(**more: object) -> GgufHeader:
    """A model of twelve layers, every sixth of which attends to everything."""
    keys = {
        "block_count": 12,
        "context_length": 32_768,
        "embedding_length": 1024,
        "feed_forward_length": 4096,
        "attention.head_count": 4,
        "attention.head_count_kv": 1,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "attention.sliding_window": 512,
        **more,
    }
    shapes = iter([("token_embd.weight", (1024, 1000), F16)])
    return make_header("gemma3", keys, shapes, 1000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "window", "streams"),
    [
        ({"ctx_size": 32_768, "parallel": 1}, 1024, 1),
        ({"ctx_size": 32_768, "parallel": 1, "ubatch": 100}, 768, 1),
        ({"ctx_size": 32_768, "parallel": 4, "kv_unified": True}, 2560, 1),
        ({"ctx_size": 32_768, "parallel": 1, "swa_full": True}, 32_768, 1),
    ],
)
def test_layers_with_a_window_keep_the_window_only(
    settings: dict[str, object], window: int, streams: int
) -> None:
    assert term(gemma(), "kv", settings) == (2 * 32_768 + 10 * window) * streams / 1024
    pattern = gemma(**{"attention.sliding_window_pattern": (True,) * 11 + (False,)})
    assert term(pattern, "kv", settings) == (32_768 + 11 * window) * streams / 1024


def test_latent_attention_keeps_no_values() -> None:
    keys = {
        "block_count": 4,
        "context_length": 4096,
        "embedding_length": 1024,
        "feed_forward_length": 2048,
        "attention.head_count": 16,
        "attention.head_count_kv": 1,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
    }
    header = make_header("deepseek2", dict(keys), vocabulary=1000)
    assert term(header, "kv", {"ctx_size": 4096, "parallel": 1}) == 4 * 576 * 2 * 4096 / 2**20


def test_a_layer_without_kv_heads_keeps_a_state() -> None:
    keys = {
        "block_count": 3,
        "context_length": 4096,
        "embedding_length": 1024,
        "feed_forward_length": 2048,
        "attention.head_count": 8,
        "attention.head_count_kv": (0, 4, 0),
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 2048,
        "ssm.state_size": 128,
        "ssm.group_count": 1,
    }
    header = make_header("granitehybrid", dict(keys), vocabulary=1000)
    settings: dict[str, object] = {"ctx_size": 4096, "parallel": 2}
    assert term(header, "kv", settings) == 2 * 4 * 128 * 2 * 4096 / 2**20
    floats = 3 * (2048 + 2 * 128) + 128 * 2048
    assert term(header, "recurrent", settings) == 2 * 2 * floats * 4 / 2**20


@pytest.mark.parametrize(
    ("architecture", "more"),
    [
        ("somenew", {"attention.sliding_window": 4096}),
        ("somenew", {"ssm.state_size": 16}),
        ("somenew", {"attention.indexer.head_count": 4}),
        ("llama4", {}),
        ("qwen35", {}),
    ],
)
def test_what_an_architecture_keeps_is_unknown_when_its_rules_are(
    architecture: str, more: dict[str, int]
) -> None:
    keys = {
        "block_count": 2,
        "context_length": 4096,
        "embedding_length": 1024,
        "feed_forward_length": 2048,
        "attention.head_count": 8,
        **more,
    }
    found = on_gpu(make_header(architecture, dict(keys), vocabulary=1000), {})
    assert found.devices[0].terms["kv"] is None
    assert found.devices[0].total is None
    assert found.verdict == "unknown"
    assert any("architecture" in str(message) for message in found.why)


def test_a_file_that_says_nothing_is_unknown_and_no_error() -> None:
    found = on_gpu(make_header("llama", {}), {"ctx_size": 4096})
    assert found.verdict == "unknown" and found.devices[0].total is None
    header = make_header("llama", {"block_count": 2, "attention.head_count": 8, "embedding_length": 64})
    found = on_gpu(header, {})
    assert found.devices[0].terms["kv"] is None and "context size" in str(found.why[0])


def test_weights_of_an_unknown_type_or_an_unread_part_are_unknown() -> None:
    header = small_qwen(False)
    odd = Tensor("blk.1.odd", (64,), 45, 0, None)
    broken = GgufHeader(3, 0, 0, 32, header.metadata, header.lengths, (*header.tensors, odd))
    assert on_gpu(broken, {}).devices[0].terms["weights"] is None
    part = {**header.metadata, "split.count": 2}
    first = GgufHeader(3, 0, 0, 32, part, header.lengths, header.tensors)
    assert on_gpu(first, {}).devices[0].terms["weights"] is None
    second = GgufHeader(3, 0, 0, 32, {}, {}, ())
    both = estimate((first, second), None, {}, "upstream", GPU)
    assert both.devices[0].terms["weights"] == on_gpu(header, {}).devices[0].terms["weights"]


def test_the_verdict_rests_on_what_is_certain_and_on_the_bounds() -> None:
    settings: dict[str, object] = {"ctx_size": 32_768, "parallel": 1}
    (fit,) = on_gpu(BIG, settings).devices
    assert fit.total is not None and fit.certain < fit.total

    def verdict(total: float, used: float = 0) -> str:
        return estimate(BIG, None, settings, "upstream", (Device("CUDA0", total, used),)).verdict

    assert verdict(fit.total + 1) == "fits"
    assert verdict(fit.total - 1) == "tight"
    assert verdict(fit.certain - 1) == "does not fit"
    assert verdict(fit.total + 1, used=2) == "tight"
    assert estimate(BIG, None, settings, "upstream", ()).verdict == "unknown"


def test_what_is_certain_decides_even_when_a_term_is_unknown() -> None:
    keys = {"block_count": 2, "context_length": 4096, "embedding_length": 1024, "attention.head_count": 8}
    shapes = iter([("output.weight", (1024, 4096), F16)])
    header = make_header("llama4", dict(keys), shapes, 4096)
    assert estimate(header, None, {}, "upstream", (Device("CUDA0", 257),)).verdict == "does not fit"
    assert estimate(header, None, {}, "upstream", (Device("CUDA0", 300),)).verdict == "unknown"


def test_a_projector_goes_to_the_first_card_or_stays_in_main_memory(tmp_path: Path) -> None:
    text, mmproj = map(read_header, tiny_models(tmp_path))
    size = sum(tensor.size or 0 for tensor in mmproj.tensors) / 2**20
    cards = (Device("CUDA0", 1000), Device("CUDA1", 1000))
    found = estimate(text, mmproj, {"tensor_split": "0,1"}, "upstream", cards)
    assert found.devices[0].terms["mmproj"] == size
    assert found.devices[0].terms["margin"] == 600
    # The recorded servers took 51.79 MiB for theirs.
    work = found.devices[0].terms["mmproj_compute"]
    assert work is not None and 51.79 < work < 2 * 51.79
    assert "mmproj" not in found.devices[1].terms
    found = estimate(text, mmproj, {"mmproj_offload": False}, "upstream", cards)
    assert found.host["mmproj"] == size and "mmproj" not in found.devices[0].terms


def test_a_projector_of_an_unknown_kind_has_unknown_work_memory() -> None:
    keys = {"clip.projector_type": "newest", "clip.vision.projection_dim": 256}
    mmproj = GgufHeader(3, 0, 0, 32, {"general.architecture": "clip", **keys}, {}, ())
    found = estimate(small_qwen(False), mmproj, {}, "upstream", GPU)
    assert found.devices[0].terms["mmproj_compute"] is None and found.verdict == "unknown"


def test_quantised_caches_need_room_to_be_unpacked_for_flash_attention() -> None:
    plain: dict[str, object] = {"ctx_size": 204_800, "parallel": 1}
    quantised = {**plain, "cache_type_k": "q4_0", "cache_type_v": "q4_0"}
    rotations = (256**2 + 64**2) * 4 / 2**20
    assert term(BIG, "compute", quantised) - term(BIG, "compute", plain) == 800 + rotations
    assert term(BIG, "margin", quantised, "fork") - term(BIG, "margin", plain, "fork") == 800


def test_a_cache_of_f32_is_unpacked_by_the_graph_itself() -> None:
    plain: dict[str, object] = {"ctx_size": 8192, "parallel": 1}
    host = estimate(BIG, None, plain, "upstream", ()).host
    wide = estimate(BIG, None, {**plain, "cache_type_v": "f32"}, "upstream", ()).host
    assert (wide["compute"] or 0) - (host["compute"] or 0) == 4 * 256 * 2 * 8192 / 2**20
    packed = estimate(BIG, None, {**plain, "cache_type_v": "q8_0"}, "upstream", ()).host
    assert (packed["compute"] or 0) - (host["compute"] or 0) < 0.02


def test_drafts_and_slots_need_room_for_their_states() -> None:
    few = {**MTP, "ctx_size": 8192, "draft_max": 1}
    many = {**few, "draft_max": 9}
    state = 6144 * 128 * 4 / 2**20
    more = term(BIG, "compute", many) - term(BIG, "compute", few)
    assert more == pytest.approx(8 * (state + 248_320 * 4 / 2**20), abs=0.01)


@pytest.mark.parametrize(
    ("settings", "dialect", "words"),
    [
        ({"cache_type_k": "turbo4"}, "upstream", "No KV cache has the type turbo4"),
        ({"cache_type_v": "turbo8"}, "fork", "turbo8"),
        ({"cache_type_v": "q8_0", "flash_attn": "off"}, "upstream", "flash attention"),
        ({"parallel": 0}, "upstream", "slots cannot be 0"),
        ({"ctx_size": "many"}, "upstream", "ctx_size cannot be many"),
        ({"tensor_split": "3;1"}, "upstream", "one share per GPU"),
        ({"tensor_split": "3,1"}, "upstream", "names 2 GPUs, but there are 1"),
        ({"main_gpu": 1}, "upstream", "counted from 0"),
        ({"speculation": "mtp"}, "fork", "Slots to 1"),
    ],
)
def test_what_no_server_would_start_with_is_refused_in_words(
    settings: dict[str, object], dialect: Dialect, words: str
) -> None:
    with pytest.raises(EstimateError, match=words):
        on_gpu(BIG, settings, dialect)


def test_files_in_the_wrong_place_are_refused() -> None:
    clip = GgufHeader(3, 0, 0, 32, {"general.architecture": "clip"}, {}, ())
    with pytest.raises(EstimateError, match="is a projector"):
        estimate(clip, None, {}, "upstream", GPU)
    with pytest.raises(EstimateError, match="no projector"):
        estimate(BIG, BIG, {}, "upstream", GPU)
    with pytest.raises(EstimateError, match="no MTP heads"):
        on_gpu(small_qwen(False), MTP)
    bare = GgufHeader(3, 0, 0, 32, BIG.metadata, BIG.lengths, BIG.tensors[:20])
    with pytest.raises(EstimateError, match="no MTP heads"):
        on_gpu(bare, MTP)
    keys = {"block_count": 3, "nextn_predict_layers": 1, "attention.head_count": 8, "embedding_length": 64}
    shapes = iter([("blk.2.nextn.eh_proj.weight", (128, 64), F16)])
    glm = make_header("glm4moe", dict(keys), shapes)
    with pytest.raises(EstimateError, match="glm4moe"):
        on_gpu(glm, MTP, "fork")


def test_a_split_by_rows_is_not_guessed() -> None:
    found = on_gpu(big_qwen(Q8_0), {"split_mode": "row"})
    assert found.verdict == "unknown" and "row" in str(found.why[0])
