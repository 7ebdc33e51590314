"""Errors of cards that the driver tells by itself (Xid), collected without waiting for them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from jobs.domain.gpu import Xid

XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError
AT_ONCE = 50  # events that one look takes
KEPT = 8  # numbers remembered of each card
SECONDS = 86400.0  # an older error is no longer told


class XidWatch:
    """The errors of the last day by index of the card; used by the thread that uses the library.

    A driver or a card that knows no such events tells nothing. What was told outlives the library.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._events: Any = None
        self._tried = False
        self._cards: dict[int | None, int] = {}  # address of a handle: index
        self._told: dict[int, dict[int, float]] = {}  # index: number: time

    def begin(self, nvml: Any, count: int) -> None:
        """Ask the driver to tell of errors of `count` cards; once after each start of the library."""
        if self._tried:
            return
        self._tried = True
        with suppress(nvml.NVMLError):
            self._events = nvml.nvmlEventSetCreate()
        for index in range(count) if self._events is not None else ():
            with suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, self._events)
                self._cards[_address(handle)] = index

    def end(self, nvml: Any) -> None:
        """Let go before the library is stopped; why a card was lost may have been told just now."""
        self.look(nvml)
        if self._events is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlEventSetFree(self._events)
        self._events, self._tried, self._cards = None, False, {}

    def look(self, nvml: Any) -> None:
        """Take what the driver has told since the last look."""
        if not self._cards:
            return
        # The wait ends with an error when there is nothing (any more), and also when a card is lost.
        with suppress(nvml.NVMLError):
            for _ in range(AT_ONCE):
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                index = self._cards.get(_address(event.device))
                if index is not None and event.eventType & XID_EVENT:
                    self._note(index, int(event.eventData))

    def of(self, index: int) -> tuple[Xid, ...]:
        """Return the last error of each number, the newest first."""
        now = self._clock()
        found = [Xid(at, number) for number, at in self._told.get(index, {}).items() if now - at < SECONDS]
        return tuple(sorted(found, key=lambda xid: (-xid.time, xid.number)))

    def _note(self, index: int, number: int) -> None:
        numbers = self._told.setdefault(index, {})
        numbers[number] = self._clock()
        if len(numbers) > KEPT:
            del numbers[min(numbers, key=numbers.__getitem__)]


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
