"""The last 4 MiB of a log in memory, rendered once; viewers are cursors into it."""

from bisect import bisect_right
from dataclasses import dataclass

from jobs.logs import render
from jobs.logs.cut import BATCH

KEEP = 4 * 1024 * 1024  # bytes of text kept for viewers that lag
SLACK = KEEP // 8
FRAME = 256 * 1024  # bytes of HTML in one message
CHUNKS = 4096  # above this small chunks are joined


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
    html: bytes = b""

    def rendered(self, after: int) -> bytes:
        if after > self.start:
            head = after - self.start
            fresh = self.raw[head - 1 : head] == b"\n"
            return render.render(self.raw[head:], after, fresh).encode()
        if not self.html:
            self.html = render.render(self.raw, self.start, self.fresh).encode()
        return self.html


class Window:
    """Text from byte `start` to `end`; grows at its end and loses its head."""

    def __init__(self, at: int, fresh: bool) -> None:
        self.start = self.end = at
        self._fresh = fresh
        self._count = Count()
        self._chunks: list[_Chunk] = []

    def cursor(self, at: int) -> Cursor:
        """Return the cursor of a viewer that has the text up to byte `at`."""
        return Cursor(at, self._count if at == self.end else None)

    def add(self, data: bytes) -> None:
        """Append text; whole characters only."""
        start, self.end = self.end, self.end + len(data)
        self._chunks.append(_Chunk(start, self.end, data, self._fresh, self._count))
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
        while place < len(self._chunks):
            html = self._chunks[place].rendered(at)
            if parts and size + len(html) > FRAME:
                break
            parts.append(html)
            size += len(html)
            at = self._chunks[place].end
            place += 1
        count = self._chunks[place].before if place < len(self._chunks) else self._count
        return Piece(gap + render.piece(b"".join(parts).decode(), start, at), Cursor(at, count))

    def _drop(self, number: int) -> None:
        del self._chunks[:number]
        self.start = self._chunks[0].start if self._chunks else self.end

    def _join(self) -> None:
        joined: list[_Chunk] = []
        for chunk in self._chunks:
            last = joined[-1] if joined else None
            if last is None or len(last.raw) + len(chunk.raw) > BATCH:
                joined.append(_Chunk(chunk.start, chunk.end, chunk.raw, chunk.fresh, chunk.before))
            else:
                last.raw += chunk.raw
                last.end = chunk.end
        self._chunks = joined
