"""The last 4 MiB of a log in memory, rendered once; viewers are cursors into it."""

from bisect import bisect_right
from dataclasses import dataclass, replace

from jobs.logs import render
from jobs.logs.ansi import PLAIN, Style, style_after
from jobs.logs.cut import BATCH, BATCH_LINES

KEEP = 4 * 1024 * 1024  # bytes of text kept for viewers that lag
SLACK = KEEP // 8
FRAME = 256 * 1024  # bytes of HTML in one message
CHUNKS = 4096  # above this small chunks are joined
TOGETHER = 1.0  # seconds between the arrivals of texts that are sent as one frame, with one time
BLOATED = 4  # HTML that is so many times longer than its text is made anew for each viewer


@dataclass(frozen=True)
class Count:
    """Line ends since the window was made, and the bytes among them that nobody counted."""

    lines: int = 0
    unseen: int = 0


@dataclass(frozen=True)
class Cursor:
    """A viewer's place: the byte up to which it has the text, and the count there when it is known."""

    at: int
    count: Count | None


@dataclass(frozen=True)
class Piece:
    """What a viewer gets next and where it stands then."""

    html: str
    cursor: Cursor


@dataclass(slots=True)
class _Chunk:
    start: int
    end: int
    raw: bytes
    fresh: bool
    before: Count
    style: Style
    time: float | None
    html: bytes = b""

    def rendered(self, after: int) -> bytes:
        if after > self.start:
            head = after - self.start
            fresh = self.raw[head - 1 : head] == b"\n"
            style = style_after(self.raw[:head], self.style)
            return render.render(self.raw[head:], after, fresh, style).encode()
        if self.html:
            return self.html
        html = render.render(self.raw, self.start, self.fresh, self.style).encode()
        if len(html) <= BLOATED * len(self.raw):
            self.html = html
        return html


class Window:
    """Text from byte `start` to `end`; grows at its end and loses its head."""

    def __init__(self, at: int, fresh: bool, style: Style = PLAIN) -> None:
        self.start = self.end = at
        self._fresh = fresh
        self._style = style
        self._count = Count()
        self._chunks: list[_Chunk] = []

    def cursor(self, at: int) -> Cursor:
        """Return the cursor of a viewer that has the text up to byte `at`."""
        return Cursor(at, self._count if at == self.end else None)

    def add(self, data: bytes, time: float | None = None) -> None:
        """Append text, whole characters only; `time` is when it arrived, None when that is not known."""
        start, self.end = self.end, self.end + len(data)
        self._chunks.append(_Chunk(start, self.end, data, self._fresh, self._count, self._style, time))
        self._style = style_after(data, self._style)
        self._count = Count(self._count.lines + data.count(b"\n"), self._count.unseen)
        self._fresh = data.endswith(b"\n")
        if self.end - self.start > KEEP + SLACK:
            self._drop(bisect_right(self._chunks, self.end - KEEP, key=lambda chunk: chunk.end))
        if len(self._chunks) > CHUNKS:
            self._join()

    def jump(self, at: int) -> None:
        """Go on at a later byte; what lies between was not read."""
        self._count = Count(self._count.lines, self._count.unseen + at - self.end)
        self._chunks.clear()
        self.start = self.end = at
        self._fresh = True
        self._style = PLAIN

    def after(self, cursor: Cursor) -> Piece | None:
        """Return up to one frame of what follows the cursor; None when nothing does.

        A cursor before the window is more than 4 MiB behind: it is put ahead, after a gap.
        """
        if cursor.at >= self.end:
            return None
        if cursor.at < self.start:
            place = bisect_right(self._chunks, self.end - FRAME, key=lambda chunk: chunk.start)
            return self._skip(cursor, min(place, len(self._chunks) - 1))
        place = bisect_right(self._chunks, cursor.at, key=lambda chunk: chunk.end)
        return self._frame(place, cursor.at, "")

    def _skip(self, cursor: Cursor, place: int) -> Piece:
        if place < 0:
            return Piece(render.gap(cursor.at, self.end, None), Cursor(self.end, self._count))
        chunk = self._chunks[place]
        known = cursor.count is not None and cursor.count.unseen == chunk.before.unseen
        lines = chunk.before.lines - cursor.count.lines if known and cursor.count else None
        return self._frame(place, chunk.start, render.gap(cursor.at, chunk.start, lines))

    def _frame(self, place: int, at: int, gap: str) -> Piece:
        parts: list[bytes] = []
        size, start = 0, at
        time = self._chunks[place].time
        while place < len(self._chunks) and _together(time, self._chunks[place].time):
            html = self._chunks[place].rendered(at)
            if parts and size + len(html) > FRAME:
                break
            parts.append(html)
            size += len(html)
            at = self._chunks[place].end
            place += 1
        count = self._chunks[place].before if place < len(self._chunks) else self._count
        piece = render.piece(b"".join(parts).decode(), start, at, time=time)
        return Piece(gap + piece, Cursor(at, count))

    def _drop(self, number: int) -> None:
        del self._chunks[:number]
        self.start = self._chunks[0].start if self._chunks else self.end

    def _join(self) -> None:
        joined: list[_Chunk] = []
        lines = 0
        for chunk in self._chunks:
            last = joined[-1] if joined else None
            lines += chunk.raw.count(b"\n")
            if last is None or len(last.raw) + len(chunk.raw) > BATCH or lines > BATCH_LINES:
                joined.append(replace(chunk, html=b""))
                lines = chunk.raw.count(b"\n")
            else:
                last.raw += chunk.raw
                last.end = chunk.end
                last.time = last.time if _together(last.time, chunk.time) else None
        self._chunks = joined


def _together(first: float | None, then: float | None) -> bool:
    """True when one time is near enough to the truth for both texts."""
    if first is None or then is None:
        return first is then
    return abs(then - first) <= TOGETHER
