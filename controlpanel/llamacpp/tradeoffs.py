"""What to change when a profile does not fit, with what it frees and what it costs.

Every entry is what the memory estimate says of the changed settings; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.memory_learn import Learned
from controlpanel.llamacpp.memory_types import Device, Dialect
from controlpanel.llamacpp.tradeoffs_combined import combinations
from controlpanel.llamacpp.tradeoffs_search import (
    context_now,
    enough,
    experts_away,
    fewer_layers,
    longer_context,
    shorter_context,
)
from controlpanel.llamacpp.tradeoffs_split import best_split
from controlpanel.llamacpp.tradeoffs_steps import (
    cache_steps,
    draft_steps,
    draft_type_steps,
    flash_steps,
    long_draft_steps,
    projector_steps,
    slot_steps,
    speculation_steps,
    ubatch_steps,
    unified_steps,
)
from controlpanel.llamacpp.tradeoffs_trial import Trial
from controlpanel.llamacpp.tradeoffs_types import (
    RANK,
    Loss,
    Offered,
    Part,
    Tradeoff,
    applied,
    offered_by,
)

__all__ = ["Loss", "Offered", "Tradeoff", "applied", "offered_by", "tradeoffs"]

_LADDERS = (
    flash_steps,
    long_draft_steps,
    draft_steps,
    ubatch_steps,
    draft_type_steps,
    unified_steps,
    projector_steps,
    cache_steps,
)
_LAST_LADDERS = (slot_steps, speculation_steps)
_SEARCHES = (shorter_context, experts_away, fewer_layers)


def tradeoffs(
    parts: Sequence[GgufHeader],
    mmproj: GgufHeader | None,
    settings: Mapping[str, object],
    dialect: Dialect,
    devices: Sequence[Device],
    offered: Offered,
    learned: Learned | None = None,
) -> list[Tradeoff]:
    """Return changes of the settings that free memory, the best one first; none without a card.

    What makes it fit comes first, of that what costs least, then what keeps more of the context, then what
    frees more. Combinations are named when no change that costs less than an ability is enough. A profile
    that fits gets what still frees memory at little cost, and the longer context that fits as well.
    Raises EstimateError when the settings as they are have no estimate.
    """
    if not devices:
        return []
    trial = Trial(parts, mmproj, settings, dialect, devices, learned)
    found = _singles(trial, offered)
    if trial.base.rank > RANK["fits"]:
        found += _together(trial, offered, found)
    judged = [entry for part in found if (entry := _judge(trial, part)) is not None]
    return sorted(judged, key=lambda entry: _order(trial, entry))


def _singles(trial: Trial, offered: Offered) -> list[Part]:
    found = [best_split(trial, offered, {})]
    found += [enough(trial, offered, steps(trial), {}) for steps in _LADDERS]
    if trial.base.rank == RANK["fits"]:
        found.append(longer_context(trial, offered))
    else:
        found += [enough(trial, offered, steps(trial), {}) for steps in _LAST_LADDERS]
        for rank in range(RANK["fits"], min(trial.base.rank, RANK["unknown"])):
            found += [search(trial, offered, rank, {}) for search in _SEARCHES]
    # What is enough to be tight may be enough to fit.
    return list({str(sorted(part.changes.items())): part for part in found if part is not None}.values())


def _together(trial: Trial, offered: Offered, singles: Sequence[Part]) -> list[Part]:
    """Return the combinations that cost less than the best change that fits alone."""
    enough_alone = [part.loss for part in singles if trial.reaches(part.changes, RANK["fits"])]
    cheapest = min(enough_alone, default=Loss.LAST)
    # How much slower, or how much shorter, matters more than that it is one change only.
    below = cheapest if cheapest < Loss.SLOW else float("inf")
    found = combinations(trial, offered, RANK["fits"], below)
    if not found and not enough_alone and trial.base.rank > RANK["tight"]:
        found = combinations(trial, offered, RANK["tight"], below)
    return found


def _judge(trial: Trial, part: Part) -> Tradeoff | None:
    """Return the change with what the estimate says of it, None when it helps nothing."""
    after = trial.outcome(part.changes)
    if after is None or not (part.key == "context_up" or after.better(trial.base)):
        return None
    return Tradeoff(
        part.key,
        part.changes,
        part.label,
        part.cost,
        after.freed(trial.base),
        after.verdict,
        trial.base.verdict,
        max(0.0, -after.room),
        part.loss,
    )


def _order(trial: Trial, entry: Tradeoff) -> tuple[int, int, int, float]:
    context = whole(entry.changes.get("ctx_size")) or context_now(trial) or 0
    return RANK[entry.verdict], entry.loss, -context, -(entry.freed or 0.0)
