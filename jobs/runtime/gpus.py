"""Samples the GPUs in one thread of its own, so that a driver that hangs holds up nothing but the sample."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from jobs.domain.gpu import FAILED, SILENT, Gpus, Sample

logger = logging.getLogger(__name__)

DEADLINE = 2.0  # seconds


class GpuSampler:
    """Calls `read` in a thread and gives up waiting after `deadline` seconds; used by one thread at a time.

    There is never more than one call under way: while one hangs, samples say since when nothing is known.
    """

    def __init__(
        self,
        read: Callable[[], Gpus],
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._read = read
        self._deadline = deadline
        self._clock = clock
        self._questions: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Gpus] = queue.SimpleQueue()
        self._asked = False
        self._last: Sample | None = None
        self._silent_since: float | None = None
        self._thread: threading.Thread | None = None

    def sample(self) -> Sample:
        """Return the cards as they are now, or as they were last with the time since when that is old."""
        gpus = self._take()
        now = self._clock()
        if gpus is not None:
            self._last, self._silent_since = Sample(now, gpus), None
            return self._last
        if self._silent_since is None:
            self._silent_since = now if self._last is None else self._last.time
        last = Gpus() if self._last is None else self._last.gpus
        return Sample(now, replace(last, problem=SILENT), since=self._silent_since)

    def _take(self) -> Gpus | None:
        """Return a reading that was begun and ended within the deadline."""
        if self._thread is None:
            # A daemon: the interpreter must not wait at its end for a driver that hangs.
            self._thread = threading.Thread(target=self._work, name="nvml", daemon=True)
            self._thread.start()
        limit = time.monotonic() + self._deadline
        while (left := limit - time.monotonic()) > 0:
            fresh = not self._asked
            if fresh:
                self._asked = True
                self._questions.put(None)
            try:
                gpus = self._answers.get(timeout=left)
            except queue.Empty:
                return None
            self._asked = False
            # What comes late was read before the driver hung: ask again.
            if fresh:
                return gpus
        return None

    def _work(self) -> None:
        while True:
            self._questions.get()
            try:
                gpus = self._read()
            except Exception as error:
                logger.exception("reading the GPUs")
                gpus = Gpus(problem=FAILED, words=str(error))
            self._answers.put(gpus)
