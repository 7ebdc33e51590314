"""Fetches a large file over several connections; it gets its name only when it is right."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from jobs.adapters.addresses import guarded_client
from jobs.adapters.transfer_error import (
    CHANGED,
    CHECKSUM_LOCAL,
    EXISTS,
    NOT_GGUF,
    STALLED,
    STOPPED,
    TransferError,
    of_disk,
)
from jobs.adapters.transfer_link import Facts
from jobs.adapters.transfer_part import PartFile, part_path, read_state, state_path
from jobs.adapters.transfer_work import Work
from jobs.domain.transfer import Fetched, Limits, Meter, PartState, Progress, Source

__all__ = ["TransferError", "discard", "fetch", "part_path", "read_state", "state_path", "verify"]

LOOK_EVERY = 0.05  # seconds
TELL_EVERY = 0.5  # seconds
BLOCK = 4 * 1024**2  # bytes
MAGIC = b"GGUF"

T = TypeVar("T")
OnProgress = Callable[[Progress], None]
Stop = Callable[[], str | None]


def fetch(source: Source, target: Path, limits: Limits, *, on_progress: OnProgress, stop: Stop) -> Fetched:
    """Fetch a file, going on where an earlier attempt ended; it gets its name when its hash is right.

    `stop` is asked many times a second; a reason ends the download within a second, and what has arrived is
    kept. Both callables are called in this thread. A file that is there already and right is success.
    Raises TransferError, AddressRefused, or what resolving the link raises.
    """
    part = PartFile(target)
    try:
        if target.exists():
            return _existing(source, target, on_progress, stop)
        known = part.state()
        marks = {mark.strip('"') for mark in (source.etag, known.etag if known else None) if mark}
        with guarded_client(stall=limits.stall, connections=limits.connections) as client:
            work = Work(source, part, limits, client, marks)
            try:
                return _Download(source, part, limits, work, on_progress, stop).run(known)
            finally:
                work.end()
    except TransferError as error:
        if error.code == "checksum":
            part.discard()
        raise
    finally:
        part.close()


def discard(target: Path) -> None:
    """Delete what has arrived of a file; TransferError busy while a download writes to it."""
    part = PartFile(target)
    try:
        part.discard()
    finally:
        part.close()


def verify(path: Path, sha256: str, on_progress: OnProgress, stop: Stop) -> None:
    """Compare a file's SHA-256 with what it should be; TransferError checksum, disk or stopped."""
    found = _hash(path, on_progress, stop)
    if found != sha256:
        raise TransferError("checksum", CHECKSUM_LOCAL, found=found[:12], wanted=sha256[:12])


def _hash(path: Path, on_progress: OnProgress, stop: Stop) -> str:
    meter, told, done, whole = Meter(), 0.0, 0, hashlib.sha256()
    try:
        with path.open("rb") as file:
            total = path.stat().st_size
            while block := file.read(BLOCK):
                whole.update(block)
                done += len(block)
                _raise_if_stopped(stop)
                if time.monotonic() - told >= TELL_EVERY:
                    told = time.monotonic()
                    meter.add(told, done)
                    on_progress(Progress("checking", done, total, meter.speed, meter.eta(total - done)))
    except OSError as error:
        raise of_disk(error) from error
    return whole.hexdigest()


def _existing(source: Source, target: Path, on_progress: OnProgress, stop: Stop) -> Fetched:
    """Return the file that has the name already; TransferError exists when it is not the one to fetch."""
    size = target.stat().st_size
    if source.size == size:
        found = _hash(target, on_progress, stop)
        if source.sha256 in (None, found):
            return Fetched(size, found, 0)
    raise TransferError("exists", EXISTS, name=target.name)


def _raise_if_stopped(stop: Stop) -> None:
    reason = stop()
    if reason is not None:
        raise TransferError("stopped", STOPPED, why=reason)


class _Download:
    """One attempt, seen from the thread that asked for it."""

    def __init__(
        self,
        source: Source,
        part: PartFile,
        limits: Limits,
        work: Work,
        on_progress: OnProgress,
        stop: Stop,
    ) -> None:
        self._source = source
        self._part = part
        self._limits = limits
        self._work = work
        self._on_progress = on_progress
        self._stop = stop
        self._meter = Meter()
        self._told = 0.0

    def run(self, known: PartState | None) -> Fetched:
        """Do all of it; `known` is the state of an earlier attempt."""
        work = self._work
        work.look()
        facts = self._until(lambda: work.facts, 0)
        state = self._state(known, facts)
        self._part.begin(state, self._limits.spare)
        work.begin(state, facts.ranges)
        sha256 = self._until(lambda: work.sha256, state.size)
        self._part.finish()
        return Fetched(state.size, sha256, work.received)

    def _until(self, ready: Callable[[], T | None], total: int) -> T:
        while (found := ready()) is None:
            _raise_if_stopped(self._stop)
            if self._work.failure is not None:
                raise self._work.failure
            self._check_patience()
            self._tell(total)
            self._work.news.wait(LOOK_EVERY)
            self._work.news.clear()
        return found

    def _state(self, known: PartState | None, facts: Facts) -> PartState:
        """Return the state to go on from; TransferError when the file is not what the source says."""
        source = self._source
        if source.size not in (None, facts.size):
            raise TransferError("changed", CHANGED)
        if source.sha256 is None and not facts.start.startswith(MAGIC):
            raise TransferError("not_gguf", NOT_GGUF, host=self._work.host)
        if known is None:
            return PartState(facts.size, source.sha256, facts.mark)
        if known.size != facts.size or known.sha256 != source.sha256:
            raise TransferError("changed", CHANGED)
        known.etag = facts.mark
        return known

    def _check_patience(self) -> None:
        work, patience = self._work, self._limits.patience
        if work.missing and time.monotonic() - work.last_byte > patience:
            raise work.last_error or TransferError(
                "stalled", STALLED, host=work.host, seconds=round(patience)
            )

    def _tell(self, total: int) -> None:
        now, work = time.monotonic(), self._work
        if not total or now - self._told < TELL_EVERY:
            return
        self._told = now
        self._meter.add(now, work.received)
        if work.missing:
            eta = self._meter.eta(total - work.written)
            self._on_progress(Progress("fetching", work.written, total, self._meter.speed, eta))
        else:
            self._on_progress(Progress("checking", work.hashed, total))
