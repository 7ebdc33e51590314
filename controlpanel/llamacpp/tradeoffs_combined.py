"""Changes that only together make a profile fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.memory_types import HOST
from controlpanel.llamacpp.tradeoffs_search import (
    Changes,
    experts_away,
    fewer_layers,
    shorter_context,
)
from controlpanel.llamacpp.tradeoffs_split import best_split
from controlpanel.llamacpp.tradeoffs_steps import (
    cache_steps,
    draft_steps,
    draft_type_steps,
    flash_steps,
    layer_part,
    long_draft_steps,
    projector_steps,
    slot_steps,
    speculation_steps,
    ubatch_steps,
    unified_steps,
)
from controlpanel.llamacpp.tradeoffs_trial import Trial
from controlpanel.llamacpp.tradeoffs_types import Loss, Offered, Part

MOST = 3
"""How many combinations are named."""

Parts = tuple[Part, ...]
Search = Callable[[Trial, Offered, int, Changes], Part | None]


def merged(parts: Sequence[Part]) -> dict[str, object]:
    """Return the changes of all parts."""
    return {key: value for part in parts for key, value in part.changes.items()}


def combinations(trial: Trial, offered: Offered, rank: int, below: float) -> list[Part]:
    """Return up to MOST combinations whose verdict is as good as a rank, in the order of what they cost.

    Those of a loss of `below` and more are left out.
    """
    found: list[Part] = []
    for parts in _recipes(trial, offered, rank):
        if not parts or not trial.reaches(merged(parts), rank):
            continue
        needed = _needed(trial, offered, parts, rank)
        changes, loss = merged(needed), max((part.loss for part in needed), default=Loss.NONE)
        if loss >= below:
            break
        if len(needed) > 1 and all(changes != other.changes for other in found):
            label = _joined(N_("%(first)s; %(second)s"), [part.label for part in needed])
            costs = list({str(part.cost): part.cost for part in needed}.values())
            found.append(Part("combined", changes, loss, label, _joined(N_("%(first)s %(second)s"), costs)))
        if len(found) == MOST:
            break
    return found


def _joined(text: str, messages: Sequence[Message]) -> Message:
    whole = messages[0]
    for message in messages[1:]:
        whole = Message(text, {"first": whole, "second": message})
    return whole


def _recipes(trial: Trial, offered: Offered, rank: int) -> Iterator[Parts]:
    """Return what to try, the smallest loss first; a recipe may be not enough, or more than is needed."""
    free = _stack(trial, offered, (), [flash_steps(trial), long_draft_steps(trial)])
    yield free
    light = _stack(trial, offered, free, _light(trial))
    yield light
    slower = _stack(trial, offered, light, [draft_steps(trial), ubatch_steps(trial)])
    yield slower
    for base in (light, slower):
        smaller = base
        for step in cache_steps(trial):
            smaller = _stack(trial, offered, smaller, [[step]])
            yield smaller
    yield _searched(trial, offered, rank, slower, experts_away)
    yield _searched(trial, offered, rank, light, shorter_context)
    yield _searched(trial, offered, rank, smaller, shorter_context)
    fewer = _stack(trial, offered, smaller, [speculation_steps(trial), slot_steps(trial)])
    yield fewer
    yield _searched(trial, offered, rank, fewer, experts_away)
    yield _searched(trial, offered, rank, fewer, shorter_context)
    for base in (light, smaller):
        yield _with_fewer_layers(trial, offered, rank, base)


def _light(trial: Trial) -> list[list[Part]]:
    """Return the settings that cost some speed, in steps that nobody minds much."""
    return [
        draft_steps(trial, least=2),
        ubatch_steps(trial, least=256),
        draft_type_steps(trial),
        unified_steps(trial),
        projector_steps(trial),
    ]


def _stack(trial: Trial, offered: Offered, parts: Parts, ladders: Sequence[Sequence[Part]]) -> Parts:
    """Return the parts with the strongest helpful step of each ladder, and the best split for all of them."""
    for ladder in ladders:
        for step in reversed(ladder):
            if offered.allows_all(step.changes) and _relieves(trial, parts, step):
                parts = (*_without(parts, step.key), step)
                break
    return _split_again(trial, offered, parts)


def _relieves(trial: Trial, parts: Parts, step: Part) -> bool:
    """Tell whether the cards together hold less with a step: which of them does is for the split."""
    before, after = trial.outcome(merged(parts)), trial.outcome(merged((*_without(parts, step.key), step)))
    if before is None or after is None:
        return False
    return sum(after.loads) < sum(before.loads) or after.better(before)


def _split_again(trial: Trial, offered: Offered, parts: Parts) -> Parts:
    split = best_split(trial, offered, merged(parts))
    return parts if split is None else (*_without(parts, "split"), split)


def _searched(trial: Trial, offered: Offered, rank: int, parts: Parts, search: Search) -> Parts:
    """Return the parts with the number that a search finds, which another split may make better."""
    found = search(trial, offered, rank, merged(parts))
    if found is None:
        return ()
    again = _split_again(trial, offered, (*parts, found))
    if len(again) == len(parts) + 1 and again[-1] is found:
        return again
    rest = _without(again, found.key)
    better = search(trial, offered, rank, merged(rest))
    return (*rest, better) if better is not None else again


def _with_fewer_layers(trial: Trial, offered: Offered, rank: int, parts: Parts) -> Parts:
    """Return the parts with the most layers that fit: with far fewer, another split may be the better one."""
    every = sum(place != HOST for place in trial.places({}))
    found = _searched(trial, offered, rank, parts, fewer_layers)
    for quarters in (3, 2, 1):
        if found or not offered.allows("gpu_layers", 1):
            break
        fewer = _split_again(trial, offered, (*parts, layer_part(trial, every * quarters // 4)))
        found = _searched(trial, offered, rank, _without(fewer, "gpu_layers"), fewer_layers)
    return found


def _without(parts: Parts, key: str) -> Parts:
    return tuple(part for part in parts if part.key != key)


def _needed(trial: Trial, offered: Offered, parts: Parts, rank: int) -> Parts:
    """Return the parts without what is not needed, and each as mild as is enough, the worst loss first."""
    for part in sorted(parts, key=lambda part: -part.loss):
        rest = _without(parts, part.key)
        if trial.reaches(merged(rest), rank):
            parts = rest
            continue
        for step in _milder(trial, part):
            if step.changes == part.changes:
                break
            if offered.allows_all(step.changes) and trial.reaches(merged((*rest, step)), rank):
                parts = tuple(step if other.key == part.key else other for other in parts)
                break
    return parts


def _milder(trial: Trial, part: Part) -> list[Part]:
    ladders = (cache_steps, long_draft_steps, draft_steps, ubatch_steps, slot_steps)
    return [step for steps in ladders for step in steps(trial) if step.key == part.key]
