"""Templates render for every build and hold what they promise of models and cards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.command import Managed, render
from controlpanel.llamacpp.facts import ModelFacts
from controlpanel.llamacpp.gguf_header import GgufHeader, Value
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.memory import Device, Estimate, estimate
from controlpanel.llamacpp.memory_flags import dialect_of
from controlpanel.llamacpp.profile_templates import TEMPLATES, Template
from tests.unit.memory_headers import F16, F32, Q8_0, Shapes, big_qwen, make_header

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text(), "version: 1 (a)")
FORK = capabilities_from((HELP / "help-fork.txt").read_text(), "version: 9123 (67f38aa53)")
BUILDS = pytest.mark.parametrize("caps", [UPSTREAM, FORK], ids=["upstream", "fork"])
BY_KEY = {template.key: template for template in TEMPLATES}
Q4_K, Q5_K, Q6_K = 12, 13, 14
DESKTOP = 300  # MiB that other programs hold of a card
GIB = 2**30


def mixed(header: GgufHeader, most: int, vocabulary: int) -> GgufHeader:
    """The header with its matrices in one type, the sensitive ones in Q6_K as the usual mixes have it."""
    prefix = f"{header.architecture}."
    keys = {
        key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)
    }

    def shapes() -> Shapes:
        for tensor in header.tensors:
            better = tensor.name.startswith("output") or "ffn_down" in tensor.name or "attn_v" in tensor.name
            kind = tensor.type if tensor.type == F32 else Q6_K if better else most
            yield tensor.name, tensor.shape, kind

    assert header.architecture is not None
    return make_header(header.architecture, keys, shapes(), vocabulary)


def plain(
    layers: int, width: int, feed: int, heads: int, vocabulary: int, kind: int, experts: int = 0
) -> GgufHeader:
    """A model with grouped attention of 8 KV heads of 128, or of 4 when it has experts."""
    kv = 4 if experts else 8
    keys: dict[str, Value] = {
        "block_count": layers,
        "context_length": 131_072,
        "embedding_length": width,
        "feed_forward_length": feed,
        "attention.head_count": heads,
        "attention.head_count_kv": kv,
        "attention.key_length": 128,
        "attention.value_length": 128,
    }
    if experts:
        keys |= {"expert_count": experts, "expert_used_count": 8, "expert_feed_forward_length": feed}

    def shapes() -> Shapes:
        yield "token_embd.weight", (width, vocabulary), kind
        yield "output_norm.weight", (width,), F32
        yield "output.weight", (width, vocabulary), kind
        for index in range(layers):
            block = f"blk.{index}."
            for name in ("attn_norm", "ffn_norm"):
                yield f"{block}{name}.weight", (width,), F32
            yield f"{block}attn_q.weight", (width, heads * 128), kind
            yield f"{block}attn_output.weight", (heads * 128, width), kind
            for name in ("attn_k", "attn_v"):
                yield f"{block}{name}.weight", (width, kv * 128), kind
            if experts:
                yield f"{block}ffn_gate_inp.weight", (width, experts), F32
            end = "_exps" if experts else ""
            more = (experts,) if experts else ()
            for name in ("ffn_gate", "ffn_up"):
                yield f"{block}{name}{end}.weight", (width, feed, *more), kind
            yield f"{block}ffn_down{end}.weight", (feed, width, *more), kind

    return make_header("qwen3moe" if experts else "llama", keys, shapes(), vocabulary)


def projector(width: int, gib: float) -> GgufHeader:
    """A projector of a known kind and of that size."""
    rows = round(gib * GIB / 2 / 1024)
    header = make_header("clip", {}, iter([("v.blk.0.ffn_up.weight", (1024, rows), F16)]))
    keys: dict[str, Value] = {
        "clip.has_vision_encoder": True,
        "clip.projector_type": "qwen3vl_merger",
        "clip.vision.projection_dim": width,
        "clip.vision.embedding_length": 1152,
        "clip.vision.feed_forward_length": 4304,
        "clip.vision.block_count": 27,
        "clip.vision.attention.head_count": 16,
        "clip.vision.image_size": 768,
        "clip.vision.patch_size": 16,
        "clip.vision.spatial_merge_size": 2,
    }
    return GgufHeader(3, 0, 0, 32, {**header.metadata, **keys}, {}, header.tensors)


def size_of(header: GgufHeader) -> float:
    """Size of the weights in GiB."""
    return sum(tensor.size or 0 for tensor in header.tensors) / GIB


def bits_of(header: GgufHeader) -> float:
    """Bits per weight."""
    return size_of(header) * GIB * 8 / sum(math.prod(tensor.shape) for tensor in header.tensors)


def fit(
    template: Template, caps: Capabilities, model: GgufHeader, cards: Mapping[str, int], eyes: bool = False
) -> Estimate:
    """The estimate of a template on cards of so many GiB, of which others hold a little."""
    devices = [Device(name, gib * 1024, DESKTOP) for name, gib in cards.items()]
    width = model.number(f"{model.architecture}.embedding_length")
    mmproj = projector(width or 0, 0.9) if eyes else None
    return estimate(model, mmproj, template.settings_for(caps), dialect_of(caps), devices)


@BUILDS
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.key)
def test_a_template_renders_without_a_problem(template: Template, caps: Capabilities) -> None:
    settings = template.settings_for(caps)
    model = ModelFacts("qwen35", context_length=262_144, mtp_heads=1, embedding_length=5120)
    mmproj = "/m/P.gguf" if template.wants_mmproj else None
    rendered = render(caps, settings, (), Managed("/m/M.gguf", mmproj, "x", 8081), model)
    assert rendered.problems == []
    assert set(settings) == set(template.settings) <= set(MEANINGS)
    passed = [line for line in rendered.lines if line.source == "passed"]
    assert len(passed) == len(settings)


def test_templates_have_keys_of_their_own_and_words() -> None:
    assert len(BY_KEY) == len(TEMPLATES) >= 7
    for template in TEMPLATES:
        assert template.name and len(template.description) > 40 and len(template.needs) > 40
        assert set(template.otherwise) <= set(template.settings)


def test_a_build_gets_the_types_and_the_speculation_that_it_has() -> None:
    template = BY_KEY["two-24gb-27b-mtp-vision"]
    assert template.settings_for(FORK)["cache_type_v"] == "turbo4"
    assert template.settings_for(UPSTREAM)["cache_type_v"] == "q8_0"
    help_text = (HELP / "upstream-b11434.txt").read_text().replace("draft-mtp,", "")
    without = capabilities_from(help_text)
    assert without.mtp_value is None
    settings = template.settings_for(without)
    assert "speculation" not in settings and not {key for key in settings if key.startswith("draft")}
    assert settings["ctx_size"] == 204_800


@BUILDS
@pytest.mark.parametrize(("kind", "bits"), [(Q4_K, 5.04), (Q5_K, 5.78)])
def test_27b_with_200k_and_a_projector_fits_two_cards_of_24_gb(
    caps: Capabilities, kind: int, bits: float
) -> None:
    model = mixed(big_qwen(), kind, 248_320)
    assert bits_of(model) == pytest.approx(bits, abs=0.01) and size_of(model) < 19
    found = fit(BY_KEY["two-24gb-27b-mtp-vision"], caps, model, {"A": 24, "B": 24}, eyes=True)
    assert found.verdict == "fits"
    assert "mmproj" in found.devices[0].terms and "mtp_kv" in found.devices[1].terms
    one = fit(BY_KEY["two-24gb-27b-mtp-vision"], caps, model, {"A": 24})
    assert one.verdict != "fits"


@BUILDS
def test_27b_at_4_bits_with_64k_fits_one_card_of_24_gb(caps: Capabilities) -> None:
    model = mixed(big_qwen(), Q4_K, 248_320)
    assert 15.5 < size_of(model) < 16.1
    assert fit(BY_KEY["one-24gb-27b-mtp"], caps, model, {"A": 24}).verdict == "fits"
    assert fit(BY_KEY["one-24gb-27b-mtp"], caps, big_qwen(), {"A": 24}).verdict == "does not fit"


@BUILDS
def test_8b_with_128k_fits_one_card_of_24_gb(caps: Capabilities) -> None:
    model = plain(36, 4096, 12_288, 32, 151_936, Q8_0)
    assert 8 < size_of(model) < 8.5
    assert fit(BY_KEY["one-24gb-8b-long"], caps, model, {"A": 24}).verdict == "fits"


@BUILDS
def test_4b_with_a_projector_fits_one_card_of_12_gb(caps: Capabilities) -> None:
    model = plain(36, 2560, 9728, 32, 151_936, Q8_0)
    assert 4 < size_of(model) < 4.5
    assert fit(BY_KEY["one-12gb-small-vision"], caps, model, {"A": 12}, eyes=True).verdict == "fits"


@BUILDS
def test_the_experts_of_a_30b_model_stay_in_main_memory(caps: Capabilities) -> None:
    model = plain(48, 2048, 768, 32, 151_936, Q4_K, experts=128)
    found = fit(BY_KEY["moe-experts-in-memory"], caps, model, {"A": 12})
    assert found.verdict == "fits"
    weights = found.host["weights"]
    assert weights is not None and weights > 0.9 * size_of(model) * 1024


@BUILDS
def test_four_conversations_of_a_14b_model_fit_one_card_of_24_gb(caps: Capabilities) -> None:
    model = plain(40, 5120, 17_408, 40, 151_936, Q6_K)
    assert 11 < size_of(model) < 12
    template = BY_KEY["four-slots-one-cache"]
    assert fit(template, caps, model, {"A": 24}).verdict == "fits"
    shared = fit(template, caps, model, {"A": 24}).devices[0].terms["kv"]
    alone = {**template.settings_for(caps), "parallel": 1}
    (card,) = estimate(model, None, alone, dialect_of(caps), [Device("A", 24_576)]).devices
    assert shared == card.terms["kv"]


@BUILDS
def test_4b_without_a_card_fits_8_gb_of_main_memory(caps: Capabilities) -> None:
    model = plain(36, 2560, 9728, 32, 151_936, Q8_0)
    host = fit(BY_KEY["cpu-small"], caps, model, {}).host
    assert sum(size or 0 for size in host.values()) < 8 * 1024
    assert None not in host.values()
