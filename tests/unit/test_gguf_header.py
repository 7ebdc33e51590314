"""The header reader agrees with the reference package and costs little."""

import io
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import quantize

from controlpanel.llamacpp.gguf import examine, read_header
from controlpanel.llamacpp.gguf_types import FILE_TYPES, TENSOR_TYPES
from tests.unit.gguf_samples import array, build, f32, mtp_model, projector, string, text, u32


def _write_reference(path: Path) -> None:
    writer = GGUFWriter(path, "qwen35")
    writer.add_name("Reference model")
    writer.add_type("model")
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(2)
    writer.add_context_length(262_144)
    writer.add_embedding_length(64)
    writer.add_block_count(3)
    writer.add_head_count(4)
    writer.add_head_count_kv([0, 0, 2])
    writer.add_key_length(16)
    writer.add_value_length(24)
    writer.add_rope_freq_base(10_000_000.0)
    writer.add_uint32("qwen35.nextn_predict_layers", 1)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {n}" for n in range(300)])
    writer.add_chat_template("{{ messages }}" * 1_000)
    rows = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(32, 64)
    writer.add_tensor("blk.0.attn_norm.weight", rows[0])
    writer.add_tensor(
        "blk.2.nextn.eh_proj.weight",
        quantize(rows, GGMLQuantizationType.Q8_0),
        raw_dtype=GGMLQuantizationType.Q8_0,
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_every_fact_agrees_with_what_the_reference_package_wrote(tmp_path: Path) -> None:
    path = tmp_path / "reference.gguf"
    _write_reference(path)
    header = read_header(path)

    assert header.architecture == "qwen35"
    assert header.name == "Reference model"
    assert header.kind == "model"
    assert header.quant == "Q8_0"
    assert header.quant_version == 2
    assert header.alignment == 32
    assert header.context_length == 262_144
    assert header.block_count == 3
    assert header.embedding_length == 64
    assert header.head_count == 4
    assert header.head_count_kv == (0, 0, 2)
    assert (header.key_length, header.value_length) == (16, 24)
    assert header.vocabulary == 300
    assert header.rope_freq_base == 10_000_000.0
    assert (header.split_no, header.split_count) == (0, 1)
    assert header.has_chat_template
    assert header.tokenizer_model == "gpt2"
    assert (header.nextn_layers, header.mtp_heads, header.mtp_only) == (1, 1, False)
    assert header.projector is None
    assert header.parameters == 64 + 64 * 32
    assert header.bytes_by_type == {"F32": 256, "Q8_0": 64 * 32 // 32 * 34}
    assert header.missing_bytes == 0


def test_tensor_places_agree_with_the_reference_package(tmp_path: Path) -> None:
    path = tmp_path / "reference.gguf"
    _write_reference(path)
    header = read_header(path)

    expected = [
        (tensor.name, tuple(int(n) for n in tensor.shape), int(tensor.data_offset), int(tensor.n_bytes))
        for tensor in GGUFReader(path).tensors
    ]
    found = [(t.name, t.shape, header.data_start + t.offset, t.size) for t in header.tensors]
    assert found == expected
    assert header.data_end <= path.stat().st_size < header.data_end + 32


def test_the_type_tables_agree_with_the_reference_package() -> None:
    ours = {kind: (known.name, known.block, known.size) for kind, known in TENSOR_TYPES.items()}
    for kind, (block, size) in GGML_QUANT_SIZES.items():
        if kind is GGMLQuantizationType.Q8_1:  # an intermediate of computations, never stored in files
            continue
        assert ours[int(kind)] == (kind.name, block, size)
    for file_type in LlamaFileType:
        if file_type is not LlamaFileType.GUESSED:
            name = file_type.name.removeprefix("MOSTLY_").removeprefix("ALL_")
            assert FILE_TYPES[int(file_type)] == name


def test_a_projector_file_tells_its_kind_and_width() -> None:
    header = read_header(io.BytesIO(projector(width=384)))
    assert header.kind == "mmproj"
    assert header.projector is not None
    assert (header.projector.type, header.projector.width) == ("qwen3vl_merger", 384)
    assert (header.projector.vision, header.projector.audio) == (True, False)


def test_old_projectors_promise_no_width() -> None:
    header = read_header(io.BytesIO(projector(width=768, kind="mlp")))
    assert header.projector is not None
    assert header.projector.width is None


@pytest.mark.parametrize(("file_type", "expected"), [(15, "Q4_K_M"), (15 + 1024, "Q4_K_M"), (999, "Q8_0")])
def test_an_unknown_label_falls_back_to_the_type_with_most_bytes(file_type: int, expected: str) -> None:
    raw = build(
        [string("general.architecture", "llama"), u32("general.file_type", file_type)],
        [("a", [32], 0, 0), ("b", [320, 32], 8, 128)],
        bytes(128 + 320 * 34),
    )
    assert read_header(io.BytesIO(raw)).quant == expected


def test_a_file_without_label_and_tensors_has_no_quant() -> None:
    assert read_header(io.BytesIO(build())).quant is None


def test_values_that_no_database_takes_are_replaced() -> None:
    raw = build(
        [
            string("general.architecture", b"lla\x00ma\xff"),
            f32("general.weird", float("nan")),
            f32("lla.rope.freq_base", float("inf")),
        ]
    )
    header = read_header(io.BytesIO(raw))
    assert header.architecture == "lla\ufffdma\ufffd"
    assert header.metadata["general.weird"] == "nan"
    assert header.rope_freq_base is None


def test_absurd_numbers_and_wrong_types_count_as_unknown() -> None:
    raw = build(
        [
            string("general.architecture", "llama"),
            ("llama.context_length", 10, b"\xff" * 8),
            string("llama.block_count", "many"),
            array("llama.attention.head_count_kv", 6, 1, b"\x00\x00\x80\x3f"),
        ]
    )
    header = read_header(io.BytesIO(raw))
    assert header.context_length is None
    assert header.block_count is None
    assert header.head_count_kv is None


def test_a_stream_with_only_the_beginning_is_enough() -> None:
    raw = mtp_model()
    cut = len(raw) - 1_000
    header = read_header(io.BytesIO(raw[:cut]), size=len(raw))
    assert header.mtp_heads == 1
    assert header.missing_bytes == 0


def test_facts_of_all_layers_are_there_though_long_values_are_skipped() -> None:
    raw = build(
        [
            string("general.architecture", "llama"),
            array("llama.attention.head_count_kv", 4, 3, struct.pack("<3I", 1, 2, 3)),
            array("big.numbers", 4, 5_000, bytes(20_000)),
            string("tokenizer.chat_template", "x" * 400_000),
            u32("llama.context_length", 77),
        ]
    )
    header = read_header(io.BytesIO(raw))
    assert header.head_count_kv == (1, 2, 3)
    assert header.lengths["big.numbers"] == 5_000
    assert "big.numbers" not in header.metadata
    assert header.has_chat_template
    assert header.context_length == 77


def _write_big_vocabulary(path: Path, count: int) -> None:
    tokens = b"".join(text(f"token{n}") for n in range(count))
    merges = b"".join(text(f"to ken{n}") for n in range(count))
    tensors = [(f"blk.{n}.weight", [32, 32], 0, n * 4096) for n in range(600)]
    keys = [
        string("general.architecture", "qwen3"),
        array("tokenizer.ggml.tokens", 8, count, tokens),
        array("tokenizer.ggml.merges", 8, count, merges),
        array("tokenizer.ggml.token_type", 5, count, bytes(4 * count)),
        u32("qwen3.context_length", 40_960),
    ]
    path.write_bytes(build(keys, tensors))


def test_a_vocabulary_of_250_000_words_costs_little_memory_and_time(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    _write_big_vocabulary(path, 250_000)
    started = time.perf_counter()
    header = read_header(path)
    assert time.perf_counter() - started < 5  # 0.2 s on an idle core
    assert header.vocabulary == 250_000
    assert header.context_length == 40_960

    code = (
        "import resource, sys\n"
        "from controlpanel.llamacpp.gguf import read_header\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "read_header(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    grown = int(subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True).stdout)
    assert grown < 20 * 1024, f"{grown} KiB more than before the read"


def test_examining_a_model_sums_up_its_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(mtp_model())
    model = examine(path)
    assert model.shards == (path,)
    assert model.size == path.stat().st_size
    assert (model.mtp_heads, model.complete, model.problems) == (1, True, ())
