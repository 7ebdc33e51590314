"""What the headers of a model's parts say, as plain values for a page, a row or JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controlpanel.llamacpp.gguf_forks import type_label
from controlpanel.llamacpp.gguf_header import GgufHeader, Scalar
from controlpanel.llamacpp.gguf_mtp import Mtp, read_mtp
from controlpanel.llamacpp.gguf_template import Template, read_template
from controlpanel.llamacpp.projectors import ProjectorFacts, read_projector

_SAMPLING = "general.sampling."
_MAX_HINTS = 32
_MAX_TEXT = 200
_TYPES = {"imatrix": "imatrix", "adapter": "adapter", "controlvector": "control vector"}


@dataclass(frozen=True)
class TypeShare:
    """One tensor type of the file: how many tensors, their bytes (None: unknown), and share of all bytes."""

    type: int
    name: str
    tensors: int
    size: int | None
    share: float | None


@dataclass(frozen=True)
class Rope:
    """How positions are encoded: base frequency, and a scaling beyond the original context (tokens)."""

    freq_base: float | None
    scaling: str | None
    factor: float | None
    original_context: int | None


@dataclass(frozen=True)
class GgufFacts:
    """The facts of one logical model, of all its parts that were read.

    `content` is model, mtp heads, projector, vocabulary, adapter, imatrix, control vector, or empty.
    `layers` counts MTP layers, `trunk_layers` does not. Heads are one number, or one per layer. None is
    unknown, or not said by the file. `whole` is false while a part was not read.
    """

    content: str
    whole: bool
    architecture: str | None
    name: str | None
    basename: str | None
    size_label: str | None
    quant: str | None
    parameters: int
    bits_per_weight: float | None
    layers: int | None
    trunk_layers: int | None
    embedding_length: int | None
    heads: int | tuple[int, ...] | None
    heads_kv: int | tuple[int, ...] | None
    experts: int | None
    experts_used: int | None
    context_length: int | None
    rope: Rope
    tokenizer: str | None
    pre_tokenizer: str | None
    vocabulary: int | None
    template: Template
    sampling: dict[str, Scalar]
    types: tuple[TypeShare, ...]
    mtp: Mtp
    projector: ProjectorFacts | None
    tensors: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dataclasses.asdict(self)


def read_facts(parts: Sequence[GgufHeader], whole: bool = True) -> GgufFacts:
    """Return the facts of a model; the first part is the one with the metadata."""
    header = parts[0]
    number = header.number
    parameters = sum(part.parameters for part in parts)
    types = _types(parts)
    size = sum(item.size or 0 for item in types)
    mtp = read_mtp(parts, whole)
    layers = header.block_count
    return GgufFacts(
        content=_content(header, mtp, sum(len(part.tensors) for part in parts)),
        whole=whole,
        architecture=header.architecture,
        name=_short(header.name),
        basename=_short(header.text("general.basename")),
        size_label=_short(header.text("general.size_label")),
        quant=header.quant,
        parameters=parameters,
        bits_per_weight=round(size * 8 / parameters, 2) if parameters and _sized(types) else None,
        layers=layers,
        trunk_layers=None if layers is None else max(0, layers - mtp.announced),
        embedding_length=header.embedding_length,
        heads=header.head_count,
        heads_kv=header.head_count_kv,
        experts=number(header.arch_key("expert_count")),
        experts_used=number(header.arch_key("expert_used_count")),
        context_length=header.context_length,
        rope=_rope(header),
        tokenizer=_short(header.tokenizer_model),
        pre_tokenizer=_short(header.text("tokenizer.ggml.pre")),
        vocabulary=header.vocabulary,
        template=read_template(header),
        sampling=_sampling(header),
        types=types,
        mtp=mtp,
        projector=read_projector(header),
        tensors=sum(len(part.tensors) for part in parts),
    )


def _content(header: GgufHeader, mtp: Mtp, tensors: int) -> str:
    if header.kind == "mmproj":
        return "projector"
    if header.kind in _TYPES:
        return _TYPES[header.kind]
    if not tensors:
        return "vocabulary" if header.vocabulary else "empty"
    return "mtp heads" if mtp.separate else "model"


def _types(parts: Sequence[GgufHeader]) -> tuple[TypeShare, ...]:
    """Return the tensor types, that with most bytes first; those of unknown size last."""
    counts: dict[int, int] = {}
    sizes: dict[int, int | None] = {}
    for tensor in (tensor for part in parts for tensor in part.tensors):
        counts[tensor.type] = counts.get(tensor.type, 0) + 1
        known = sizes.get(tensor.type, 0)
        sizes[tensor.type] = None if tensor.size is None or known is None else known + tensor.size
    total = sum(size or 0 for size in sizes.values())
    sure = total > 0 and None not in sizes.values()
    shares = [
        TypeShare(kind, type_label(kind), counts[kind], size, round((size or 0) / total, 4) if sure else None)
        for kind, size in sizes.items()
    ]
    return tuple(sorted(shares, key=lambda share: (share.size is None, -(share.size or 0), share.type)))


def _sized(types: tuple[TypeShare, ...]) -> bool:
    return all(share.size is not None for share in types)


def _rope(header: GgufHeader) -> Rope:
    def key(name: str) -> str:
        return header.arch_key(f"rope.{name}")

    # Older files have the factor without a kind.
    factor = header.metadata.get(key("scaling.factor"), header.metadata.get(key("scale_linear")))
    return Rope(
        freq_base=header.rope_freq_base,
        scaling=_short(header.text(key("scaling.type"))),
        factor=float(f"{factor:.7g}") if isinstance(factor, float) else None,
        original_context=header.number(key("scaling.original_context_length")),
    )


def _sampling(header: GgufHeader) -> dict[str, Scalar]:
    """Return the maker's advice for sampling, such as {"temp": 0.6, "top_k": 20}."""
    hints: dict[str, Scalar] = {}
    for key, value in header.metadata.items():
        if not key.startswith(_SAMPLING) or isinstance(value, tuple) or len(hints) == _MAX_HINTS:
            continue
        # The file holds 32 bits: 0.949999988079071 was written as 0.95.
        value = float(f"{value:.7g}") if isinstance(value, float) else value
        hints[key.removeprefix(_SAMPLING)] = value[:_MAX_TEXT] if isinstance(value, str) else value
    return hints


def _short(text: str | None) -> str | None:
    return None if text is None else text[:_MAX_TEXT]
