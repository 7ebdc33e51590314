"""What is measured of a running server right now, as values; None stands for "not known" everywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

STALE_AFTER = 15.0  # seconds without a new meter after which the numbers are old


@dataclass(frozen=True)
class SlotUse:
    """One slot: how many tokens of its context are used of `size`, and whether it works on a request."""

    id: int
    used: int | None = None
    size: int | None = None
    busy: bool | None = None


@dataclass(frozen=True)
class ServerMeter:
    """One reading of a server at `time` (seconds since 1970).

    `predicted_tps` and `prompt_tps` are tokens per second now, over all slots; `busy` and `waiting`
    count requests; `shared` slots have one cache, of which each could fill the whole;
    `acceptance` is the share of drafted tokens that were accepted of late, by position
    of the draft in `per_position`; `mean_length` the tokens per step with drafts; `last_…` are the speeds
    of the last answer that ended. `totals` count since the server started, by name: requests, prompt_tokens,
    predicted_tokens, prompt_seconds, predicted_seconds, drafted, accepted; one that is not known is missing.
    """

    time: float
    predicted_tps: float | None = None
    prompt_tps: float | None = None
    busy: int | None = None
    waiting: int | None = None
    slots: tuple[SlotUse, ...] = ()
    shared: bool = False
    acceptance: float | None = None
    per_position: tuple[float, ...] | None = None
    mean_length: float | None = None
    last_predicted_tps: float | None = None
    last_prompt_tps: float | None = None
    totals: Mapping[str, float] = field(default_factory=dict)

    @property
    def context_used(self) -> int | None:
        """Tokens in all slots together, None when none is known."""
        known = [slot.used for slot in self.slots if slot.used is not None]
        return sum(known) if known else None

    @property
    def context_size(self) -> int | None:
        """Tokens for which all slots together have room, None when that is not known of each."""
        known = [slot.size for slot in self.slots if slot.size is not None]
        if not known or len(known) < len(self.slots):
            return None
        return max(known) if self.shared else sum(known)


def to_json(meter: ServerMeter) -> dict[str, Any]:
    """Return a meter as plain values for JSON."""
    return asdict(meter)


def from_json(values: Mapping[str, Any]) -> ServerMeter:
    """Return a meter from what to_json() made; raises TypeError or ValueError when it is something else."""
    known = dict(values)
    known["slots"] = tuple(SlotUse(**slot) for slot in known.get("slots") or ())
    per_position = known.get("per_position")
    known["per_position"] = None if per_position is None else tuple(float(share) for share in per_position)
    return ServerMeter(**known)


def dumped(meters: Mapping[int, ServerMeter]) -> str:
    """Return the meters of profiles, by their keys, as JSON text."""
    return json.dumps({str(pk): to_json(meter) for pk, meter in meters.items()}, separators=(",", ":"))


def loaded(text: bytes | str) -> dict[int, ServerMeter]:
    """Return what dumped() wrote; raises ValueError or TypeError when it is something else."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not a set of meters")
    return {int(pk): from_json(values) for pk, values in found.items()}
