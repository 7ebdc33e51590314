"""Makes a tiny deterministic model with MTP heads, and the vision projector that goes with it.

Architecture qwen35: one gated-delta-net layer, one full-attention layer, one MTP layer; no training.
Embeddings are one-hot, the residual stream passes through unchanged, and the output matrix is a table
"token -> next token". A text prompt therefore gets one fixed reply of 66 tokens. With an image the attention
layer reads colour features that the projector computes from the pixels, and the reply names the colour. The
MTP head holds the same table, but every `miss`-th word of it is wrong on purpose: the acceptance rate is
below 100 % and always the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlpanel.demo.tiny_projector import write_projector
from controlpanel.demo.tiny_vocabulary import (
    COLOUR,
    COLOURS,
    CONST,
    IMAGE,
    READ_COLOUR,
    READ_IMAGE,
    WIDTH,
    make_vocabulary,
    successor_tables,
)

GENERATOR_VERSION = 1
LICENSE = "MIT"
TEXT_NAME = "tiny-mtp.gguf"
PLAIN_NAME = "tiny-plain.gguf"
PROJECTOR_NAME = "mmproj-tiny.gguf"
# The description is one of the first keys of a file.
MARK_WITHIN = 4096

HEAD, HEADS, KV_HEADS, FEED_FORWARD = 128, 2, 1, 64
CHAT_TEMPLATE = (
    "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)


@dataclass(frozen=True)
class TinyFiles:
    """Where the two files lie."""

    text: Path
    projector: Path


def make_all(folder: Path) -> TinyFiles:
    """Makes both files in a folder, which is created; files that are up to date are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    files = TinyFiles(folder / TEXT_NAME, folder / PROJECTOR_NAME)
    make_text_model(files.text)
    make_projector(files.projector)
    return files


def make_text_model(path: Path, miss: int = 5, ctx: int = 4096, heads: bool = True) -> None:
    """Writes the language model (3.9 MB, F16); `miss` 0 = the MTP head is never wrong, `ctx` in tokens."""
    mark = f"Tiny test model {GENERATOR_VERSION}: miss {miss}, context {ctx}, MTP {'yes' if heads else 'no'}."
    _write(path, mark, lambda temporary: _write_text(temporary, mark, miss, ctx, heads))


def make_projector(path: Path) -> None:
    """Writes the vision projector (1.2 MB, F32), which recognises five colours in pictures of one colour."""
    mark = f"Tiny test projector {GENERATOR_VERSION}."
    _write(path, mark, lambda temporary: write_projector(temporary, mark, LICENSE))


def _write(path: Path, mark: str, make: Callable[[Path], None]) -> None:
    """Calls `make` unless the file has the mark; the file appears under its name only when it is complete."""
    if path.is_file():
        with path.open("rb") as file:
            if mark.encode() in file.read(MARK_WITHIN):
                return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        make(temporary)
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_text(path: Path, mark: str, miss: int, ctx: int, heads: bool) -> None:
    import gguf
    import numpy as np

    vocabulary = make_vocabulary()
    count = len(vocabulary.tokens)
    if count > READ_COLOUR:
        raise ValueError(f"{count} tokens do not fit below dimension {READ_COLOUR}")
    table, draft = successor_tables(vocabulary, miss)

    writer = gguf.GGUFWriter(path, "qwen35")
    writer.add_description(mark)
    writer.add_type("model")
    writer.add_name("Tiny MTP test model" if heads else "Tiny test model")
    writer.add_license(LICENSE)
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_F16))
    writer.add_size_label("tiny")
    writer.add_context_length(ctx)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(3 if heads else 2)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e4)
    writer.add_rope_dimension_count(64)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_state_size(128)
    writer.add_ssm_group_count(1)
    writer.add_ssm_time_step_rank(1)
    writer.add_ssm_inner_size(128)
    writer.add_uint32("qwen35.full_attention_interval", 2)
    if heads:
        writer.add_nextn_predict_layers(1)
    writer.add_vocab_size(count)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(vocabulary.special["<|im_end|>"])
    writer.add_pad_token_id(vocabulary.special["<|endoftext|>"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)

    random = np.random.default_rng(0)

    def f16(name: str, values: Any) -> None:
        writer.add_tensor(f"{name}.weight", values.astype(np.float16))

    def f32(name: str, values: Any) -> None:
        writer.add_tensor(name, values.astype(np.float32))

    def noise(*shape: int) -> Any:
        return random.normal(0, 0.02, shape)

    def norms_and_feed_forward(block: str) -> None:
        f32(f"{block}attn_norm.weight", np.ones(WIDTH))
        f32(f"{block}post_attention_norm.weight", np.ones(WIDTH))
        f16(f"{block}ffn_gate", noise(FEED_FORWARD, WIDTH))
        f16(f"{block}ffn_up", noise(FEED_FORWARD, WIDTH))
        f16(f"{block}ffn_down", np.zeros((WIDTH, FEED_FORWARD)))

    def attention(block: str, query: Any, key: Any, value: Any, output: Any) -> None:
        norms_and_feed_forward(block)
        f16(f"{block}attn_q", query)
        f16(f"{block}attn_k", key)
        f16(f"{block}attn_v", value)
        f16(f"{block}attn_output", output)
        f32(f"{block}attn_q_norm.weight", np.ones(HEAD))
        f32(f"{block}attn_k_norm.weight", np.ones(HEAD))

    embeddings = np.zeros((count, WIDTH))
    embeddings[np.arange(count), np.arange(count)] = 1
    embeddings[:, CONST] = 1
    f16("token_embd", embeddings)
    f32("output_norm.weight", np.ones(WIDTH))
    f16("output", table)

    # Layer 0 keeps a recurrent state as real models do; its output is projected to zero.
    norms_and_feed_forward("blk.0.")
    f16("blk.0.attn_qkv", noise(128 * 3, WIDTH))
    f16("blk.0.attn_gate", noise(128, WIDTH))
    f32("blk.0.ssm_conv1d.weight", noise(128 * 3, 4))
    f32("blk.0.ssm_dt.bias", np.zeros(1))
    f32("blk.0.ssm_a", -np.ones(1))
    f16("blk.0.ssm_beta", noise(1, WIDTH))
    f16("blk.0.ssm_alpha", noise(1, WIDTH))
    f32("blk.0.ssm_norm.weight", np.ones(128))
    f16("blk.0.ssm_out", np.zeros((WIDTH, 128)))

    # Layer 1: every position looks at the image tokens only; dimension 100 is one that RoPE does not rotate.
    query, key = np.zeros((HEADS * HEAD * 2, WIDTH)), np.zeros((KV_HEADS * HEAD, WIDTH))
    query[[100, 2 * HEAD + 100], CONST] = 1
    key[100, IMAGE], key[100, CONST] = 1, -1
    value, output = np.zeros((KV_HEADS * HEAD, WIDTH)), np.zeros((WIDTH, HEADS * HEAD))
    for n in range(len(COLOURS)):
        value[n, COLOUR + n], output[READ_COLOUR + n, n] = 1, 0.125
    value[len(COLOURS), IMAGE], output[READ_IMAGE, len(COLOURS)] = 1, 0.125
    attention("blk.1.", query, key, value, output)

    if heads:
        attention(
            "blk.2.",
            noise(HEADS * HEAD * 2, WIDTH),
            noise(KV_HEADS * HEAD, WIDTH),
            noise(KV_HEADS * HEAD, WIDTH),
            np.zeros((WIDTH, HEADS * HEAD)),
        )
        f16("blk.2.nextn.eh_proj", np.eye(WIDTH, 2 * WIDTH))
        f32("blk.2.nextn.enorm.weight", np.ones(WIDTH))
        f32("blk.2.nextn.hnorm.weight", np.ones(WIDTH))
        f32("blk.2.nextn.shared_head_norm.weight", np.ones(WIDTH))
        f16("blk.2.nextn.shared_head_head", draft)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Makes the two files in the folder named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m controlpanel.demo.tiny_model", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    files = make_all(parser.parse_args().folder)
    for path in (files.text, files.projector):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
