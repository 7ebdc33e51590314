"""What the rules know of model files, and what they say of a model and its projector."""

import dataclasses
import json
from pathlib import Path

from controlpanel.llamacpp.facts import ModelFacts, facts_of
from controlpanel.llamacpp.gguf import examine, examine_header
from tests.unit.gguf_samples import Key, TensorRow, build, f32, mtp_model, projector, string, u32
from tests.unit.memory_headers import big_qwen
from tests.unit.test_command_rules import FORK, UPSTREAM, big_model, big_projector, refused, warned


def _facts(folder: Path, raw: bytes) -> ModelFacts:
    (folder / "M.gguf").write_bytes(raw)
    return facts_of(examine(folder / "M.gguf"))


def test_the_facts_of_a_big_model() -> None:
    facts = facts_of(examine_header(big_qwen(), "M.gguf"))
    assert (facts.gqa, facts.expert_count, facts.mtp_heads, facts.sidecar) == (6, 0, 1, False)
    assert facts.state_size is not None
    assert round(facts.state_size / 1024**2, 1) == 149.6


def test_the_facts_of_a_small_file_and_back_from_json(tmp_path: Path) -> None:
    keys: list[Key] = [
        string("general.architecture", "qwen3"),
        string("general.basename", "Qwen3-Embedding"),
        u32("qwen3.block_count", 1),
        u32("qwen3.context_length", 131_072),
        u32("qwen3.expert_count", 8),
        u32("qwen3.pooling_type", 3),
        f32("qwen3.rope.freq_base", 1_000_000),
        string("qwen3.rope.scaling.type", "yarn"),
        u32("qwen3.rope.scaling.original_context_length", 32_768),
    ]
    tensors: list[TensorRow] = [("blk.0.attn_norm.weight", [32], 0, 0)]
    facts = _facts(tmp_path, build(keys, tensors, bytes(128)))
    assert (facts.name, facts.expert_count, facts.pooling) == ("Qwen3-Embedding", 8, 3)
    assert (facts.rope_freq_base, facts.rope_scaling) == (1_000_000, "yarn")
    assert (facts.original_context, facts.state_size) == (32_768, None)
    assert ModelFacts(**json.loads(json.dumps(dataclasses.asdict(facts)))) == facts


def test_a_file_of_heads_alone_is_told_from_a_model(tmp_path: Path) -> None:
    assert _facts(tmp_path, mtp_model()).sidecar is False
    keys = [
        string("general.architecture", "qwen35"),
        u32("qwen35.block_count", 3),
        u32("qwen35.nextn_predict_layers", 1),
    ]
    heads: list[TensorRow] = [("blk.2.nextn.eh_proj.weight", [64, 32], 8, 0)]
    facts = _facts(tmp_path, build(keys, heads, bytes(64 * 34)))
    assert facts.sidecar is True
    assert "without the model" in refused(UPSTREAM, {}, model=facts)["model"]


def test_the_first_part_alone_does_not_tell_whether_the_trunk_is_there(tmp_path: Path) -> None:
    (tmp_path / "M-00001-of-00002.gguf").write_bytes(mtp_model(parts=(0, 2)))
    assert facts_of(examine(tmp_path / "M-00001-of-00002.gguf")).sidecar is None


def test_a_projector_has_no_facts_of_a_text_model(tmp_path: Path) -> None:
    facts = _facts(tmp_path, projector(width=5120))
    assert (facts.projector, facts.projector_width) == ("qwen3vl_merger", 5120)
    assert (facts.mtp_heads, facts.expert_count, facts.sidecar) == (None, None, None)


def test_a_projector_of_another_family_is_warned_about() -> None:
    other = big_projector(projector="gemma3", name="Gemma 3 27B")
    assert "Gemma 3" in warned(UPSTREAM, {}, model=big_model(), mmproj=other)["mmproj"]
    assert warned(UPSTREAM, {}, model=big_model(), mmproj=big_projector()) == {}
    unsure = big_projector(projector="pixtral", name=None)
    assert warned(UPSTREAM, {}, model=big_model(), mmproj=unsure) == {}


def test_a_projector_of_another_name_is_warned_about() -> None:
    other = big_projector(name="Qwen3-VL 32B Instruct")
    text = warned(UPSTREAM, {}, model=big_model(), mmproj=other)["mmproj"]
    assert "Qwen3-VL 32B" in text
    assert "Qwen3.6-27B" in text
    for same in ("Qwen3.6 27B Instruct", "Qwen3.6", None):
        assert warned(UPSTREAM, {}, model=big_model(), mmproj=big_projector(name=same)) == {}


def test_fields_of_vision_need_a_projector() -> None:
    for key, value in (("mmproj_offload", "off"), ("image_min_tokens", 1024), ("image_max_tokens", 4096)):
        assert "vision projector" in warned(UPSTREAM, {key: value}, model=big_model())[key]
        assert warned(UPSTREAM, {key: value}, model=big_model(), mmproj=big_projector()) == {}


def test_the_fewest_tokens_of_a_picture_are_below_the_most() -> None:
    values: dict[str, object] = {"image_min_tokens": 2048, "image_max_tokens": 1024}
    assert "at most 1024" in refused(UPSTREAM, values)["image_min_tokens"]
    assert refused(UPSTREAM, {**values, "image_max_tokens": 2048}) == {}


def test_a_model_for_vectors_needs_its_flag() -> None:
    makes, rates = big_model(pooling=3, mtp_heads=0), big_model(pooling=4, mtp_heads=0)
    assert "--embeddings" in warned(UPSTREAM, {}, model=makes)["model"]
    assert "--reranking" in warned(UPSTREAM, {}, model=rates)["model"]
    assert warned(UPSTREAM, {}, "--embedding", model=makes) == {}
    assert warned(UPSTREAM, {}, model=big_model(pooling=0)) == {}


def test_tokens_that_cannot_be_moved_are_not_shifted() -> None:
    plain = ModelFacts("llama", state_size=0)
    for flags in (("--context-shift",), ("--cache-reuse", "256")):
        assert "do nothing" in warned(UPSTREAM, {}, *flags, model=big_model())["extra_args"]
        assert (
            "do nothing"
            in warned(UPSTREAM, {}, *flags, model=plain, mmproj=big_projector(name=None))["extra_args"]
        )
        assert warned(UPSTREAM, {}, *flags, model=plain) == {}


def test_old_rows_without_the_newer_facts_are_not_judged() -> None:
    old = ModelFacts("qwen35", 262_144, 1, 5120)
    values: dict[str, object] = {
        "cache_type_k": "turbo4",
        "cache_type_v": "turbo4",
        "cpu_moe": "on",
        "ctx_size": 204_800,
    }
    assert warned(FORK, values, model=old) == {}
