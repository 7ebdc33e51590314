"""The host agent: one asyncio loop per host that ships logs, watches runs and calls the registered duties."""

import asyncio
import fcntl
import inspect
import logging
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobs.runtime.duties import Duty

logger = logging.getLogger(__name__)
THREADS = 16


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
) -> None:
    """Run until SIGTERM or SIGINT: every duty at its own pace, none delaying another or the log shipping."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="duty")
    tasks = [asyncio.create_task(_repeat(duty, pool), name=duty.name) for duty in duties]
    shipping = ship()
    await stop.wait()
    for task in (*tasks, shipping):
        task.cancel()
    await asyncio.wait([*tasks, shipping], timeout=2)
    pool.shutdown(wait=False, cancel_futures=True)


async def _repeat(duty: Duty, pool: ThreadPoolExecutor) -> None:
    while True:
        started = time.monotonic()
        try:
            await _call(duty, pool)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("duty %s", duty.name)
        await asyncio.sleep(max(0.05, duty.every - (time.monotonic() - started)))


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
