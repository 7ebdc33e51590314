"""Which connection fetches which chunks: cut, taken over, given back. Safe for threads."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable

from jobs.domain.transfer import CHUNK, request_length

SLOW = 10.0  # seconds for one chunk, after which a connection with nothing else to do takes it over


class Span:
    """Bytes `at` to `end` of a file, that one connection fetches one after the other.

    `at` is moved by the owner alone; `hash` is that of the chunk it is in, up to there. `end` lies at a
    chunk's border (or the file's end); the plan may move it to the front, never into the owner's chunk.
    Whoever moves `at` or `hash` holds `lock` and looks whether it is the owner still.
    """

    def __init__(self, at: int, end: int) -> None:
        self.at = at
        self.end = end
        self.hash = hashlib.sha256()
        self.owner: object = None
        self.waiting = False
        self.since = 0.0  # when the owner began with this chunk
        self.lock = threading.Lock()


class Plan:
    """The chunks that are missing, and who fetches which. `size` in bytes, gaps in chunks.

    With 0 connections nothing is cut: each gap is fetched in one go.
    """

    def __init__(self, size: int, gaps: Iterable[tuple[int, int]], connections: int) -> None:
        self._size = size
        self._connections = connections
        self._lock = threading.Lock()
        self._gaps = list(gaps)
        self._spans: list[Span] = []

    def take(self, owner: object, now: float) -> Span | None:
        """Return the next span for a connection; None when there is nothing it could help with.

        First what nobody has, then a whole span whose owner waits, then the second half of the longest one,
        at last one whose owner takes long for a chunk. `now` in seconds of any clock.
        """
        with self._lock:
            span = self._fresh() or self._waiting() or self._half() or self._slow(now)
            if span is not None:
                with span.lock:
                    span.owner, span.waiting, span.since = owner, False, now
            return span

    def lost(self, index: int) -> None:
        """Put one chunk back that has to be fetched again."""
        with self._lock:
            self._gaps.insert(0, (index, index + 1))

    def next_chunk(self, span: Span, owner: object, now: float) -> bool:
        """Move an owner that stands at a chunk's border into the next one; False when its span ends there."""
        with self._lock:
            if span.owner is not owner:
                return False
            span.since = now
            if span.at < span.end:
                return True
            self._spans.remove(span)
            return False

    def wait(self, span: Span, owner: object) -> None:
        """Say that the owner cannot go on for a while: another connection may take the span over."""
        with self._lock:
            if span.owner is owner:
                span.waiting = True

    def go_on(self, span: Span, owner: object) -> bool:
        """Say that the owner goes on; False when the span was taken over."""
        with self._lock:
            if span.owner is not owner:
                return False
            span.waiting = False
            return True

    def _fresh(self) -> Span | None:
        if not self._gaps:
            return None
        first, last = self._gaps[0]
        left = sum(end - start for start, end in self._gaps)
        cut = min(last, first + request_length(left, self._connections)) if self._connections else last
        self._gaps[0:1] = [(cut, last)] if cut < last else []
        return self._added(first, cut)

    def _waiting(self) -> Span | None:
        return next((span for span in self._spans if span.waiting), None)

    def _slow(self, now: float) -> Span | None:
        late = (span for span in self._spans if now - span.since > SLOW and span.at < span.end)
        return min(late, key=lambda span: span.since, default=None)

    def _half(self) -> Span | None:
        longest = max(self._spans, key=_untouched, default=None)
        if longest is None or _untouched(longest) < 1:
            return None
        last = -(-longest.end // CHUNK)
        cut = last - (_untouched(longest) + 1) // 2
        longest.end = cut * CHUNK
        return self._added(cut, last)

    def _added(self, first: int, last: int) -> Span:
        span = Span(first * CHUNK, min(last * CHUNK, self._size))
        self._spans.append(span)
        return span


def _untouched(span: Span) -> int:
    """Return the chunks after the one that the owner is in."""
    return -(-span.end // CHUNK) - (span.at // CHUNK + 1)
