"""The facts of a model file, as pages and the command show them."""

import io
import json

from controlpanel.llamacpp.gguf import examine_header, read_header
from controlpanel.llamacpp.gguf_facts import GgufFacts, read_facts
from controlpanel.llamacpp.gguf_forks import fork_of, type_label, type_word
from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.gguf_mtp import mtp_words
from controlpanel.llamacpp.gguf_report import Report, facts_of_model, to_json
from tests.unit.gguf_mutations import real_headers
from tests.unit.gguf_samples import Key, TensorRow, array, build, f32, mtp_model, projector, string, u32

SIZE = 1 << 40


def header(raw: bytes) -> GgufHeader:
    """The header of a file that is as large as it has to be."""
    return read_header(io.BytesIO(raw), SIZE)


def facts(raw: bytes) -> GgufFacts:
    """The facts of a single file."""
    return read_facts([header(raw)])


def model(*keys: Key, tensors: list[TensorRow] | None = None) -> GgufFacts:
    """The facts of a llama model with more keys."""
    rows = tensors if tensors is not None else [("blk.0.attn_norm.weight", [32], 0, 0)]
    return facts(build([string("general.architecture", "llama"), *keys], rows))


def test_the_facts_of_a_file_that_another_program_wrote() -> None:
    found = facts(real_headers()[0])
    assert (found.content, found.architecture, found.quant) == ("model", "qwen35", "F16")
    assert (found.layers, found.trunk_layers, found.mtp.usable) == (3, 2, 1)
    assert (found.embedding_length, found.heads, found.heads_kv) == (384, 2, 1)
    assert (found.context_length, found.vocabulary, found.tokenizer) == (4096, 343, "gpt2")
    assert found.parameters == 1_950_210
    assert found.template.present and found.template.size == 177
    assert found.rope.freq_base == 10_000.0


def test_the_shares_of_the_tensor_types_add_up_and_the_largest_comes_first() -> None:
    found = model(
        tensors=[("a", [256, 4], 12, 0), ("b", [256, 2], 14, 0), ("c", [32], 0, 0), ("d", [256], 12, 0)]
    )
    assert [(share.name, share.tensors, share.size) for share in found.types] == [
        ("Q4_K", 2, 5 * 144),
        ("Q6_K", 1, 2 * 210),
        ("F32", 1, 128),
    ]
    assert abs(sum(share.share or 0 for share in found.types) - 1) < 0.001
    assert found.bits_per_weight == round((5 * 144 + 420 + 128) * 8 / (256 * 7 + 32), 2)


def test_shares_are_unknown_when_the_size_of_one_type_is() -> None:
    found = model(tensors=[("a", [256], 12, 0), ("b", [256], 45, 0), ("c", [256], 200, 0)])
    assert {share.name for share in found.types} == {"Q4_K", "TQ3_1S (45)", "type 200"}
    assert {share.share for share in found.types} == {None}
    assert found.bits_per_weight is None


def test_advice_for_sampling_is_read_as_it_was_written() -> None:
    found = model(
        f32("general.sampling.temp", 0.6),
        f32("general.sampling.top_p", 0.95),
        u32("general.sampling.top_k", 20),
        f32("general.sampling.min_p", float("nan")),
    )
    assert found.sampling == {"temp": 0.6, "top_p": 0.95, "top_k": 20, "min_p": "nan"}


def test_experts_and_a_scaled_context_are_told() -> None:
    found = model(
        u32("llama.expert_count", 128),
        u32("llama.expert_used_count", 8),
        f32("llama.rope.freq_base", 10_000_000.0),
        string("llama.rope.scaling.type", "yarn"),
        f32("llama.rope.scaling.factor", 4.0),
        u32("llama.rope.scaling.original_context_length", 32768),
    )
    assert (found.experts, found.experts_used) == (128, 8)
    assert (found.rope.freq_base, found.rope.scaling, found.rope.factor) == (10_000_000.0, "yarn", 4.0)
    assert found.rope.original_context == 32768


def test_a_template_with_tools_is_told_from_one_without() -> None:
    plain = model(string("tokenizer.chat_template", "{{ messages }} stool"))
    tools = model(string("tokenizer.chat_template", "{% if tools %}{{ tools | tojson }}{% endif %}"))
    named = model(
        string("tokenizer.chat_template", "{{ messages }}"), string("tokenizer.chat_template.tool_use", "x")
    )
    assert (plain.template.tool_use, tools.template.tool_use, named.template.tool_use) == (False, True, True)
    assert named.template.named == ("tool_use",)
    assert not model().template.present


def test_a_template_of_usual_length_is_read_and_a_huge_one_is_only_measured() -> None:
    usual = model(string("tokenizer.chat_template", "{% if tools %}" + " " * 20_000))
    huge = model(string("tokenizer.chat_template", "{% if tools %}" + " " * 200_000))
    assert (usual.template.tool_use, usual.template.size) == (True, 20_014)
    assert (huge.template.present, huge.template.tool_use, huge.template.size) == (True, None, 200_014)


def test_heads_need_both_the_key_and_the_tensor() -> None:
    both, key, tensor, none = (
        facts(mtp_model(heads, present)).mtp
        for heads, present in ((1, True), (1, False), (0, True), (0, False))
    )
    assert (both.usable, both.missing) == (1, "")
    assert (key.usable, key.missing, tensor.usable, tensor.missing) == (0, "tensor", 0, "key")
    assert (none.usable, none.missing) == (0, "")
    assert "blk.2.nextn.eh_proj.weight" in str(mtp_words(key))
    assert "key" in str(mtp_words(tensor))
    assert str(mtp_words(none)) == "No MTP heads."


def test_heads_in_a_part_that_was_not_read_are_unknown() -> None:
    found = read_facts([header(mtp_model(1, False, parts=(0, 2)))], whole=False)
    assert (found.mtp.usable, found.mtp.missing) == (None, "")
    assert "not read" in str(mtp_words(found.mtp))


def test_heads_without_their_model_are_a_file_of_their_own_kind() -> None:
    raw = mtp_model().replace(b"blk.0.attn_norm.weight", b"blk.2.attn_norm.weight")
    found = facts(raw)
    assert (found.content, found.mtp.separate) == ("mtp heads", True)
    assert "beside their model" in str(mtp_words(found.mtp))


def test_what_is_no_model_is_called_what_it_is() -> None:
    adapter = facts(build([string("general.architecture", "llama"), string("general.type", "adapter")]))
    tokens = array("tokenizer.ggml.tokens", 8, 2, bytes(16))
    vocabulary = facts(build([string("general.architecture", "llama"), tokens]))
    assert (adapter.content, vocabulary.content) == ("adapter", "vocabulary")
    assert facts(build([string("general.architecture", "llama")])).content == "empty"
    assert facts(build([string("general.type", "imatrix")])).content == "imatrix"


def test_a_projector_says_kind_family_and_width() -> None:
    found = facts(projector(5120)).projector
    assert found is not None
    assert (found.type, found.width, found.vision, found.audio) == ("qwen3vl_merger", 5120, True, False)
    assert "Qwen3.5" in found.family
    other = facts(projector(1, "brand_new")).projector
    assert other is not None and other.family == "brand_new"


def test_parts_are_counted_together() -> None:
    parts = [
        header(mtp_model(1, False, parts=(0, 2))),
        header(build([u32("split.no", 1)], [("blk.2.nextn.eh_proj.weight", [64, 32], 8, 0)])),
    ]
    found = read_facts(parts)
    assert (found.mtp.usable, found.tensors, found.parameters) == (1, 2, 32 + 64 * 32)


def test_facts_are_plain_json() -> None:
    found = facts(real_headers()[0])
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["types"][0]["name"] == "F16"


def test_tensor_types_have_the_name_that_builds_carry() -> None:
    assert [type_label(number) for number in (12, 42, 45, 139, 250)] == [
        "Q4_K",
        "Q2_0",
        "TQ3_1S (45)",
        "IQ4_K (139)",
        "type 250",
    ]
    assert [type_word(number) for number in (8, 12, 39, 42, 45, 250)] == [
        "q8_0",
        "q4_K",
        "mxfp4",
        "dequantize_row_q2_0",
        "tq3_1s",
        None,
    ]
    assert [fork_of(number) for number in (12, 42, 46, 139, 250)] == [
        None,
        None,
        "TurboQuant",
        "ik_llama.cpp",
        None,
    ]


def test_a_remote_header_of_a_part_says_that_the_rest_was_not_looked_at() -> None:
    found = examine_header(header(mtp_model(1, False, parts=(0, 3))), "big-00001-of-00003.gguf")
    answer = to_json(Report(found, facts_of_model(found)), str)
    assert answer["shards"] == {"count": 3, "read": 1, "missing": [], "size": SIZE}
    assert "part 1 of 3" in answer["problems"][0]
    assert answer["builds"] is None
    assert "not read" in answer["mtp"]


def test_a_part_of_a_download_is_never_complete() -> None:
    for name in ("model.gguf.part", "model.gguf.incomplete", "MODEL.GGUF.CRDOWNLOAD"):
        found = examine_header(header(mtp_model()), name)
        assert not found.complete
        assert "unfinished download" in str(found.problems[0])
    assert examine_header(header(mtp_model()), "model.gguf").complete
