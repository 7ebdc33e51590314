"""Which lines of a log a rule applies to: a text that is searched, or what the page shows as an error.

Works on the host, on blocks of 1 MiB, and stops at once when asked. The unit is the line, as in `grep -c`.
Lines longer than 1 MiB are looked through in parts.
"""

import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from jobs.logs.ansi import without_sequences
from jobs.logs.render import LOOK, level

BLOCK = 1024 * 1024
MOST = 10_000  # lines that are counted
SECONDS = 2.0  # that one call may take; the next one goes on where it stopped

Read = Callable[[int, int], bytes]
Way = Literal["here", "next", "prev", "count"]


class Rule(Protocol):
    """Something that is true for some lines; equal rules are equal values."""

    def lines(self, block: bytes, fresh: bool) -> list[int]:
        """Return where these lines begin in a block of whole lines; its first one is whole if `fresh`."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Text:
    """Lines that contain a text as the page shows it. `fold` ignores the case of the letters A to Z."""

    needle: bytes
    fold: bool

    @classmethod
    def of(cls, text: str, fold: bool) -> "Text":
        """Return the rule for a text, which has no line end."""
        needle = text.encode("utf-8", "replace")
        return cls(needle.lower() if fold else needle, fold)

    def lines(self, block: bytes, fresh: bool) -> list[int]:
        shown = without_sequences(block)
        return _in_block(block, shown, _lines_with(shown.lower() if self.fold else shown, self.needle))


@dataclass(frozen=True)
class Errors:
    """Lines that the page shows as errors."""

    def lines(self, block: bytes, fresh: bool) -> list[int]:
        # Finding bytes is a hundred times faster than asking each line for its level.
        shown = without_sequences(block)
        lower = shown.lower()
        maybe = {begin for word in (b"error", b"fail", b"fatal") for begin in _lines_with(lower, word)}
        maybe.update(_lines_with(shown, b"E "))
        begins = [begin for begin in sorted(maybe) if (begin or fresh) and _is_error(shown, begin)]
        return _in_block(block, shown, begins)


def _is_error(shown: bytes, begin: int) -> bool:
    end = shown.find(b"\n", begin, begin + 4 * LOOK)
    return level(shown[begin : begin + 4 * LOOK if end < 0 else end].decode("utf-8", "replace")) == " e"


def _lines_with(text: bytes, needle: bytes) -> list[int]:
    begins: list[int] = []
    at = text.find(needle)
    while at >= 0:
        begins.append(text.rfind(b"\n", 0, at) + 1)
        end = text.find(b"\n", at)
        at = text.find(needle, end) if end >= 0 else -1
    return begins


def _in_block(block: bytes, shown: bytes, begins: list[int]) -> list[int]:
    """Return where the lines that begin at these bytes of the shown text begin in the block."""
    if len(shown) == len(block):
        return begins
    places: list[int] = []
    done = place = 0
    for begin in begins:
        for _ in range(shown.count(b"\n", done, begin)):
            place = block.index(b"\n", place) + 1
        done = begin
        places.append(place)
    return places


def blocks(read: Read, start: int, end: int, fresh: bool) -> Iterator[tuple[int, bytes, bool]]:
    """Yield (offset, whole lines, whether the first one is whole); an unfinished line comes last, alone."""
    rest = b""
    while start < end:
        data = read(start, min(start + BLOCK, end))
        if not data:
            return  # the file became shorter
        start += len(data)
        data = rest + data
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) >= BLOCK:
            cut = len(data)
        if cut:
            yield start - len(data), data[:cut], fresh
            fresh = data[cut - 1 : cut] == b"\n"
        rest = data[cut:]
    if rest:
        yield start - len(rest), rest, fresh


@dataclass(frozen=True)
class Place:
    """From where to go to the next line: `at` is a byte, usually the first one of a line."""

    at: int
    way: Way


@dataclass(frozen=True)
class Found:
    """A line's first byte and its number among all that were found; None when there is none.

    `count` of them are known; `more` says that counting stopped at 10,000, `complete` that the time sufficed.
    """

    at: int | None
    index: int | None
    count: int
    more: bool
    complete: bool


@dataclass
class Limits:
    """When to stop: at a time of `time.monotonic()`, or when nobody waits any more."""

    stop: threading.Event
    until: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    def reached(self) -> bool:
        """True when no further block may be looked at."""
        return self.stop.is_set() or time.monotonic() >= self.until


class Hits:
    """The first 10,000 lines of one log to which one rule applies, kept between calls."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._at = array("Q")
        self._scanned = 0  # up to here; the end of a line, unless that is longer than a block
        self._fresh = True
        self._more = False

    def find(self, read: Read, first: int, end: int, place: Place, limits: Limits) -> Found:
        """Look on to the end of the log, then go from the place to the next line."""
        complete, last = self._scan(read, first, end, limits)
        at = array("Q", self._at[bisect_left(self._at, first) :])
        if last is not None:
            at.append(last)
        known = complete and not self._more
        found = None if place.way == "count" else _near(at, place, known)
        if found is None and place.way != "count" and not known and not limits.reached():
            found = self._far(read, first, end, place, limits)
        elif found is None and known and at and place.way != "count":
            found = at[-1] if place.way == "prev" else at[0]  # around the end
        index = bisect_left(at, found) if found is not None else len(at)
        number = index + 1 if index < len(at) and at[index] == found else None
        return Found(found, number, min(len(at), MOST), self._more, complete and not limits.stop.is_set())

    def _scan(self, read: Read, first: int, end: int, limits: Limits) -> tuple[bool, int | None]:
        """Return whether the end was reached, and the unfinished last line if the rule applies to it now."""
        if self._scanned < first:
            self._scanned, self._fresh = first, True
        if self._more:
            return True, None
        for offset, data, fresh in blocks(read, self._scanned, end, self._fresh):
            found = self._rule.lines(data, fresh)
            if not data.endswith(b"\n") and len(data) < BLOCK:
                return True, offset + found[0] if found else None
            self._at.extend(offset + begin for begin in found[: MOST - len(self._at) + 1])
            self._scanned, self._fresh = offset + len(data), data.endswith(b"\n")
            if len(self._at) > MOST:
                del self._at[MOST:]
                self._more = True
                return True, None
            if limits.reached():
                return self._scanned >= end, None
        return True, None

    def _far(self, read: Read, first: int, end: int, place: Place, limits: Limits) -> int | None:
        """Look from the place on, and from the other end when there is nothing."""
        at = max(first, min(place.at, end))
        if place.way == "prev":
            found = self._before(read, first, at, limits)
            return self._before(read, first, end, limits) if found is None else found
        found = self._after(read, first, at, end, at + (place.way == "next"), limits)
        return self._after(read, first, first, end, first, limits) if found is None else found

    def _after(self, read: Read, first: int, at: int, end: int, least: int, limits: Limits) -> int | None:
        for offset, data, fresh in blocks(read, at, end, _begins_line(read, at, first)):
            if limits.reached():
                return None
            for line in self._rule.lines(data, fresh):
                if offset + line >= least:
                    return offset + line
        return None

    def _before(self, read: Read, first: int, end: int, limits: Limits) -> int | None:
        """Return the last line that begins before `end`."""
        while end > first and not limits.reached():
            begin = max(first, end - BLOCK)
            data = read(begin, end)
            fresh = _begins_line(read, begin, first)
            head = 0 if fresh else data.find(b"\n") + 1
            if 0 < head < len(data):
                begin, data, fresh = begin + head, data[head:], True
            lines = self._rule.lines(data, fresh)
            if lines:
                return begin + lines[-1]
            end = begin
        return None


def _near(at: "array[int]", place: Place, known: bool) -> int | None:
    """Return the next line among those that are known, None when it may be another one."""
    if place.way == "prev":
        index = bisect_left(at, place.at) - 1
        return at[index] if index >= 0 and (known or place.at <= at[-1]) else None
    index = bisect_left(at, place.at) if place.way == "here" else bisect_right(at, place.at)
    return at[index] if index < len(at) else None


def _begins_line(read: Read, at: int, first: int) -> bool:
    return at <= first or read(at - 1, at) == b"\n"
