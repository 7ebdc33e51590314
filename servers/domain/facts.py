"""Facts that a ready server tells of itself, read from /props and /slots (bounded, untrusted JSON)."""

from typing import Any

MARK = 4000  # characters of a mark: hundreds of slots


def read_facts(props: Any, slots: Any) -> dict[str, Any]:
    """Return {"mtp", "vision", "n_ctx", "slots", "build"}; a fact that the server does not tell is None.

    n_ctx is the context of one slot in tokens. /slots tells whether speculation is active.
    """
    props = props if isinstance(props, dict) else {}
    first = slots[0] if isinstance(slots, list) and slots and isinstance(slots[0], dict) else {}
    modalities = props.get("modalities")
    defaults = props.get("default_generation_settings")
    n_ctx = first.get("n_ctx", defaults.get("n_ctx") if isinstance(defaults, dict) else None)
    total = props.get("total_slots")
    facts = {
        "mtp": _yes_no(first.get("speculative")),
        "vision": _yes_no(modalities.get("vision")) if isinstance(modalities, dict) else None,
        "n_ctx": n_ctx if isinstance(n_ctx, int) else None,
        "slots": total if isinstance(total, int) else None,
        "build": str(props["build_info"])[:100] if "build_info" in props else None,
    }
    return facts if any(value is not None for value in facts.values()) else {}


def is_sleeping(props: Any) -> bool:
    """Tell whether a server says in /props that it sleeps: this question does not wake it, others may."""
    return isinstance(props, dict) and props.get("is_sleeping") is True


def busy_slots(slots: Any) -> int | None:
    """Return how many slots of /slots work on a request, None when the answer does not tell it of each."""
    if not isinstance(slots, list) or not slots:
        return None
    words = [_yes_no(slot.get("is_processing")) if isinstance(slot, dict) else None for slot in slots]
    return None if None in words else words.count(True)


def use_mark(slots: Any) -> str:
    """Return a text that differs between two answers of /slots when requests were served in between."""
    if not isinstance(slots, list):
        return ""
    keys = ("id_task", "is_processing", "n_prompt_tokens", "n_prompt_tokens_processed")
    return repr([[slot.get(key) for key in keys] for slot in slots if isinstance(slot, dict)])[:MARK]


def _yes_no(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
