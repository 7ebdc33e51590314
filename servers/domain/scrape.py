"""What a server answers to /metrics and /slots, as values; both are bounded, untrusted text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servers.domain.meter import SlotUse

MOST_BYTES = 512 * 1024  # of one answer that is read at all
MOST_SLOTS = 256
MOST_POSITIONS = 64  # of a draft
_LARGEST = 2**53
_SAMPLE = re.compile(
    r"^llamacpp:([a-z_]{1,80})(?:\{position=\"(\d{1,2})\"\})?[ \t]+([^\s]{1,40})[ \t]*$", re.MULTILINE
)
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True)
class Metrics:
    """The known numbers of /metrics by their names without prefix, and accepted tokens by position."""

    values: Mapping[str, float]
    per_position: tuple[float, ...] = ()

    def count(self, name: str) -> int | None:
        """Return a gauge that counts."""
        value = self.values.get(name)
        return None if value is None else int(value)


@dataclass(frozen=True)
class SlotWork:
    """What a slot does: the request `task`, its prompt tokens read and its tokens written so far."""

    use: SlotUse
    task: int | None = None
    processed: int = 0
    decoded: int = 0


def read_metrics(body: bytes) -> Metrics | None:
    """Return what /metrics tells, None when it is something else; NaN, infinite and negative are unknown."""
    if len(body) > MOST_BYTES:
        return None
    values: dict[str, float] = {}
    positions: dict[int, float] = {}
    for name, position, text in _SAMPLE.findall(body.decode("utf-8", "replace")):
        try:
            value = float(text)
        except ValueError:
            continue
        if not 0 <= value <= _LARGEST:  # NaN is neither
            continue
        if name == _PER_POSITION:
            if position:
                positions[int(position)] = value
        elif not position:
            values[name] = value
    if not values:
        return None
    per_position: list[float] = []
    while len(per_position) in positions and len(per_position) < MOST_POSITIONS:
        per_position.append(positions[len(per_position)])
    return Metrics(values, tuple(per_position))


def read_json(body: bytes) -> Any:
    """Return a JSON answer; None for what is none or too large."""
    if len(body) > MOST_BYTES * 8:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def read_slots(found: Any) -> tuple[SlotWork, ...] | None:
    """Return what each slot of /slots does; None when the answer is something else.

    An idle slot keeps its last text as a cache, which counts as used. While a slot works, n_prompt_tokens
    counts the tokens in its context, those that it wrote included; where a build does not
    count these, what was read, reused and written tells the same.
    """
    if not isinstance(found, list) or not found or len(found) > MOST_SLOTS:
        return None
    if not all(isinstance(slot, dict) for slot in found):
        return None
    return tuple(_slot(slot, place) for place, slot in enumerate(found))


def _slot(slot: Mapping[str, Any], place: int) -> SlotWork:
    busy = slot.get("is_processing")
    busy = busy if isinstance(busy, bool) else None
    number, size = _count(slot.get("id")), _count(slot.get("n_ctx"))
    processed = _count(slot.get("n_prompt_tokens_processed")) or 0
    decoded = _decoded(slot.get("next_token")) if busy else 0
    known = _count(slot.get("n_prompt_tokens"))
    used = known
    if busy and known is not None:
        used = max(known, processed + (_count(slot.get("n_prompt_tokens_cache")) or 0) + decoded)
    elif busy is False and known is None and "id_task" not in slot:
        used = 0  # it had no request yet
    use = SlotUse(place if number is None else number, used, size, busy)
    return SlotWork(use, _count(slot.get("id_task")), processed if busy else 0, decoded)


def _decoded(found: Any) -> int:
    first = found[0] if isinstance(found, list) and found else found
    return (_count(first.get("n_decoded")) or 0) if isinstance(first, dict) else 0


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= _LARGEST else None  # NaN is neither
