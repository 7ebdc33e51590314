"""Whether a server became slower than it was: answers of like depth, without others beside them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from servers.domain.timings import Answer

STEPS = 48  # of an answer at least: the first ones are slower
RECENT = 10  # answers that are judged together
BEFORE = 30  # answers before them, without which there is nothing to compare with
KEPT = 200
SLOWER = 0.6  # of the speed before
RECOVERED = 0.8  # of the speed before

_Like = tuple[int, int | None]


@dataclass(frozen=True)
class Drift:
    """Answers that come slower. Speeds are steps of the model per second: tokens without accepted drafts."""

    speed: float
    before: float
    depth: int  # tokens in the context, about
    answers: tuple[Answer, ...]


@dataclass
class _Group:
    slow: bool = False
    last: deque[tuple[float, Answer]] = field(default_factory=deque)
    before: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))


@dataclass
class Speeds:
    """Speeds of one run, in groups that can be compared; a drift is told once, until it is over."""

    _groups: dict[_Like, _Group] = field(default_factory=dict)

    def add(self, answer: Answer) -> Drift | None:
        """Take one more answer; return the drift that it completes."""
        steps = answer.tokens - answer.accepted
        if not answer.alone or steps < STEPS or answer.seconds <= 0:
            return None
        # A step takes longer with more tokens before it, and with more drafted tokens to check in it.
        drafts = None if answer.drafted is None else round(answer.drafted / steps)
        group = self._groups.setdefault((answer.depth.bit_length(), drafts), _Group())
        group.last.append((steps / answer.seconds, answer))
        if len(group.last) > RECENT:
            speed, _ = group.last.popleft()
            if not group.slow:
                group.before.append(speed)
        if len(group.last) < RECENT or len(group.before) < BEFORE:
            return None
        return _judged(group)


def _judged(group: _Group) -> Drift | None:
    before = median(group.before)
    speeds = [speed for speed, _ in group.last]
    if group.slow:
        group.slow = median(speeds) < RECOVERED * before
        return None
    # All of them: a few slow answers are somebody else's work on the card, not a drift.
    group.slow = max(speeds) < SLOWER * before
    if not group.slow:
        return None
    answers = tuple(answer for _, answer in group.last)
    return Drift(median(speeds), before, answers[-1].depth, answers)
