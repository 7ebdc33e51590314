"""The tensor split that leaves the fullest card most room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.tradeoffs_trial import Outcome, Trial
from controlpanel.llamacpp.tradeoffs_types import Loss, Offered, Part

_TRIES = 40


def best_split(trial: Trial, offered: Offered, given: Mapping[str, object]) -> Part | None:
    """Return the best split on top of the changes given, None when none is better or there is no choice."""
    if len(trial.devices) < 2 or trial.used.split_mode != "layer" or not offered.allows("tensor_split", "1"):
        return None
    places, before = trial.places(given), trial.outcome(given)
    counts = [places.count(card) for card in range(len(trial.devices))]
    if before is None or not any(counts):
        return None
    best, found = _climb(trial, given, counts, before)
    for alone in _one_card(counts):
        after = trial.outcome({**given, "tensor_split": _shares(alone)})
        if after is not None and after.room > found.room:
            best, found = alone, after
    if not found.better(before):
        return None
    split = _smallest(trial, given, best)
    now = trial.settings.get("tensor_split")
    label = Message(N_("Tensor split %(new)s instead of %(old)s"), {"new": split, "old": now})
    if now is None:
        label = Message(N_("Tensor split %(new)s instead of the server's own"), {"new": split})
    cost = Message(N_("Nothing: the cards are filled more evenly."))
    return Part("split", {"tensor_split": split}, Loss.NONE, label, cost)


def _climb(
    trial: Trial, given: Mapping[str, object], counts: list[int], found: Outcome
) -> tuple[list[int], Outcome]:
    """Move layers from the fullest card to others as long as that leaves it more room."""
    best, tries = counts, 0
    # Of what a card holds, at most all grows with its layers: the first guess is a little small.
    layer = sum(found.loads) / max(1, sum(counts))
    while tries < _TRIES:
        for moved in _moves(best, found, layer):
            tries += 1
            after = trial.outcome({**given, "tensor_split": _shares(moved)})
            if after is not None and after.room > found.room:
                best, found = moved, after
                break
            if tries >= _TRIES:
                break
        else:
            break
    return best, found


def _moves(counts: list[int], found: Outcome, layer: float) -> Iterator[list[int]]:
    """Return counts with fewer layers on the fullest card, the most promising first."""
    rooms = found.rooms
    fullest = min((card for card in range(len(counts)) if counts[card]), key=rooms.__getitem__)
    others = sorted((card for card in range(len(counts)) if card != fullest), key=lambda card: -rooms[card])
    gap = min(rooms[others[0]], layer * counts[fullest] + rooms[fullest]) - rooms[fullest]
    step = max(1, min(counts[fullest], int(gap / 2 / layer))) if layer else 1
    while step:
        yield _moved(counts, fullest, others[0], step)
        step //= 2
    for other in others[1:]:
        yield _moved(counts, fullest, other, 1)
    for other in others:
        # A card that holds nothing does without what every card in use takes.
        yield _moved(counts, fullest, other, counts[fullest])


def _one_card(counts: list[int]) -> Iterator[list[int]]:
    """Return all layers on each of the cards alone, which spares what several cards take."""
    for card in range(len(counts)):
        yield [sum(counts) if other == card else 0 for other in range(len(counts))]


def _moved(counts: list[int], giver: int, taker: int, layers: int) -> list[int]:
    moved = list(counts)
    moved[giver] -= layers
    moved[taker] += layers
    return moved


def _shares(counts: Sequence[int]) -> str:
    return ",".join(map(str, counts))


def _smallest(trial: Trial, given: Mapping[str, object], counts: Sequence[int]) -> str:
    """Return the split of the smallest whole numbers that deals the layers just so."""
    known, total = trial.splits, sum(counts)
    for parts in range(1, total) if tuple(counts) not in known else ():
        shares = _shares([round(count * parts / total) for count in counts])
        if shares.strip("0,"):
            places = trial.places({**given, "tensor_split": shares})
            if all(places.count(card) == count for card, count in enumerate(counts)):
                known[tuple(counts)] = shares
                break
    return known.setdefault(tuple(counts), _shares(counts))
