"""Ships the logs of active runs into Redis streams, from which web processes read them.

One stream per run, `log:<run id>`. An entry's id is `<end>-0`, where end is the byte of the file at which its
data ends, so the stream itself remembers how far the log was shipped; nothing else does. The last entry is
`<end>-1` with the field eof. What the stream no longer holds is read from the file.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from jobs.logs.cut import batch_ends, utf8_start

logger = logging.getLogger(__name__)

STREAM_LENGTH = 512  # entries, of at most 16 KB each
READ = 256 * 1024
CATCH_UP = 4 * 1024 * 1024  # a stream that was lost begins so far before the end of the file
POLL_BUSY, POLL_IDLE = 0.03, 0.08  # seconds between two looks at a file
HOLD = 0.1  # seconds that an unfinished line waits for its end
LOOK = 0.5  # seconds between two looks at which runs are active
KEEP_ENDED = 3600  # seconds that the stream of an ended run stays
RETRY = (0.1, 2.0)  # seconds, first and longest pause while Redis is away
LEFTOVERS_AFTER = 15.0  # seconds after the start, when it is known which runs are active
THREADS = 8

T = TypeVar("T")
_RUN_ID = re.compile(r"[A-Za-z0-9-]{1,64}")


def stream_of(run_id: str) -> str:
    """Return the name of the run's stream."""
    return f"log:{run_id}"


class LogShipper:
    """Tails `<runs folder>/<id>/log` of every active run; only one may work per host (the agent's lock)."""

    def __init__(self, redis_client_factory: Callable[[], Redis], runs_folder: Path) -> None:
        self._client = redis_client_factory
        self._folder = runs_folder
        # Own threads, one read per run at a time: a slow disk delays only the runs that wait for it.
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="log")
        self._tails: dict[str, _Tail] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._active: set[str] = set()
        self._leftovers: asyncio.Task[None] | None = None

    async def run(self, active: Callable[[], set[str]]) -> None:
        """Ship until cancelled; `active` is asked twice a second which runs are active and must not block."""
        try:
            while True:
                try:
                    await self.ship(active())
                except Exception:
                    logger.exception("which runs are active is not known")
                await asyncio.sleep(LOOK)
        finally:
            await self.close()

    async def ship(self, run_ids: set[str]) -> None:
        """Begin with runs that are new in the set; let those that left it ship their rest and end."""
        self._active = run_ids
        for run_id in run_ids:
            if run_id not in self._tasks:
                self._start(run_id)
        for run_id, tail in self._tails.items():
            if run_id not in run_ids:
                tail.ended.set()
        if self._leftovers is None:
            self._leftovers = asyncio.create_task(self._end_leftovers())
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Stop at once; a later shipper goes on where the streams end."""
        tasks = {*self._tasks.values(), *([self._leftovers] if self._leftovers else [])}
        while tasks:  # redis-py loses a cancellation that comes while it connects
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=0.5)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, run_id: str) -> "_Tail":
        tail = _Tail(run_id, self._folder / run_id / "log", self._client(), self._pool)
        task = asyncio.create_task(tail.follow(), name=f"log {run_id}")
        self._tails[run_id], self._tasks[run_id] = tail, task
        task.add_done_callback(lambda _: (self._tails.pop(run_id, None), self._tasks.pop(run_id, None)))
        return tail

    async def _end_leftovers(self) -> None:
        # Runs that ended while no shipper was there: their streams lack the rest and the last entry.
        await asyncio.sleep(LEFTOVERS_AFTER)
        pause = _Pause()
        while True:
            try:
                client = self._client()
                async for key in client.scan_iter(match=stream_of("*")):
                    run_id = key.decode().removeprefix(stream_of(""))
                    known = run_id in self._active or run_id in self._tasks
                    if not known and _RUN_ID.fullmatch(run_id) and await client.ttl(key) == -1:
                        self._start(run_id).ended.set()
                return
            except (RedisError, OSError):
                await pause.wait()


class _Tail:
    """One run's log on its way into its stream."""

    def __init__(self, run_id: str, path: Path, client: Redis, pool: ThreadPoolExecutor) -> None:
        self.ended = asyncio.Event()
        self._run_id = run_id
        self._path = path
        self._key = stream_of(run_id)
        self._client = client
        self._pool = pool
        self._has_end = False  # the stream's last entry is eof

    async def follow(self) -> None:
        """Ship until the run has ended and all of its log is in the stream."""
        pause = _Pause()
        while True:
            try:
                cursor = await self._resume()
                await self._ship_from(cursor, pause)
                return
            except ResponseError as error:
                # An id that the stream has passed was shipped already, by a request whose answer got lost.
                if "equal or smaller" not in str(error):
                    pause.warn("the log of run %s is not shipped: %s", self._run_id, error)
                await pause.wait()
            except (RedisError, OSError) as error:
                pause.warn("the log of run %s waits: %s", self._run_id, error)
                await pause.wait()

    async def _resume(self) -> int | None:
        """Return the byte up to which the stream has the log; None where there is no stream."""
        try:
            info = await self._client.xinfo_stream(self._key)
        except ResponseError as error:
            if "no such key" in str(error):
                return None
            raise
        last = info["last-generated-id"]
        end, number = (last.decode() if isinstance(last, bytes) else str(last)).split("-")
        self._has_end = number == "1"
        if self._has_end and not self.ended.is_set():
            await self._client.persist(self._key)  # it was taken for ended too early
        return int(end)

    async def _ship_from(self, cursor: int | None, pause: "_Pause") -> None:
        held_since: float | None = None
        while True:
            ended = self.ended.is_set()  # before the look at the file, so that the look sees all of it
            if cursor is None:
                cursor = await self._in_thread(_first_byte, self._path)
            size, data = await self._in_thread(_read, self._path, cursor)
            if size < 0 and ended:
                await self._client.expire(self._key, KEEP_ENDED)
                return
            if 0 <= size < cursor:
                logger.error("the log of run %s became shorter: %d of %d bytes", self._run_id, size, cursor)
                await self._client.delete(self._key)
                cursor = 0
                continue
            now = time.monotonic()
            flush = held_since is not None and now - held_since >= HOLD
            ends = batch_ends(data, flush=flush, final=ended and cursor + len(data) >= size)
            if ends:
                await self._add(cursor, data, ends)
                self._has_end = False
                pause.reset()
                cursor += ends[-1]
            rest = bool(data) and (not ends or ends[-1] < len(data))
            held_since = None if not rest else now if ends or held_since is None else held_since
            if ended and cursor >= size:
                if not self._has_end:
                    await self._finish(cursor)
                return
            if len(data) < READ:
                await asyncio.sleep(POLL_BUSY if data else POLL_IDLE)

    async def _add(self, cursor: int, data: bytes, ends: list[int]) -> None:
        # One transaction: a server without memory takes all of it or nothing.
        pipe = self._client.pipeline(transaction=True)
        begin = 0
        for end in ends:
            fields = {"start": cursor + begin, "data": data[begin:end]}
            pipe.xadd(self._key, fields, id=f"{cursor + end}-0", maxlen=STREAM_LENGTH, approximate=True)  # type: ignore[arg-type]
            begin = end
        await pipe.execute()

    async def _finish(self, cursor: int) -> None:
        pipe = self._client.pipeline(transaction=True)
        pipe.xadd(self._key, {"eof": 1}, id=f"{cursor}-1", maxlen=STREAM_LENGTH, approximate=True)
        pipe.expire(self._key, KEEP_ENDED)
        await pipe.execute()

    async def _in_thread(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)


class _Pause:
    """Growing pauses between attempts, and at most one warning a minute."""

    def __init__(self) -> None:
        self.reset()
        self._warned = float("-inf")

    def reset(self) -> None:
        self._seconds = RETRY[0]

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)
        self._seconds = min(self._seconds * 2, RETRY[1])

    def warn(self, text: str, *args: object) -> None:
        if time.monotonic() - self._warned > 60:
            self._warned = time.monotonic()
            logger.warning(text, *args)


def _read(path: Path, cursor: int) -> tuple[int, bytes]:
    """Return the file's size, -1 where there is none, and what follows the cursor, at most READ bytes."""
    try:
        size = path.stat().st_size
        if size <= cursor:
            return size, b""
        with path.open("rb", buffering=0) as file:
            file.seek(cursor)
            return size, file.read(READ)
    except FileNotFoundError:
        return -1, b""


def _first_byte(path: Path) -> int:
    """Return where a stream that is new begins: the first line within the last 4 MiB of the file."""
    try:
        size = path.stat().st_size
        if size <= CATCH_UP:
            return 0
        with path.open("rb", buffering=0) as file:
            begin = size - CATCH_UP
            file.seek(begin)
            head = file.read(READ)
    except FileNotFoundError:
        return 0
    line_end = head.find(b"\n")
    return begin + (line_end + 1 if line_end >= 0 else utf8_start(head))
