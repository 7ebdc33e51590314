"""Waiting for a state instead of sleeping for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE = 0.02


def wait_for(fn: Callable[[], T], seconds: float, what: str) -> T:
    """The first truthy value of `fn`; AssertionError with `what` and the last value after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (value := fn()):
        if time.monotonic() > deadline:
            raise AssertionError(_too_late(seconds, what, value))
        time.sleep(PAUSE)
    return value


async def async_wait_for(fn: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
    """As `wait_for`, for a coroutine function."""
    deadline = time.monotonic() + seconds
    while not (value := await fn()):
        if time.monotonic() > deadline:
            raise AssertionError(_too_late(seconds, what, value))
        await asyncio.sleep(PAUSE)
    return value


def _too_late(seconds: float, what: str, value: object) -> str:
    return f"waited {seconds:g} s for {what}; last value: {value!r}"
