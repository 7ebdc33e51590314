"""What the facts of a run say: settings of its profile, and the context of a slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlpanel.llamacpp.rule_types import Change, Found

# Lines that only a server writes that has loaded its model.
SERVING = r"(?:listening on http|: id +\d+ \| task|update_slots: |done request: )"

Facts = Mapping[str, object]

# Values of the field for the context, which only the page can compute: the largest one that fits, and the
# same where less memory is to be taken: never more than now.
LARGEST, SMALLER = "fit", "less"


def setting(facts: Facts, key: str) -> object:
    """Return a touched meaning of the profile, None when it is untouched or unknown."""
    settings = facts.get("settings")
    return settings.get(key) if isinstance(settings, Mapping) else None


def number(facts: Facts, key: str) -> int | None:
    """Return a touched meaning that is a whole number."""
    value = setting(facts, key)
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def slot_is_far_below(facts: Facts, parts: int) -> bool:
    """Tell whether a slot has less than half of an even part of the context that the profile asks for."""
    asked, slot = number(facts, "ctx_size"), facts.get("n_ctx")
    return asked is not None and isinstance(slot, int) and 2 * slot < asked // parts


def slots(facts: Facts) -> int:
    """Return among how many slots the profile divides its context, 1 when it does not or it is unknown.

    Builds share one cache among slots only where that, or no number of slots, was asked for.
    """
    return 1 if setting(facts, "kv_unified") == "on" else max(1, number(facts, "parallel") or 1)


def context_is_divided(facts: Facts) -> bool:
    """Tell whether the profile gives each slot only a part of the context, and nothing less."""
    return slots(facts) > 1 and not slot_is_far_below(facts, slots(facts))


def larger_context(found: Found) -> Iterable[Change]:
    """Take the largest context that fits."""
    yield Change("ctx_size", LARGEST)


def smaller_context(found: Found) -> Iterable[Change]:
    """Take the largest context that fits, and no more than now."""
    yield Change("ctx_size", SMALLER)


def one_slot(found: Found) -> Iterable[Change]:
    """Serve one conversation at a time, where the profile has more slots or their number is unknown."""
    if number(found.facts, "parallel") != 1:
        yield Change("parallel", 1)


def was_not_asked_to_stop(facts: Facts) -> bool:
    """Tell whether the panel is not known to have ended the server."""
    return facts.get("stop_requested") is not True
