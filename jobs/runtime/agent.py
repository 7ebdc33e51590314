"""The host agent: one asyncio loop per host that ships logs, watches runs and calls the registered duties."""

import asyncio
import fcntl
import inspect
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobs.runtime.duties import Duty

logger = logging.getLogger(__name__)
THREADS = 16
CANCELLED = 1.5  # seconds that duties have to end after they were cancelled
AT_END = 1.5  # seconds for what is done at the end, all together
STOP = 3.5  # seconds after which the process is gone; supervisord kills it after 4


class AlreadyRunning(Exception):
    """Another agent holds the lock of this data folder."""


def hold_lock(path: Path) -> int:
    """Take the agent's lock and return its descriptor; raise AlreadyRunning when another agent has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise AlreadyRunning(str(path)) from error
    return descriptor


async def run_agent(
    duties: list[Duty], ship: Callable[[], "asyncio.Future[None] | asyncio.Task[None]"]
) -> float:
    """Run until SIGTERM or SIGINT: every duty at its own pace, none delaying another or the log shipping.

    Returns the time of that signal by time.monotonic(), at most CANCELLED + AT_END seconds later.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="duty")
    tasks = [asyncio.create_task(_repeat(duty, pool), name=duty.name) for duty in duties]
    shipping = ship()
    await stop.wait()
    stopped = time.monotonic()
    for task in (*tasks, shipping):
        task.cancel()
    await asyncio.wait([*tasks, shipping], timeout=CANCELLED)
    pool.shutdown(wait=False, cancel_futures=True)
    _end(duties)
    return stopped


def end_by(moment: float) -> None:
    """End this process at a time by time.monotonic() if it has not ended by itself.

    A thread that waits for a locked database or a silent driver cannot be ended, and Python waits for it.
    """
    timer = threading.Timer(max(0.0, moment - time.monotonic()), os._exit, (0,))
    timer.daemon = True
    timer.start()


def _end(duties: Iterable[Duty]) -> None:
    """Call what is to be done at the end, all at once; what takes longer than AT_END is left alone."""
    until = time.monotonic() + AT_END
    threads = {
        duty.name: threading.Thread(target=_call_at_end, args=(duty.name, duty.at_end), daemon=True)
        for duty in duties
        if duty.at_end is not None
    }
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            logger.warning("the end of duty %s takes longer than %.1f s: it is given up", name, AT_END)


def _call_at_end(name: str, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        logger.exception("the end of duty %s", name)


async def _repeat(duty: Duty, pool: ThreadPoolExecutor) -> None:
    due = time.monotonic()
    while True:
        try:
            await _call(duty, pool)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("duty %s", duty.name)
        now = time.monotonic()
        due = _next_due(due, duty.every, now)
        await asyncio.sleep(max(0.05, due - now))


def _next_due(due: float, every: float, now: float) -> float:
    """Return when a duty is due again: on a fixed grid, which begins anew at more than a period late."""
    return due + every if now - (due + every) <= every else now


async def _call(duty: Duty, pool: ThreadPoolExecutor) -> None:
    if inspect.iscoroutinefunction(duty.call):
        await asyncio.wait_for(duty.call(), duty.deadline)
        return
    work = asyncio.get_running_loop().run_in_executor(pool, duty.call)
    late = False
    while True:
        # A thread cannot be ended: a slow call is reported and awaited, so it never runs twice at a time.
        _done, waiting = await asyncio.wait([work], timeout=duty.deadline)
        if not waiting:
            work.result()
            return
        if not late:
            late = True
            logger.warning("duty %s takes longer than %.0f s", duty.name, duty.deadline)
