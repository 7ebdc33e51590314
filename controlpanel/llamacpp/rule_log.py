"""A log as the rules read it: bounded, without colours and overwritten progress, found by literals."""

from __future__ import annotations

import re
from collections.abc import Iterator

from controlpanel.llamacpp.rule_types import Evidence

MAX_BYTES = 16 * 1024 * 1024
MAX_LINE = 4096
MAX_EVIDENCE = 500
# What one pattern looks at, and what a line costs beside its length: hostile logs repeat a literal millions
# of times.
MAX_LOOKED_AT = 2 * 1024 * 1024
_PER_LINE = 200

_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-9;:?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)"
    rb"|[()][0-9A-Z]|[=>78cDEHM])"
)
_LONG = re.compile(rb"(?m)^[^\n]{%d,}" % (MAX_LINE + 1))
# Progress dots end without a newline, so the next message follows them on their line.
_DOTS = re.compile(rb"(?m)^\.{3,}(?=[^.\s])")


class Log:
    """The last 16 MiB of a log as text: one line per line feed or carriage return, each at most 4 KiB."""

    def __init__(self, log: bytes | str) -> None:
        self._raw = log.encode("utf-8", "replace") if isinstance(log, str) else log
        self._cut = max(0, len(self._raw) - MAX_BYTES)
        # Same length as the bytes, so that a position in it is one in the log.
        tail = self._raw[self._cut :].replace(b"\r\n", b" \n").replace(b"\r", b"\n")
        clean = _DOTS.sub(b"", _ESCAPE.sub(b"", tail)).replace(b"\x00", b"")
        self._tail = tail
        self._lines_cut = self._raw.count(b"\n", 0, self._cut)
        self.text = _LONG.sub(_shortened, clean).decode("utf-8", "replace")

    def lines_with(self, literal: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of the lines that contain a literal, in their order and up to a bound."""
        looked_at = 0
        hit = self.text.find(literal)
        while hit >= 0 and looked_at < MAX_LOOKED_AT:
            start, end = self._bounds(hit)
            yield start, end
            looked_at += end - start + _PER_LINE
            hit = self.text.find(literal, end)

    def last_line(self) -> tuple[int, int]:
        """Return start and end of the last line that is not blank; of nothing, where all are."""
        return self._bounds(max(0, len(self.text.rstrip()) - 1))

    def above(self, start: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield up to `count` lines above the one that starts here, the nearest first."""
        for _ in range(count):
            if start == 0:
                return
            start, end = self._bounds(start - 1)
            yield start, end

    def below(self, end: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield up to `count` lines below the one that ends here, the nearest first."""
        for _ in range(count):
            if end >= len(self.text):
                return
            start, end = self._bounds(end + 1)
            yield start, end

    def evidence(self, start: int, end: int, at: int = 0) -> Evidence:
        """Return a line as evidence; `at` is where in it the telling part begins."""
        place = self._cut + self._place(self.text.count("\n", 0, start))
        line = self._lines_cut + self._raw.count(b"\n", self._cut, place)
        text = self.text[start:end]
        first = max(0, min(at - 100, len(text) - MAX_EVIDENCE)) if len(text) > MAX_EVIDENCE else 0
        shown = text[first : first + MAX_EVIDENCE].rstrip()
        return Evidence(line, self._raw.rfind(b"\n", 0, place) + 1, shown)

    def _bounds(self, position: int) -> tuple[int, int]:
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        return start, len(self.text) if end < 0 else end

    def _place(self, ends: int) -> int:
        """Return the position behind the n-th line end of the tail, by halving: each step counts once."""
        low, high = 0, len(self._tail)
        while ends and high - low > 1:
            middle = (low + high) // 2
            before = self._tail.count(b"\n", low, middle)
            if before >= ends:
                high = middle
            else:
                low, ends = middle, ends - before
        return high if ends else 0


def literal_of(pattern: str) -> str:
    """Return the longest text that each match of a regex contains; ValueError when it is too short."""
    runs, run, i = [], "", 0
    while i < len(pattern):
        char = pattern[i]
        if char == "|":
            raise ValueError(f"alternatives outside of a group: {pattern}")
        if char == "\\" and not pattern[i + 1].isalnum():
            run, i = run + pattern[i + 1], i + 2
            continue
        if char in "*?{":
            runs.append(run[:-1])
            run, i = "", _behind(pattern, i, "}") if char == "{" else i + 1
        elif char in "\\.^$+[(":
            runs.append(run)
            run = ""
            i = _group_end(pattern, i) if char in "[(" else i + (2 if char == "\\" else 1)
        else:
            run, i = run + char, i + 1
    longest = max([*runs, run], key=len)
    if len(longest) < 3:
        raise ValueError(f"no literal of three characters: {pattern}")
    return longest


def _group_end(pattern: str, i: int) -> int:
    """Return the position behind the class or group that opens here."""
    if pattern[i] == "[":
        i += 2 if pattern[i + 1] == "^" else 1
        i += pattern[i] == "]"
        while pattern[i] != "]":
            i += 2 if pattern[i] == "\\" else 1
        return i + 1
    i += 1
    while pattern[i] != ")":
        i = _group_end(pattern, i) if pattern[i] in "[(" else i + (2 if pattern[i] == "\\" else 1)
    return i + 1


def _behind(pattern: str, i: int, char: str) -> int:
    return pattern.index(char, i) + 1


def _shortened(match: re.Match[bytes]) -> bytes:
    half = MAX_LINE // 2
    return match[0][: half - 5] + b" ... " + match[0][-half:]
