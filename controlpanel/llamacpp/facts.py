"""What the command rules need to know of a model file and of the host."""

from __future__ import annotations

from dataclasses import dataclass

from controlpanel.llamacpp.gguf import Model
from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.gguf_mtp import read_mtp
from controlpanel.llamacpp.memory_layers import Geometry, read_geometry

_MAX_TEXT = 200
_FLOAT = 4


@dataclass(frozen=True)
class ModelFacts:
    """Facts of one model; None means unknown, and a rule about an unknown fact stays silent.

    `projector` is the projector type of an mmproj file, `projector_width` the width of its output. `gqa` is
    the number of heads per KV head. `rope_scaling` is the kind of scaling stored in the file, beyond
    `original_context` tokens. `expert_count` is 0 for a dense model. `pooling` is llama.cpp's number for how
    a model makes one vector of a text, 0 for none. `sidecar`: MTP heads without their model. `state_size`
    counts the bytes of recurrent state of one conversation, 0 for none.
    """

    architecture: str | None = None
    context_length: int | None = None
    mtp_heads: int | None = None
    embedding_length: int | None = None
    projector: str | None = None
    projector_width: int | None = None
    name: str | None = None
    gqa: int | None = None
    rope_freq_base: float | None = None
    rope_scaling: str | None = None
    original_context: int | None = None
    expert_count: int | None = None
    pooling: int | None = None
    sidecar: bool | None = None
    state_size: int | None = None

    @property
    def is_projector(self) -> bool:
        """Tell whether the file belongs into the mmproj field."""
        return self.architecture == "clip"


@dataclass(frozen=True)
class HostFacts:
    """Facts of the host that is to run a server; None means unknown. `gpus` counts those a server may use."""

    memory_mib: int | None = None
    cores: int | None = None
    gpus: int | None = None


def facts_of(model: Model) -> ModelFacts:
    """Return the facts of a model that was examined."""
    header = model.header
    projector = header.projector
    if projector:
        return ModelFacts(
            architecture=header.architecture,
            embedding_length=header.embedding_length,
            projector=projector.type,
            projector_width=projector.width,
            name=_name(header),
        )
    geometry = read_geometry(header)
    scaling = header.text(header.arch_key("rope.scaling.type"))
    return ModelFacts(
        architecture=header.architecture,
        context_length=header.context_length,
        mtp_heads=model.mtp_heads,
        embedding_length=header.embedding_length,
        name=_name(header),
        gqa=geometry.gqa if geometry else None,
        rope_freq_base=header.rope_freq_base,
        rope_scaling=scaling[:_MAX_TEXT] if scaling and scaling != "none" else None,
        original_context=header.number(header.arch_key("rope.scaling.original_context_length")),
        expert_count=_experts(header),
        pooling=header.number(header.arch_key("pooling_type")),
        sidecar=_sidecar(model),
        state_size=_state_size(geometry) if geometry else None,
    )


def _name(header: GgufHeader) -> str | None:
    name = header.name or header.text("general.basename")
    return name[:_MAX_TEXT] if name else None


def _experts(header: GgufHeader) -> int | None:
    """Return the experts; a file that has its layers but not this key is dense."""
    count = header.number(header.arch_key("expert_count"))
    return 0 if count is None and header.block_count else count


def _sidecar(model: Model) -> bool | None:
    whole = not model.missing and len(model.parts) == max(1, model.header.split_count)
    return read_mtp(model.parts, whole).separate if whole else None


def _state_size(geometry: Geometry) -> int | None:
    if geometry.trunk is None:
        return None
    size = sum(layer.state for layer in geometry.trunk) * _FLOAT
    return None if geometry.recurrent and not size else size
