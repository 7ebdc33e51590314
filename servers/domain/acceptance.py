"""Whether the drafts of a server are still accepted: its last answers against those before them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from servers.domain.timings import Answer

ANSWERS = 4  # answers that are judged together at least
DRAFTED = 500  # tokens that they drafted together at least
BEFORE = 1500  # drafted tokens before them, without which there is nothing to compare with
NOTHING = 0.05  # below this share drafting is in vain, whatever it was before
FELL = 0.4  # of the share before
RECOVERED = 0.7  # of the share before


@dataclass(frozen=True)
class Collapse:
    """Drafts that are accepted no more. Shares are of the drafted tokens; `before` is None when unknown."""

    share: float
    before: float | None
    answers: tuple[Answer, ...]


@dataclass
class Acceptance:
    """Running sums of one run, and its last answers; a collapse is told once, until it has recovered."""

    collapsed: bool = False
    _last: deque[Answer] = field(default_factory=deque)
    _accepted: int = 0
    _drafted: int = 0
    _accepted_before: int = 0
    _drafted_before: int = 0

    def add(self, answer: Answer) -> Collapse | None:
        """Take one more answer; return the collapse that it completes."""
        if not answer.drafted:
            return None
        self._last.append(answer)
        self._accepted += answer.accepted
        self._drafted += answer.drafted
        self._let_go()
        if len(self._last) < ANSWERS or self._drafted < DRAFTED:
            return None
        share, before = self._accepted / self._drafted, self._before()
        if self.collapsed:
            self.collapsed = share < (NOTHING * 2 if before is None else RECOVERED * before)
            return None
        self.collapsed = share < NOTHING or (before is not None and share < FELL * before)
        return Collapse(share, before, tuple(self._last)) if self.collapsed else None

    def _before(self) -> float | None:
        return self._accepted_before / self._drafted_before if self._drafted_before >= BEFORE else None

    def _let_go(self) -> None:
        """Move the oldest answers to those before, as long as enough are left to judge by."""
        while len(self._last) > ANSWERS and self._drafted - (self._last[0].drafted or 0) >= DRAFTED:
            old = self._last.popleft()
            self._accepted -= old.accepted
            self._drafted -= old.drafted or 0
            if not self.collapsed:
                self._accepted_before += old.accepted
                self._drafted_before += old.drafted or 0
