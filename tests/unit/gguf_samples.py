"""A small GGUF writer that can also write what no honest program writes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10
TYPE_F32, TYPE_F16, TYPE_Q8_0 = 0, 1, 8

Key = tuple[str, int, bytes]
TensorRow = tuple[str, Sequence[int], int, int]


def text(value: str | bytes) -> bytes:
    """Return a GGUF string."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def string(key: str, value: str | bytes) -> Key:
    """Return a key with a string value."""
    return key, STRING, text(value)


def u32(key: str, value: int) -> Key:
    """Return a key with an unsigned 32-bit value."""
    return key, U32, struct.pack("<I", value)


def boolean(key: str, value: bool) -> Key:
    """Return a key with a truth value."""
    return key, BOOL, bytes([value])


def f32(key: str, value: float) -> Key:
    """Return a key with a 32-bit float."""
    return key, F32, struct.pack("<f", value)


def array(key: str, item: int, count: int, payload: bytes) -> Key:
    """Return a key with an array that claims `count` items."""
    return key, ARRAY, struct.pack("<IQ", item, count) + payload


def build(
    keys: Sequence[Key] = (),
    tensors: Sequence[TensorRow] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
    order: str = "<",
    alignment: int = 32,
) -> bytes:
    """Return the bytes of a file; the counts may lie."""
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(keys) if key_count is None else key_count,
    )
    out = bytearray(b"GGUF" + struct.pack(order + "IQQ", version, *counts))
    for key, kind, payload in keys:
        out += text(key) + struct.pack("<I", kind) + payload
    for name, shape, kind, offset in tensors:
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        out += struct.pack("<IQ", kind, offset)
    out += bytes(-len(out) % alignment)
    return bytes(out) + data


def mtp_model(heads: int = 1, tensor: bool = True, parts: tuple[int, int] = (0, 1)) -> bytes:
    """Return a tiny qwen35 file; `heads` is what the metadata say, `tensor` whether the head is there."""
    keys = [
        string("general.architecture", "qwen35"),
        string("general.name", "Tiny"),
        u32("general.file_type", 7),
        u32("qwen35.context_length", 4096),
        u32("qwen35.embedding_length", 32),
        u32("qwen35.block_count", 3),
        u32("qwen35.attention.head_count", 2),
    ]
    if heads:
        keys.append(u32("qwen35.nextn_predict_layers", heads))
    if parts[1] > 1:
        keys += [u32("split.no", parts[0]), u32("split.count", parts[1])]
    tensors: list[TensorRow] = [("blk.0.attn_norm.weight", [32], TYPE_F32, 0)]
    if tensor:
        tensors.append(("blk.2.nextn.eh_proj.weight", [64, 32], TYPE_Q8_0, 128))
    size = 128 + (64 * 32 // 32 * 34 if tensor else 0)
    return build(keys, tensors, bytes(size))


def projector(width: int = 32, kind: str = "qwen3vl_merger") -> bytes:
    """Return a tiny mmproj file."""
    keys = [
        string("general.architecture", "clip"),
        string("general.type", "mmproj"),
        boolean("clip.has_vision_encoder", True),
        string("clip.projector_type", kind),
        u32("clip.vision.projection_dim", width),
    ]
    return build(keys, [("mm.0.weight", [4, 4], TYPE_F16, 0)], bytes(32))
