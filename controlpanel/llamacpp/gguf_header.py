"""The facts of a GGUF header: plain values, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from controlpanel.llamacpp.gguf_types import FILE_TYPE_GUESSED, FILE_TYPES, TENSOR_TYPES

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]

MAX_LAYERS = 65_536

_MAX_NUMBER = 1 << 53

# Old LLaVA-like projectors store the width of CLIP there, not that of the text model.
_OTHER_WIDTH = frozenset({"", "mlp", "mlp_norm", "ldp", "ldpv2", "resampler", "adapter"})


class Tensor(NamedTuple):
    """One tensor: `offset` is relative to the start of the data, `size` in bytes (None: unknown type)."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int
    size: int | None

    @property
    def elements(self) -> int:
        """Return the number of values."""
        return math.prod(self.shape)

    @property
    def type_name(self) -> str:
        """Return the name of the tensor type, or its number when no name is certain."""
        known = TENSOR_TYPES.get(self.type)
        return known.name if known else f"type {self.type}"


@dataclass(frozen=True)
class Projector:
    """The facts of an mmproj file; `width` is the size of the vectors handed to the text model."""

    type: str
    vision: bool
    audio: bool
    width: int | None


@dataclass(frozen=True)
class GgufHeader:
    """Everything the panel knows from the header of one file; sizes and offsets in bytes."""

    version: int
    file_size: int
    data_start: int
    alignment: int
    metadata: Mapping[str, Value]
    lengths: Mapping[str, int]
    """Length of each array, and of each text too long to be kept."""
    tensors: tuple[Tensor, ...]

    def text(self, key: str) -> str | None:
        """Return a text of the metadata, None when absent or of another type."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        """Return a whole number of plausible size, None when absent or anything else."""
        value = self.metadata.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_NUMBER:
            return None
        return value

    def numbers(self, key: str) -> int | tuple[int, ...] | None:
        """Return a whole number, or one per layer."""
        value = self.metadata.get(key)
        if isinstance(value, tuple):
            whole = tuple(item for item in value if isinstance(item, int) and 0 <= item < _MAX_NUMBER)
            return whole if len(whole) == len(value) else None
        return self.number(key)

    def arch_key(self, key: str) -> str:
        """Return `key` with the architecture in front."""
        return f"{self.architecture}.{key}"

    @property
    def architecture(self) -> str | None:
        """Return general.architecture, such as qwen35 or clip."""
        return self.text("general.architecture")

    @property
    def name(self) -> str | None:
        """Return the model's own name."""
        return self.text("general.name")

    @property
    def kind(self) -> str:
        """Return model, mmproj, adapter or whatever general.type says."""
        if self.architecture == "clip":
            return "mmproj"
        return self.text("general.type") or "model"

    @property
    def quant_version(self) -> int | None:
        """Return general.quantization_version."""
        return self.number("general.quantization_version")

    @property
    def context_length(self) -> int | None:
        """Return the native context size in tokens."""
        return self.number(self.arch_key("context_length"))

    @property
    def block_count(self) -> int | None:
        """Return the number of layers, MTP layers included."""
        return self.number(self.arch_key("block_count"))

    @property
    def embedding_length(self) -> int | None:
        """Return the width of the text model's vectors."""
        return self.number(self.arch_key("embedding_length"))

    @property
    def head_count(self) -> int | tuple[int, ...] | None:
        """Return the attention heads, for all layers or per layer."""
        return self.numbers(self.arch_key("attention.head_count"))

    @property
    def head_count_kv(self) -> int | tuple[int, ...] | None:
        """Return the heads that the KV cache stores, for all layers or per layer."""
        return self.numbers(self.arch_key("attention.head_count_kv"))

    @property
    def key_length(self) -> int | None:
        """Return the width of one K head."""
        return self.number(self.arch_key("attention.key_length"))

    @property
    def value_length(self) -> int | None:
        """Return the width of one V head."""
        return self.number(self.arch_key("attention.value_length"))

    @property
    def vocabulary(self) -> int | None:
        """Return the number of tokens."""
        return self.lengths.get("tokenizer.ggml.tokens") or self.number(self.arch_key("vocab_size"))

    @property
    def nextn_layers(self) -> int:
        """Return the number of MTP layers that the metadata announce."""
        announced = self.number(self.arch_key("nextn_predict_layers")) or 0
        return min(announced, MAX_LAYERS)

    @property
    def mtp_tensor(self) -> str:
        """Return the name of the tensor without which no build finds the MTP heads."""
        return f"blk.{(self.block_count or 0) - 1}.nextn.eh_proj.weight"

    @property
    def mtp_heads(self) -> int:
        """Return the MTP heads that a build can use: announced, and their tensor in this file."""
        return self.nextn_layers if self.mtp_tensor in self.tensor_names else 0

    @property
    def mtp_only(self) -> bool:
        """Tell whether the file holds MTP heads without the model they belong to."""
        return self.mtp_heads > 0 and "blk.0.attn_norm.weight" not in self.tensor_names

    @property
    def rope_freq_base(self) -> float | None:
        """Return the RoPE base frequency of the model."""
        value = self.metadata.get(self.arch_key("rope.freq_base"))
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    @property
    def split_no(self) -> int:
        """Return the number of this part, from 0."""
        return self.number("split.no") or 0

    @property
    def split_count(self) -> int:
        """Return the number of parts, 1 for a single file."""
        return max(1, self.number("split.count") or 1)

    @property
    def has_chat_template(self) -> bool:
        """Tell whether a chat template is stored in the file."""
        key = "tokenizer.chat_template"
        return key in self.metadata or key in self.lengths

    @property
    def tokenizer_model(self) -> str | None:
        """Return the kind of tokenizer."""
        return self.text("tokenizer.ggml.model")

    @property
    def projector(self) -> Projector | None:
        """Return the facts of an mmproj file, None for any other file."""
        if self.architecture != "clip":
            return None
        keys = ("clip.projector_type", "clip.vision.projector_type", "clip.audio.projector_type")
        kind = next((text for key in keys if (text := self.text(key))), "")
        width = self.number("clip.vision.projection_dim") or self.number("clip.audio.projection_dim")
        return Projector(
            type=kind,
            vision=self.metadata.get("clip.has_vision_encoder") is True,
            audio=self.metadata.get("clip.has_audio_encoder") is True,
            width=None if kind in _OTHER_WIDTH else width,
        )

    @cached_property
    def tensor_names(self) -> frozenset[str]:
        """Return the names of all tensors."""
        return frozenset(tensor.name for tensor in self.tensors)

    @cached_property
    def parameters(self) -> int:
        """Return the number of values in all tensors."""
        return sum(tensor.elements for tensor in self.tensors)

    @cached_property
    def bytes_by_type(self) -> dict[str, int]:
        """Return the bytes of data per tensor type; types of unknown size count 0."""
        sums: dict[str, int] = {}
        for tensor in self.tensors:
            sums[tensor.type_name] = sums.get(tensor.type_name, 0) + (tensor.size or 0)
        return sums

    @property
    def quant(self) -> str | None:
        """Return the label of the file such as Q4_K_M, or the tensor type with most bytes."""
        stored = self.number("general.file_type")
        label = FILE_TYPES.get(stored & ~FILE_TYPE_GUESSED) if stored is not None else None
        if label is None and self.bytes_by_type:
            return max(self.bytes_by_type.items(), key=lambda item: item[1])[0]
        return label

    @property
    def unknown_types(self) -> tuple[int, ...]:
        """Return the tensor types whose meaning differs between forks."""
        return tuple(sorted({tensor.type for tensor in self.tensors if tensor.size is None}))

    @cached_property
    def data_end(self) -> int:
        """Return the file size at which all known tensors are complete."""
        ends = (self.data_start + tensor.offset + (tensor.size or 0) for tensor in self.tensors)
        return max(ends, default=0)

    @property
    def missing_bytes(self) -> int:
        """Return how many bytes the file is short of its last tensor's end."""
        return max(0, self.data_end - self.file_size)
