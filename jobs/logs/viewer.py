"""What one viewer of a log gets: a snapshot of the last lines, then all that follows, frame by frame."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from channels.db import database_sync_to_async

from jobs.adapters import hostlink
from jobs.logs import hub, render
from jobs.logs.ansi import Style, style_after
from jobs.logs.cut import batch_ends, utf8_cut, utf8_start
from jobs.logs.ranges import style_before
from jobs.logs.window import FRAME
from jobs.models import Run

SNAPSHOT_LINES = 500
SNAPSHOT = 1024 * 1024  # bytes, at most
INTERVAL = 0.1  # seconds between two frames

Send = Callable[[str], Awaitable[None]]


async def follow(run_id: str, send: Send) -> None:
    """Send the run's log until cancelled; `send` returns when the connection takes more."""
    while True:
        await _follow_file(run_id, send)


async def _follow_file(run_id: str, send: Send) -> None:
    run = await database_sync_to_async(Run.objects.select_related("host").get, thread_sensitive=False)(
        pk=run_id
    )
    link = hostlink.link(run.host.slug)
    start, data = await hub.in_thread(link.log_tail, run_id, SNAPSHOT_LINES, run.log_start)
    start, data = _bounded(start, data)
    if run.state in Run.ACTIVE:
        data = data[: utf8_cut(data)]
    end = start + len(data)
    style = await hub.in_thread(style_before, link, run_id, start, run.log_start)
    source = hub.join(run_id, link, end, not data or data.endswith(b"\n"), style_after(data, style))
    try:
        generation, cursor = source.generation, source.window.cursor(end)
        replace = True
        for html in _snapshot(start, data, run.log_start, style):
            await send(render.frame(run_id, html, replace=replace))
            replace = False
            await asyncio.sleep(INTERVAL)
        while source.generation == generation:
            piece = source.window.after(cursor)
            if piece is None:
                await source.wait(cursor.at, generation)
                continue
            await send(render.frame(run_id, piece.html))
            cursor = piece.cursor
            await asyncio.sleep(INTERVAL)
    finally:
        hub.leave(source)


def _bounded(start: int, data: bytes) -> tuple[int, bytes]:
    """Return the last 1 MiB, begun at a line where one begins there."""
    if len(data) > SNAPSHOT:
        start, data = start + len(data) - SNAPSHOT, data[-SNAPSHOT:]
        begin = data.find(b"\n") + 1 or utf8_start(data)
        start, data = start + begin, data[begin:]
    return start, data


def _snapshot(start: int, data: bytes, first: int, style: Style) -> Iterator[str]:
    """Yield the messages' content; the first carries the log's start and may be empty."""
    parts: list[str] = []
    size, done, begin = 0, 0, 0
    opening = True
    for cut in batch_ends(data, final=True):
        fresh = done == 0 or data[done - 1 : done] == b"\n"
        html = render.render(data[done:cut], start + done, fresh, style)
        style = style_after(data[done:cut], style)
        if parts and size + len(html) > FRAME:
            yield render.piece("".join(parts), start + begin, start + done, first=first, snapshot=opening)
            parts, size, begin, opening = [], 0, done, False
        parts.append(html)
        size += len(html)
        done = cut
    yield render.piece("".join(parts), start + begin, start + done, first=first, snapshot=opening)
