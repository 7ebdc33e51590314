"""What the command rules need to know of a model file."""

from __future__ import annotations

from dataclasses import dataclass

from controlpanel.llamacpp.gguf import Model


@dataclass(frozen=True)
class ModelFacts:
    """Facts of one model; None means unknown, and a rule about an unknown fact stays silent.

    `projector` is the projector type of an mmproj file, `projector_width` the width of its output.
    """

    architecture: str | None = None
    context_length: int | None = None
    mtp_heads: int | None = None
    embedding_length: int | None = None
    projector: str | None = None
    projector_width: int | None = None

    @property
    def is_projector(self) -> bool:
        """Tell whether the file belongs into the mmproj field."""
        return self.architecture == "clip"


def facts_of(model: Model) -> ModelFacts:
    """Return the facts of a model that was examined."""
    header = model.header
    projector = header.projector
    return ModelFacts(
        architecture=header.architecture,
        context_length=header.context_length,
        mtp_heads=None if projector else model.mtp_heads,
        embedding_length=header.embedding_length,
        projector=projector.type if projector else None,
        projector_width=projector.width if projector else None,
    )
