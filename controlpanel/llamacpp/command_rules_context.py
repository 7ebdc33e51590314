"""Rules about the length of the context and how positions are encoded beyond the trained length."""

from __future__ import annotations

import math

from controlpanel.lib.text import N_
from controlpanel.llamacpp.command_rules_case import Case, Rule
from controlpanel.llamacpp.problems import Problem, error, warning

_OTHER_SCALING = ("--rope-freq-scale",)
# A factor that is larger than needed by more than this share costs quality for nothing.
_TOO_LARGE = 1.25


def _context_within_training(case: Case) -> Problem | None:
    size, native = case.per_slot, case.native
    if not size or not native or size <= native or _scaled(case):
        return None
    if case.model and case.model.rope_scaling:
        text = N_(
            "Each slot gets %(size)s tokens, but the model goes up to %(native)s with the RoPE scaling that "
            "its file holds: lower the context size."
        )
        return warning("ctx_size", text, size=size, native=native)
    text = N_(
        "Each slot gets %(size)s tokens, but the model was trained for %(native)s: builds cap it, or answers "
        "get worse beyond that. Lower the context size, or set RoPE scaling to yarn, RoPE scale to "
        "%(factor)s and Trained context for YaRN to %(native)s."
    )
    return warning("ctx_size", text, size=size, native=native, factor=_factor(size, native))


def _scaling_is_needed(case: Case) -> Problem | None:
    kind, size, native = case.settings.get("rope_scaling"), case.per_slot, case.native
    if kind not in ("yarn", "linear") or size is None or native is None or size > native:
        return None
    text = N_(
        "Each slot gets %(size)s tokens, and the model can take %(native)s as it is: RoPE scaling %(kind)s "
        "is not needed and costs quality. Leave it empty."
    )
    return warning("rope_scaling", text, size=size, native=native, kind=kind)


def _factor_fits(case: Case) -> Problem | None:
    """The factor is one number for all inputs: the context that is wanted by the trained one."""
    size, base = case.per_slot, _trained(case)
    if case.settings.get("rope_scaling") != "yarn" or not size or not base or _within(case):
        return None
    if case.in_extra(_OTHER_SCALING):
        return None
    given, needed = case.decimal("rope_scale"), _factor(size, base)
    if given is not None and given * base >= size and given <= float(needed) * _TOO_LARGE:
        return None
    text = N_(
        "YaRN needs the factor %(needed)s here, %(size)s tokens per slot by %(base)s trained ones: a smaller "
        "one does not reach so far, a larger one costs quality."
    )
    return warning("rope_scale", text, needed=needed, size=size, base=base)


def _original_context_fits(case: Case) -> Problem | None:
    given, base = case.number("yarn_orig_ctx"), _trained(case)
    if case.settings.get("rope_scaling") != "yarn" or not given or not base or _within(case):
        return None
    if given == base:
        return None
    text = N_("The model was trained for %(base)s tokens, not for %(given)s: give %(base)s here.")
    return warning("yarn_orig_ctx", text, base=base, given=given)


def _factor_needs_a_kind(case: Case) -> Problem | None:
    scale = case.decimal("rope_scale")
    in_file = case.model is not None and case.model.rope_scaling
    if scale is None or case.settings.get("rope_scaling") is not None or in_file:
        return None
    text = N_(
        "Without RoPE scaling the factor stretches all positions alike (linear), which few models bear: set "
        "RoPE scaling to yarn, or leave this field empty."
    )
    return warning("rope_scale", text)


def _base_frequency_of_the_file(case: Case) -> Problem | None:
    """Zero is llama.cpp's word for the value of the file."""
    given = case.decimal("rope_freq_base")
    if not given:
        return None
    stored = case.model.rope_freq_base if case.model else None
    if stored is None:
        text = N_(
            "This replaces the base frequency stored in the model, which is nearly always the right one: "
            "leave it out."
        )
        return warning("rope_freq_base", text)
    if math.isclose(given, stored, rel_tol=1e-6):
        text = N_("The file holds the same base frequency, %(stored)s: leave it out.")
        return warning("rope_freq_base", text, stored=_number(stored))
    text = N_(
        "The model was trained with the base frequency %(stored)s, which its file holds; with %(given)s its "
        "answers would be nonsense. Leave it out; a longer context is a matter of YaRN."
    )
    return error("rope_freq_base", text, stored=_number(stored), given=_number(given))


def _scaled(case: Case) -> bool:
    kind = case.settings.get("rope_scaling")
    asked = kind not in (None, "none") or case.decimal("rope_scale") is not None
    return asked or case.in_extra(_OTHER_SCALING)


def _within(case: Case) -> bool:
    return case.per_slot is not None and case.native is not None and case.per_slot <= case.native


def _trained(case: Case) -> int | None:
    """Return the tokens trained without any scaling; a file with scaling names them beside its own."""
    if case.model is None:
        return None
    return case.model.original_context if case.model.rope_scaling else case.model.context_length


def _factor(size: int, base: int) -> str:
    """Return how many times longer the context is, rounded up to two decimals."""
    whole, hundredths = divmod(-(-size * 100 // base), 100)
    return f"{whole}.{hundredths:02}".rstrip("0").rstrip(".")


def _number(value: float) -> str:
    return f"{value:.10g}"


RULES: tuple[Rule, ...] = (
    _context_within_training,
    _scaling_is_needed,
    _factor_fits,
    _original_context_fits,
    _factor_needs_a_kind,
    _base_frequency_of_the_file,
)
