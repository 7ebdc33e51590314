"""Rules about the model file, its projector, and what both are used for."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.command_rules_case import Case, Rule
from controlpanel.llamacpp.extra_args import FIELD
from controlpanel.llamacpp.gguf_fit import other_name
from controlpanel.llamacpp.problems import Problem, error, warning
from controlpanel.llamacpp.projectors import FAMILIES, made_for

_VISION = ("mmproj_offload", "image_min_tokens", "image_max_tokens")
_VECTORS = ("--embedding", "--embeddings", "--rerank", "--reranking")
_SHIFTING = ("--context-shift", "--cache-reuse")
# llama.cpp's number for models that rate how well a text answers a question.
_POOLING_RANK = 4


def _model_is_a_model(case: Case) -> Problem | None:
    if case.model is None or not case.model.is_projector:
        return None
    text = N_("This file is a multimodal projector (mmproj), not a model: choose the text model here.")
    return error("model", text)


def _model_is_whole(case: Case) -> Problem | None:
    if case.model is None or not case.model.sidecar:
        return None
    text = N_(
        "This file holds MTP heads without the model they belong to: choose the model's own file here. "
        "Builds with draft-mtp can use the heads beside it, by --spec-draft-model in the extra arguments."
    )
    return error("model", text)


def _mmproj_is_a_projector(case: Case) -> Problem | None:
    if case.mmproj is None or case.mmproj.is_projector:
        return None
    text = N_("This file is no multimodal projector: choose the mmproj file that belongs to the model.")
    return error("mmproj", text)


def _widths_match(case: Case) -> Problem | None:
    if case.model is None or case.mmproj is None:
        return None
    text_width, width = case.model.embedding_length, case.mmproj.projector_width
    if text_width is None or width is None or text_width == width:
        return None
    text = N_(
        "The projector does not belong to this model: its vectors have %(width)s values, "
        "the model's %(text_width)s. Choose the mmproj file published with the model."
    )
    return error("mmproj", text, width=width, text_width=text_width)


def _families_match(case: Case) -> Problem | None:
    """The server compares widths only, and other models of the same width answer with nonsense."""
    if case.model is None or case.mmproj is None or case.mmproj.projector is None:
        return None
    kind, architecture = case.mmproj.projector, case.model.architecture
    if architecture is None or case.model.is_projector or made_for(kind, architecture) is not False:
        return None
    text = N_(
        "This projector was made for %(family)s, the model's architecture is %(architecture)s: the "
        "widths may agree by chance, and answers about pictures would be nonsense."
    )
    return warning("mmproj", text, family=FAMILIES.get(kind, kind), architecture=architecture)


def _names_match(case: Case) -> Problem | None:
    if case.model is None or case.mmproj is None or _families_match(case) or _widths_match(case):
        return None
    if case.model.is_projector or not case.mmproj.is_projector:
        return None
    return other_name("mmproj", case.mmproj.name, case.model.name)


def _vision_needs_a_projector(case: Case) -> Problem | None:
    key = next((key for key in _VISION if case.settings.get(key) is not None), None)
    if key is None or case.model is None or case.mmproj is not None:
        return None
    text = N_(
        "Without a vision projector this does nothing: choose an mmproj file, or leave the field empty."
    )
    return warning(key, text)


def _image_tokens_in_order(case: Case) -> Problem | None:
    low, high = case.number("image_min_tokens"), case.number("image_max_tokens")
    if low is None or high is None or low <= high:
        return None
    text = N_(
        "An image cannot take at least %(low)s and at most %(high)s tokens: lower this number or raise the "
        "other one."
    )
    return error("image_min_tokens", text, low=low, high=high)


def _no_mtp_for_vectors(case: Case) -> Problem | None:
    if not case.mtp or not case.in_extra(_VECTORS):
        return None
    text = N_(
        "A server that makes embeddings or ranks texts writes none, so MTP has nothing to draft and only "
        "takes memory: set Speculation to none, or take the flag out of the extra arguments."
    )
    return warning("speculation", text)


def _model_for_vectors(case: Case) -> Problem | None:
    if case.model is None or not case.model.pooling or case.in_extra(_VECTORS):
        return None
    flag = "--reranking" if case.model.pooling == _POOLING_RANK else "--embeddings"
    text = N_("This model was made for vectors, not for text: write %(flag)s into the extra arguments.")
    return warning("model", text, flag=flag)


def _no_shifting(case: Case) -> Problem | None:
    """Pictures, recurrent states and the older MTP have tokens that cannot be moved."""
    state = case.model.state_size if case.model else None
    if not case.in_extra(_SHIFTING) or not (case.mmproj or state or case.older_mtp):
        return None
    text = N_(
        "--context-shift and --cache-reuse do nothing here: a server with a vision projector, with a model "
        "that keeps recurrent states or with the older MTP cannot move tokens. Take them out."
    )
    return warning(FIELD, text)


RULES: tuple[Rule, ...] = (
    _model_is_a_model,
    _model_is_whole,
    _mmproj_is_a_projector,
    _widths_match,
    _families_match,
    _names_match,
    _vision_needs_a_projector,
    _image_tokens_in_order,
    _no_mtp_for_vectors,
    _model_for_vectors,
    _no_shifting,
)
