"""Rules between the fields of a profile, the build and the model files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controlpanel.lib.text import N_
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.facts import ModelFacts
from controlpanel.llamacpp.helptext import normalise
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.problems import Problem, error, warning

# V cache types that work without flash attention.
_PLAIN_TYPES = ("f32", "f16", "bf16")
_DRAFT_MODEL = ("--spec-draft-model", "-md", "--model-draft")
_ROPE = ("--rope-scaling", "--rope-scale", "--rope-freq-scale", "--yarn-orig-ctx")


@dataclass(frozen=True)
class Case:
    """Everything a rule may look at; `model` and `mmproj` are None when nothing is known of them."""

    caps: Capabilities
    settings: Mapping[str, object]
    extra: tuple[str, ...]
    model: ModelFacts | None
    mmproj: ModelFacts | None

    @property
    def mtp(self) -> bool:
        """Tell whether MTP is asked for and the build has it."""
        return self.settings.get("speculation") == "mtp" and self.caps.mtp_value is not None

    def number(self, key: str) -> int | None:
        """Return a field as a whole number, None when it is empty or something else."""
        return whole(self.settings.get(key))

    def in_extra(self, names: tuple[str, ...]) -> bool:
        """Tell whether one of the flags is among the extra arguments."""
        return any(normalise(word) in names for word in self.extra)


def check_rules(case: Case) -> list[Problem]:
    """Return what the rules find, errors and warnings in the order of the rules."""
    return [problem for rule in _RULES if (problem := rule(case)) is not None]


def _one_slot_for_mtp(case: Case) -> Problem | None:
    """The older dialect checks this only after it has loaded the model twice."""
    if not case.mtp or case.caps.mtp_value != "mtp" or case.number("parallel") == 1:
        return None
    text = N_("With MTP this build serves one conversation at a time: set Slots to 1.")
    return error("parallel", text)


def _heads_for_mtp(case: Case) -> Problem | None:
    if not case.mtp or case.model is None or case.model.mtp_heads != 0:
        return None
    if case.caps.mtp_value == "draft-mtp" and case.in_extra(_DRAFT_MODEL):
        return None
    text = N_(
        "The model file holds no MTP heads, so the server would end at the start: "
        "set Speculation to none or choose a model file with MTP heads."
    )
    return error("speculation", text)


def _older_mtp_architecture(case: Case) -> Problem | None:
    known = (None, "qwen35", "qwen35moe")
    if not case.mtp or case.caps.mtp_value != "mtp" or case.model is None or case.model.architecture in known:
        return None
    text = N_(
        "The older MTP of this build is known to work with the architectures qwen35 and qwen35moe only; "
        "this model is %(architecture)s. If the server ends at the start, choose a newer build."
    )
    return warning("speculation", text, architecture=case.model.architecture)


def _draft_length_for_older_mtp(case: Case) -> Problem | None:
    if not case.mtp or case.caps.mtp_value != "mtp" or case.number("draft_max") is not None:
        return None
    text = N_(
        "This build drafts 16 tokens unless told otherwise, which costs memory: "
        "set Draft tokens, for example to 3."
    )
    return warning("draft_max", text)


def _flash_attention_for_quantised_v(case: Case) -> Problem | None:
    kind = case.settings.get("cache_type_v")
    if case.settings.get("flash_attn") != "off" or kind is None or kind in _PLAIN_TYPES:
        return None
    text = N_(
        "The quantised V cache type %(kind)s needs flash attention: set Flash attention to on or auto, "
        "or KV cache type V to f16."
    )
    return error("cache_type_v", text, kind=kind)


def _context_within_training(case: Case) -> Problem | None:
    """Slots share the context; left alone, their number is automatic and each may use all of it."""
    size = case.number("ctx_size")
    native = case.model.context_length if case.model else None
    if not size or not native or case.in_extra(_ROPE):
        return None
    per_slot = size // max(1, case.number("parallel") or 1)
    if per_slot <= native:
        return None
    text = N_(
        "Each slot gets %(size)s tokens, but the model was trained for %(native)s: builds cap it, "
        "or answers get worse beyond that. Lower the context size or set up YaRN in the extra arguments."
    )
    return warning("ctx_size", text, size=per_slot, native=native)


def _model_is_a_model(case: Case) -> Problem | None:
    if case.model is None or not case.model.is_projector:
        return None
    text = N_("This file is a multimodal projector (mmproj), not a model: choose the text model here.")
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


_RULES: tuple[Callable[[Case], Problem | None], ...] = (
    _model_is_a_model,
    _mmproj_is_a_projector,
    _widths_match,
    _one_slot_for_mtp,
    _heads_for_mtp,
    _older_mtp_architecture,
    _draft_length_for_older_mtp,
    _flash_attention_for_quantised_v,
    _context_within_training,
)
