"""Projectors (mmproj files): what they turn into vectors, for which family of models, how wide."""

from __future__ import annotations

from dataclasses import dataclass

from controlpanel.llamacpp.gguf_header import GgufHeader

# The kinds whose names do not say the family of models.
FAMILIES: dict[str, str] = {
    "mlp": "LLaVA",
    "mlp_norm": "LLaVA",
    "ldp": "MobileVLM",
    "ldpv2": "MobileVLM V2",
    "resampler": "MiniCPM-V",
    "adapter": "GLM-Edge-V",
    "qwen2vl_merger": "Qwen2-VL",
    "qwen2.5vl_merger": "Qwen2.5-VL",
    "qwen3vl_merger": "Qwen3-VL, Qwen3.5, Qwen3.6",
    "qwen2a": "Qwen2-Audio",
    "qwen2.5o": "Qwen2.5-Omni",
    "qwen3a": "Qwen3-Omni",
    "gemma3": "Gemma 3",
    "gemma3nv": "Gemma 3n",
    "gemma3na": "Gemma 3n",
    "gemma4v": "Gemma 4",
    "gemma4a": "Gemma 4",
    "idefics3": "SmolVLM, Idefics 3",
    "pixtral": "Pixtral, Mistral Small",
    "internvl": "InternVL",
    "llama4": "Llama 4",
    "lfm2": "LFM2-VL",
    "lfm2a": "LFM2-Audio",
    "kimivl": "Kimi-VL",
    "kimik25": "Kimi K2.5",
    "glm4v": "GLM-4V",
    "glma": "GLM-ASR",
    "phi4": "Phi-4 multimodal",
    "step3vl": "Step3-VL",
}

# The architectures of the text models that a kind was made for, as far as they are sure.
_ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "qwen2vl_merger": ("qwen2vl",),
    "qwen2.5vl_merger": ("qwen2vl",),
    "qwen3vl_merger": ("qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next", "qwen4"),
    "gemma3": ("gemma3",),
    "gemma3nv": ("gemma3n",),
    "gemma4v": ("gemma4",),
    "llama4": ("llama4",),
    "lfm2": ("lfm2",),
    "glm4v": ("glm4",),
}


@dataclass(frozen=True)
class ProjectorFacts:
    """The facts of an mmproj file; `width` is that of the vectors for the text model, images in pixels."""

    type: str
    family: str
    vision: bool
    audio: bool
    width: int | None
    image_size: int | None
    patch_size: int | None


def read_projector(header: GgufHeader) -> ProjectorFacts | None:
    """Return the facts of a projector, None for any other file."""
    found = header.projector
    if found is None:
        return None
    return ProjectorFacts(
        type=found.type[:100],
        family=FAMILIES.get(found.type, found.type[:100]),
        vision=found.vision,
        audio=found.audio,
        width=found.width,
        image_size=header.number("clip.vision.image_size"),
        patch_size=header.number("clip.vision.patch_size"),
    )


def made_for(projector: str, architecture: str) -> bool | None:
    """Tell whether a kind of projector was made for an architecture; None when nothing is sure."""
    known = _ARCHITECTURES.get(projector)
    return architecture.startswith(known) if known else None
