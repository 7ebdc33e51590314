"""One reader per run and web process: keeps the last 4 MiB of a log for all viewers of it.

The run's stream is the fast way; the file is the truth. What the stream lacks (a gap, Redis away, no agent)
is read from the file. Text is rendered once, however many viewers show it.
"""

import asyncio
import logging
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from channels.db import database_sync_to_async
from redis.exceptions import RedisError

from controlpanel.lib.redis import async_client
from jobs.adapters.hostlink import RANGE, HostLink
from jobs.logs.ansi import Style
from jobs.logs.cut import BATCH, BATCH_LINES, batch_ends, utf8_start
from jobs.logs.window import Window
from jobs.models import Run
from jobs.runtime.shipper import stream_of

T = TypeVar("T")
logger = logging.getLogger(__name__)

WAIT = 1.0  # seconds without news after which the file is looked at
RECENT = 3.0  # what was not there so many seconds ago has arrived now
ENTRIES = 64
ROW_EVERY = 5.0  # seconds between two looks at the row of a quiet run
LINGER = 10.0  # seconds that a hub stays without viewers

_threads = ThreadPoolExecutor(8, thread_name_prefix="log-read")


async def in_thread(call: Callable[..., T], *args: object) -> T:
    """Run a call that may wait for the disk in one of the log readers' own threads."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(call, *args))


class LogHub:
    """Fills the window of one log, from byte `at` on, until the run has ended."""

    def __init__(self, run_id: str, link: HostLink, at: int, fresh: bool, style: Style) -> None:
        self.run_id = run_id
        self.window = Window(at, fresh, style)
        self.generation = 0  # grows when the file was replaced and viewers must begin anew
        self.viewers = 0
        self.closed = False
        self.reader: asyncio.Task[None] | None = None
        self._link = link
        self._news = asyncio.Event()
        self._ended = False
        self._row_seen = float("-inf")
        self._at_end = (
            time.monotonic()
        )  # when the window last had all of the file, as its first viewer has now

    async def wait(self, at: int, generation: int) -> None:
        """Return when there is text after byte `at`, or when the log began anew."""
        while self.window.end <= at and self.generation == generation:
            await self._news.wait()

    async def read(self) -> None:
        """Follow the stream, and the file where the stream is silent."""
        # redis-py loses a cancellation that comes while it connects, so the loop looks for itself.
        while not self._ended and not self.closed:
            try:
                await self._step()
            except Exception:
                logger.exception("reading the log of run %s", self.run_id)
                await asyncio.sleep(WAIT)

    async def _step(self) -> None:
        place: dict[Any, Any] = {stream_of(self.run_id): f"{self.window.end}-0"}
        try:
            found = await async_client().xread(place, count=ENTRIES, block=int(WAIT * 1000))
        except (RedisError, OSError):
            await asyncio.sleep(WAIT)
            found = None
        entries = [fields for _, fields in entries_of(found)]
        for start, data in _joined(entries):
            await self._take(start, data)
        eof = any(b"eof" in entry for entry in entries)
        if eof:
            self._row_seen = float("-inf")
        if eof or not entries:
            await self._look_at_file()
            if eof and not self._ended:
                await asyncio.sleep(WAIT)  # the row does not say yet that the run has ended

    async def _take(self, start: int, data: bytes) -> None:
        window = self.window
        if start > window.end:
            await self._read_file(window.end, start)
        if start > window.end:
            window.jump(start)
        if start + len(data) > window.end:
            window.add(data[window.end - start :], time.time())
            self._at_end = time.monotonic()
            self._tell()

    async def _look_at_file(self) -> None:
        active = True
        if time.monotonic() - self._row_seen >= ROW_EVERY:
            self._row_seen = time.monotonic()
            active = await _is_active(self.run_id)
        looked = time.monotonic()
        _, size = await in_thread(self._link.log_size, self.run_id)
        if size < self.window.end:
            self.window = Window(0, True)
            self.generation += 1
            self._tell()
        arrived = time.time() if time.monotonic() - self._at_end <= RECENT else None
        while self.window.end < size:
            before = self.window.end
            await self._read_file(before, size, final=not active, arrived=arrived)
            if self.window.end == before:
                break  # the rest is part of a character, or the file became shorter
        self._at_end = looked
        self._ended = not active

    async def _read_file(
        self, start: int, end: int, final: bool = True, arrived: float | None = None
    ) -> None:
        if end - start > RANGE:
            start = max(start, end - RANGE // 2)
        data = await in_thread(self._link.log_range, self.run_id, start, end)
        if start > self.window.end:
            begin = data.find(b"\n") + 1 or utf8_start(data)
            self.window.jump(start + begin)
            data = data[begin:]
        done = 0
        for cut in batch_ends(data, flush=True, final=final):
            self.window.add(data[done:cut], arrived)
            done = cut
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _is_active_now(run_id: str) -> bool:
    return Run.objects.filter(pk=run_id, state__in=Run.ACTIVE).exists()


_is_active = database_sync_to_async(_is_active_now, thread_sensitive=False, executor=_threads)


def entries_of(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Return the (id, fields) of the one stream that XREAD was asked for."""
    return answer[0][1] if answer else []


def _joined(entries: list[dict[bytes, bytes]]) -> list[tuple[int, bytes]]:
    """Return (start, data) of the entries, small ones that touch each other joined."""
    pieces: list[tuple[int, list[bytes], int]] = []
    lines = 0
    for fields in entries:
        if b"data" not in fields:
            continue
        start, data = int(fields[b"start"]), fields[b"data"]
        lines += data.count(b"\n")
        small = pieces and start + len(data) - pieces[-1][0] <= BATCH and lines <= BATCH_LINES
        if small and pieces[-1][2] == start:
            begin, parts, end = pieces[-1]
            parts.append(data)
            pieces[-1] = (begin, parts, end + len(data))
        else:
            pieces.append((start, [data], start + len(data)))
            lines = data.count(b"\n")
    return [(start, b"".join(parts)) for start, parts, _ in pieces]


_hubs: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, LogHub]]" = weakref.WeakKeyDictionary()


def join(run_id: str, link: HostLink, at: int, fresh: bool, style: Style) -> LogHub:
    """Return the run's hub for one more viewer.

    A new one begins at byte `at`, a line's first if `fresh`, in the style that the text before it left.
    """
    hubs = _hubs.setdefault(asyncio.get_running_loop(), {})
    hub = hubs.get(run_id)
    if hub is None or hub.closed or hub.reader is None or hub.reader.done():
        hub = hubs[run_id] = LogHub(run_id, link, at, fresh, style)
        hub.reader = asyncio.create_task(hub.read(), name=f"log hub {run_id}")
    hub.viewers += 1
    return hub


def leave(hub: LogHub) -> None:
    """Take a viewer away; the reader ends 10 s after the last one."""
    hub.viewers -= 1
    if not hub.viewers:
        asyncio.get_running_loop().call_later(LINGER, _end_if_unused, hub)


def _end_if_unused(hub: LogHub) -> None:
    hubs = _hubs.setdefault(asyncio.get_running_loop(), {})
    if not hub.viewers and hub.reader is not None:
        hub.closed = True
        hub.reader.cancel()
        if hubs.get(hub.run_id) is hub:
            del hubs[hub.run_id]
