"""One pass over the bytes of a GGUF header, with bounded time and memory."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import BinaryIO

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.gguf_cursor import (
    MAX_ARRAY_LENGTH,
    MAX_DIMENSIONS,
    MAX_ELEMENTS,
    MAX_KEY_BYTES,
    MAX_KEYS,
    MAX_NAME_BYTES,
    MAX_STRING_BYTES,
    MAX_STRINGS,
    MAX_TENSORS,
    Cursor,
)
from controlpanel.llamacpp.gguf_errors import GgufError, corrupt, limit, not_gguf, printable
from controlpanel.llamacpp.gguf_header import GgufHeader, Scalar, Tensor, Value
from controlpanel.llamacpp.gguf_types import ARRAY, BOOL, SCALARS, STRING, TENSOR_TYPES

# What is kept in memory: longer values are known by their length only.
KEPT_TEXT_BYTES = 4_096
KEPT_TEMPLATE_BYTES = 131_072
KEPT_ARRAY_LENGTH = 1_024
KEPT_TOTAL = 262_144

_FORMS = {kind: struct.Struct(form) for kind, form in SCALARS.items()}


def parse_header(stream: BinaryIO, size: int) -> GgufHeader:
    """Read the header from a seekable stream at its start; `size` is the full file size in bytes."""
    cursor = Cursor(stream, size)
    version = _read_version(cursor)
    tensor_count = _count(cursor, "tensor_count", MAX_TENSORS, 24)
    key_count = _count(cursor, "kv_count", MAX_KEYS, 13)
    metadata, lengths = _read_metadata(cursor, key_count)
    tensors = tuple(_read_tensors(cursor, tensor_count))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise corrupt(N_("The header is damaged: %(value)s is not a valid alignment."), value=alignment)
    data_start = -(-cursor.position // alignment) * alignment
    return GgufHeader(version, size, data_start, alignment, metadata, lengths, tensors)


def _read_version(cursor: Cursor) -> int:
    head = cursor.peek(min(64, cursor.size))
    if head[:4] != b"GGUF":
        raise not_gguf(head)
    cursor.skip(4)
    version = cursor.u32()
    if version in (2, 3):
        return version
    if version & 0xFFFF == 0:
        text = N_("This GGUF file is big-endian: llama.cpp on this machine cannot read it.")
        raise GgufError("big_endian", Message(text))
    if version == 1:
        text = N_("This is a GGUF file of version 1, which llama.cpp no longer reads: find a newer file.")
        raise GgufError("version", Message(text))
    text = N_("This GGUF file has version %(version)s; the panel reads versions 2 and 3.")
    raise GgufError("version", Message(text, {"version": version}))


def _count(cursor: Cursor, what: str, bound: int, least: int) -> int:
    """Read a count of things of at least `least` bytes each."""
    count = cursor.u64()
    if count > bound:
        raise limit(what, count, bound)
    cursor.require(count * least)
    return count


def _read_metadata(cursor: Cursor, count: int) -> tuple[dict[str, Value], dict[str, int]]:
    metadata: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    budget = KEPT_TOTAL
    strings = 0
    for _ in range(count):
        key = cursor.text("key", MAX_KEY_BYTES)
        if key in metadata or key in lengths:
            raise corrupt(N_("The header is damaged: the key %(key)s is there twice."), key=key)
        kind = cursor.u32()
        if kind == STRING:
            length = cursor.u64()
            if length > MAX_STRING_BYTES:
                raise limit("string length", length, MAX_STRING_BYTES)
            kept = KEPT_TEMPLATE_BYTES if key == "tokenizer.chat_template" else KEPT_TEXT_BYTES
            if length <= min(kept, budget):
                metadata[key] = printable(cursor.take(length))
                budget -= length
            else:
                cursor.skip(length)
                lengths[key] = length
        elif kind == ARRAY:
            item, length = cursor.u32(), cursor.u64()
            if length > MAX_ARRAY_LENGTH:
                raise limit("array length", length, MAX_ARRAY_LENGTH)
            lengths[key] = length
            if item == STRING:
                strings += length
                if strings > MAX_STRINGS:
                    raise limit("strings in arrays", strings, MAX_STRINGS)
                cursor.skip_strings(length)
            elif length <= min(KEPT_ARRAY_LENGTH, budget):
                metadata[key] = tuple(_scalar(cursor, item, key) for _ in range(length))
                budget -= length
            else:
                cursor.skip(length * _form(item, key).size)
        else:
            metadata[key] = _scalar(cursor, kind, key)
    return metadata, lengths


def _form(kind: int, key: str) -> struct.Struct:
    form = _FORMS.get(kind)
    if form is None:
        text = N_("The header is damaged: the key %(key)s has the unknown value type %(kind)s.")
        raise corrupt(text, key=key, kind=kind)
    return form


def _scalar(cursor: Cursor, kind: int, key: str) -> Scalar:
    value = cursor.unpack(_form(kind, key))
    if kind == BOOL:
        return bool(value)
    # JSON columns refuse NaN and infinity.
    return value if math.isfinite(value) else str(value)


def _read_tensors(cursor: Cursor, count: int) -> Iterator[Tensor]:
    names: set[str] = set()
    for _ in range(count):
        name = cursor.text("tensor name", MAX_NAME_BYTES)
        if name in names:
            raise corrupt(N_("The header is damaged: the tensor %(name)s is there twice."), name=name)
        names.add(name)
        dimensions = cursor.u32()
        if dimensions > MAX_DIMENSIONS:
            raise limit("n_dims", dimensions, MAX_DIMENSIONS)
        shape = tuple(cursor.u64() for _ in range(dimensions))
        elements = math.prod(shape)
        if elements > MAX_ELEMENTS:
            raise limit("tensor elements", elements, MAX_ELEMENTS)
        kind, offset = cursor.u32(), cursor.u64()
        if offset > MAX_ELEMENTS:
            raise limit("tensor offset", offset, MAX_ELEMENTS)
        yield Tensor(name, shape, kind, offset, _tensor_size(name, shape, elements, kind))


def _tensor_size(name: str, shape: tuple[int, ...], elements: int, kind: int) -> int | None:
    known = TENSOR_TYPES.get(kind)
    if known is None:
        return None
    if shape and shape[0] % known.block:
        text = N_("The header is damaged: the rows of tensor %(name)s do not fit its type %(type)s.")
        raise corrupt(text, name=name, type=known.name)
    return elements // known.block * known.size
