"""Rules about drafting tokens by multi-token prediction."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.command_rules_case import Case, Rule
from controlpanel.llamacpp.problems import Problem, error, warning

_DRAFT_MODEL = ("--spec-draft-model", "-md", "--model-draft")


def _one_slot_for_mtp(case: Case) -> Problem | None:
    """The older dialect checks this only after it has loaded the model twice."""
    if not case.older_mtp or case.number("parallel") == 1:
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
    if not case.older_mtp or case.model is None or case.model.architecture in known:
        return None
    text = N_(
        "The older MTP of this build is known to work with the architectures qwen35 and qwen35moe only; "
        "this model is %(architecture)s. If the server ends at the start, choose a newer build."
    )
    return warning("speculation", text, architecture=case.model.architecture)


def _draft_length_for_older_mtp(case: Case) -> Problem | None:
    if not case.older_mtp or case.number("draft_max") is not None:
        return None
    text = N_(
        "This build drafts 16 tokens unless told otherwise, which costs memory: "
        "set Draft tokens, for example to 3."
    )
    return warning("draft_max", text)


def _drafts_in_order(case: Case) -> Problem | None:
    """The most drafted tokens are the build's own number when the field is empty."""
    low = case.number("draft_min")
    high = case.number("draft_max") or case.default("--spec-draft-n-max")
    if low is None or high is None or low <= high:
        return None
    text = N_(
        "The server cannot draft at least %(low)s and at most %(high)s tokens: lower this number or raise "
        "Draft tokens."
    )
    return error("draft_min", text, low=low, high=high)


def _heads_for_all_drafts(case: Case) -> Problem | None:
    """Several heads draft one token each, one after the other; a single one drafts all."""
    heads, most = case.model.mtp_heads if case.model else None, case.number("draft_max")
    if not case.mtp or case.older_mtp or heads is None or most is None or not 1 < heads < most:
        return None
    text = N_(
        "The model has %(heads)s MTP heads and drafts no more tokens than that: give %(heads)s at most."
    )
    return warning("draft_max", text, heads=heads)


def _sureness_of_older_mtp(case: Case) -> Problem | None:
    if not case.older_mtp or case.decimal("draft_p_min") is None:
        return None
    text = N_("The MTP of this build drafts without looking at this value: leave the field empty.")
    return warning("draft_p_min", text)


def _draft_cache_types(case: Case) -> Problem | None:
    main = next((key for key in ("cache_type_k", "cache_type_v") if case.quantised(key)), None)
    drafts = any(case.settings.get(key) is not None for key in ("draft_type_k", "draft_type_v"))
    if not case.mtp or main is None or drafts:
        return None
    text = N_(
        "The cache of the drafting layers does not follow the main one of type %(kind)s and stays f16: set "
        "both draft KV cache types, for example to q8_0, which halves it."
    )
    return warning("draft_type_k", text, kind=case.settings[main])


def _flash_attention_for_quantised_draft_v(case: Case) -> Problem | None:
    drafting = case.mtp or case.in_extra(_DRAFT_MODEL)
    if not drafting or case.settings.get("flash_attn") != "off" or not case.quantised("draft_type_v"):
        return None
    text = N_(
        "The quantised V cache type %(kind)s of the drafts needs flash attention: set Flash attention to on "
        "or auto, or this field to f16."
    )
    return error("draft_type_v", text, kind=case.settings["draft_type_v"])


RULES: tuple[Rule, ...] = (
    _one_slot_for_mtp,
    _heads_for_mtp,
    _older_mtp_architecture,
    _draft_length_for_older_mtp,
    _drafts_in_order,
    _heads_for_all_drafts,
    _sureness_of_older_mtp,
    _draft_cache_types,
    _flash_attention_for_quantised_draft_v,
)
