"""Headers of models whose recorded logs tell what they took, and of one that no test could load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from controlpanel.llamacpp.gguf_header import GgufHeader, Tensor, Value
from controlpanel.llamacpp.gguf_types import TENSOR_TYPES

LOGS = Path(__file__).parent.parent / "data" / "memory"
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8

Shapes = Iterator[tuple[str, tuple[int, ...], int]]


def make_header(
    architecture: str, keys: Mapping[str, Value], shapes: Shapes | None = None, vocabulary: int = 0
) -> GgufHeader:
    """A header with the architecture's keys and tensors; the data exist only in its sizes."""
    tensors, offset = [], 0
    for name, shape, kind in shapes or ():
        size = math.prod(shape) // TENSOR_TYPES[kind].block * TENSOR_TYPES[kind].size
        tensors.append(Tensor(name, shape, kind, offset, size))
        offset += size
    metadata: dict[str, Value] = {"general.architecture": architecture}
    metadata |= {
        key if "." in key and key.startswith("general") else f"{architecture}.{key}": value
        for key, value in keys.items()
    }
    lengths = {"tokenizer.ggml.tokens": vocabulary} if vocabulary else {}
    return GgufHeader(3, offset, 0, 32, metadata, lengths, tuple(tensors))


def qwen_shapes(keys: Mapping[str, Value], vocabulary: int, kind: int, heads: bool) -> Shapes:
    """The tensors of a qwen35 model: matrices of a type, everything else F32."""

    def get(key: str) -> int:
        value = keys[key]
        assert isinstance(value, int)
        return value

    width, feed, head = get("embedding_length"), get("feed_forward_length"), get("attention.key_length")
    query, kv = get("attention.head_count") * head, get("attention.head_count_kv") * head
    inner, state, rank = get("ssm.inner_size"), get("ssm.state_size"), get("ssm.time_step_rank")
    mixed = inner + 2 * get("ssm.group_count") * state
    count = get("block_count")
    trunk = count - 1 if heads else count
    yield "token_embd.weight", (width, vocabulary), kind
    yield "output_norm.weight", (width,), F32
    yield "output.weight", (width, vocabulary), kind
    for index in range(count):
        block = f"blk.{index}."
        yield f"{block}attn_norm.weight", (width,), F32
        yield f"{block}post_attention_norm.weight", (width,), F32
        for name in ("ffn_gate", "ffn_up"):
            yield f"{block}{name}.weight", (width, feed), kind
        yield f"{block}ffn_down.weight", (feed, width), kind
        if index < trunk and (index + 1) % get("full_attention_interval"):
            yield f"{block}attn_qkv.weight", (width, mixed), kind
            yield f"{block}attn_gate.weight", (width, inner), kind
            yield f"{block}ssm_conv1d.weight", (get("ssm.conv_kernel"), mixed), F32
            yield f"{block}ssm_dt.bias", (rank,), F32
            yield f"{block}ssm_a", (rank,), F32
            yield f"{block}ssm_beta.weight", (width, rank), kind
            yield f"{block}ssm_alpha.weight", (width, rank), kind
            yield f"{block}ssm_norm.weight", (state,), F32
            yield f"{block}ssm_out.weight", (inner, width), kind
            continue
        yield f"{block}attn_q.weight", (width, 2 * query), kind
        yield f"{block}attn_k.weight", (width, kv), kind
        yield f"{block}attn_v.weight", (width, kv), kind
        yield f"{block}attn_output.weight", (query, width), kind
        yield f"{block}attn_q_norm.weight", (head,), F32
        yield f"{block}attn_k_norm.weight", (head,), F32
        if index >= trunk:
            yield f"{block}nextn.eh_proj.weight", (2 * width, width), kind
            for name in ("enorm", "hnorm", "shared_head_norm"):
                yield f"{block}nextn.{name}.weight", (width,), F32


def small_qwen(heads: bool) -> GgufHeader:
    """The model of the upstream logs: eight layers, two of them full attention, F32."""
    keys: dict[str, Value] = {
        "block_count": 9 if heads else 8,
        "context_length": 4096,
        "embedding_length": 256,
        "feed_forward_length": 512,
        "attention.head_count": 6,
        "attention.head_count_kv": 1,
        "attention.key_length": 64,
        "attention.value_length": 64,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 256,
        "ssm.state_size": 64,
        "ssm.time_step_rank": 4,
        "ssm.group_count": 2,
        "full_attention_interval": 4,
    }
    if heads:
        keys["nextn_predict_layers"] = 1
    return make_header("qwen35", keys, qwen_shapes(keys, 512, F32, heads), 512)


def big_qwen(kind: int = Q8_0) -> GgufHeader:
    """A model of 27 billion values with MTP heads."""
    keys: dict[str, Value] = {
        "block_count": 65,
        "nextn_predict_layers": 1,
        "context_length": 262_144,
        "embedding_length": 5120,
        "feed_forward_length": 17_408,
        "attention.head_count": 24,
        "attention.head_count_kv": 4,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 6144,
        "ssm.state_size": 128,
        "ssm.time_step_rank": 48,
        "ssm.group_count": 16,
        "full_attention_interval": 4,
    }
    return make_header("qwen35", keys, qwen_shapes(keys, 248_320, kind, True), 248_320)


def smol() -> GgufHeader:
    """SmolLM2 135M: plain attention, the input table serves as output."""

    def shapes() -> Shapes:
        yield "token_embd.weight", (576, 49_152), Q8_0
        yield "output_norm.weight", (576,), F32
        for index in range(30):
            for name in ("attn_norm", "ffn_norm"):
                yield f"blk.{index}.{name}.weight", (576,), F32
            for name, width in (("attn_q", 576), ("attn_output", 576), ("attn_k", 192), ("attn_v", 192)):
                yield f"blk.{index}.{name}.weight", (576, width), Q4_1
            for name in ("ffn_gate", "ffn_up"):
                yield f"blk.{index}.{name}.weight", (576, 1536), Q4_1
            yield f"blk.{index}.ffn_down.weight", (1536, 576), Q4_1

    keys: dict[str, Value] = {
        "block_count": 30,
        "context_length": 8192,
        "embedding_length": 576,
        "feed_forward_length": 1536,
        "attention.head_count": 9,
        "attention.head_count_kv": 3,
    }
    return make_header("llama", keys, shapes(), 49_152)
