"""The threads of one download: some that fetch, one that hashes what has arrived."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator

import httpx

from controlpanel.lib.text import Worded
from jobs.adapters.addresses import GuardedClient
from jobs.adapters.transfer_error import CHECKSUM, STALLED, UNREACHABLE, TransferError
from jobs.adapters.transfer_link import Facts, Later, Link
from jobs.adapters.transfer_part import PartFile
from jobs.domain.transfer import CHUNK, Limits, PartState, Source, chunk_size, missing, pause
from jobs.domain.transfer_plan import Plan, Span

IDLE = 0.1  # seconds
SYNC_EVERY = 2.0  # seconds
JOIN = 0.6  # seconds; a thread that is still looking a name up is left behind
REFUSALS = 3  # of fresh links in a row
GAIN = 256 * 1024  # bytes after which a broken connection is replaced at once
TRICKLE = 64 * 1024  # bytes; fewer than these are no sign that a server works
ROUNDS = 3  # of fetching chunks again that went bad on the disk
TEMPORARY = ("rate_limit", "hub_down", "bad_answer")  # codes of errors that resolving a link may raise


class Attempts:
    """How often something failed in a row, and how long to wait before the next attempt."""

    def __init__(self) -> None:
        self._failed = 0
        self._refused = 0

    def after(self, later: Later, gained: int) -> float:
        """Return the seconds to wait after a failure; raises its error when trying again is of no use."""
        if gained:
            self._failed = self._refused = 0
        self._failed += 1
        if later.refused:
            self._refused += 1
            if self._refused >= REFUSALS:
                raise later.error
            return 0.0
        if gained >= GAIN:
            return later.wait
        return max(later.wait, pause(self._failed, random.random()))


class Rate:
    """A limit in bytes per second that all connections share."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def wait(self, size: int) -> float:
        """Return the seconds to wait after so many bytes."""
        if not self._rate:
            return 0.0
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - 0.05) + size / self._rate
            return self._free_at - now


class Work:
    """One attempt at a download. What it has reached is in its attributes, its first error in `failure`."""

    def __init__(
        self, source: Source, part: PartFile, limits: Limits, client: GuardedClient, marks: set[str]
    ) -> None:
        self.failure: BaseException | None = None
        self.last_error: Worded | None = None  # the newest of those that are tried again
        self.news = threading.Event()  # set with `failure`, `facts` and `sha256`
        self.facts: Facts | None = None
        self.sha256: str | None = None  # of the whole file, once it is complete and right
        self.received = 0
        self.written = 0
        self.hashed = 0
        self.last_byte = time.monotonic()  # or rather, when the last TRICKLE of them was complete
        self._counted = 0
        self._source, self._part, self._limits, self._client = source, part, limits, client
        self._link = Link(source, client, marks)
        self._rate = Rate(limits.rate)
        self._size = self._total = 0  # bytes and chunks of the file
        self._ranges = True
        self._plan = Plan(0, [], 0)
        self._chunks: dict[int, str] = {}  # hashes of those that are on the disk
        self._doubtful: set[int] = set()  # chunks of an earlier attempt that were not looked at yet
        self._lock = threading.Lock()
        self._halt = threading.Event()
        self._arrived = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def host(self) -> str:
        """The host that the bytes come from."""
        return self._link.host

    @property
    def missing(self) -> bool:
        """Whether bytes have still to come."""
        return not self._total or len(self._chunks) < self._total

    def look(self) -> None:
        """Begin to ask what the file is; `facts` will tell."""
        self._start(self._probe)

    def begin(self, state: PartState, ranges: bool) -> None:
        """Begin to fetch what the state lacks; without ranges all from its first gap on."""
        gaps = missing(state)
        if gaps and not ranges:
            gaps = [(gaps[0][0], state.count)]
            state.chunks = {index: hash for index, hash in state.chunks.items() if index < gaps[0][0]}
        connections = self._limits.connections if ranges else 1
        self._size, self._total, self._ranges = state.size, state.count, ranges
        self._chunks, self._doubtful, self.written = state.chunks, set(state.chunks), state.done
        self._plan = Plan(state.size, gaps, connections if ranges else 0)
        self.last_byte = time.monotonic()
        for body in [self._fetch] * connections + [self._check]:
            self._start(body)

    def end(self) -> None:
        """End all threads, within JOIN seconds."""
        self._halt.set()
        self._arrived.set()
        deadline = time.monotonic() + JOIN
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < deadline:
            self._client.abort()
            for thread in self._threads:
                thread.join(0.02)

    def _start(self, body: Callable[[], None]) -> None:
        def run() -> None:
            try:
                body()
            except BaseException as error:
                with self._lock:
                    if not self._halt.is_set() and self.failure is None:
                        self.failure = error
                self.news.set()

        thread = threading.Thread(target=run, name="transfer", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _probe(self) -> None:
        attempts = Attempts()
        while not self._halt.is_set():
            number = 0
            try:
                number = self._link.number()
                self.facts = self._link.probe()
                self.news.set()
                return
            except Exception as error:
                self._halt.wait(attempts.after(self._later(error, number), 0))

    def _fetch(self) -> None:
        owner = object()
        while not self._halt.is_set():
            span = self._plan.take(owner, time.monotonic())
            if span is None:
                # Another connection may come to need help, and a chunk may prove to be bad.
                self._halt.wait(IDLE)
            else:
                self._serve(span, owner)

    def _serve(self, span: Span, owner: object) -> None:
        """Fetch a span to its end, over as many connections as that takes, or until another takes it over."""
        attempts = Attempts()
        while not self._halt.is_set() and self._plan.go_on(span, owner):
            before, number = span.at, 0
            try:
                number = self._link.number()
                with self._link.range(span.at, span.end, self._size, self._ranges) as pieces:
                    if self._receive(pieces, span, owner):
                        return
                raise httpx.RemoteProtocolError("the answer ended early")
            except Exception as error:
                if self._halt.is_set():
                    return
                seconds = attempts.after(self._later(error, number), span.at - before)
            if seconds:
                self._plan.wait(span, owner)
                self._halt.wait(seconds)

    def _later(self, error: Exception, number: int) -> Later:
        """Return an error as one that is tried again; raises those that are not."""
        code = getattr(error, "code", "")
        if isinstance(error, Later):
            later = error
        elif isinstance(error, httpx.ReadTimeout):
            seconds = round(self._limits.stall)
            later = Later(TransferError("stalled", STALLED, host=self.host, seconds=seconds), renew=True)
        elif isinstance(error, httpx.TransportError):
            # What the library says of a header that cannot be sent quotes it, a token too.
            said = "" if isinstance(error, httpx.LocalProtocolError) else str(error)[:200]
            why = said or type(error).__name__
            unconnected = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
            later = Later(
                TransferError("unreachable", UNREACHABLE, host=self.host, why=why), renew=unconnected
            )
        elif isinstance(error, Worded) and code in TEMPORARY:
            wait = getattr(error, "retry_after", None) or 0.0
            later = Later(error, wait=wait)
        else:
            raise error
        if later.renew:
            self._link.renew(number)
        self.last_error = later.error
        return later

    def _receive(self, pieces: Iterator[bytes], span: Span, owner: object) -> bool:
        """Write what arrives; False when the answer ends before the span, or the owner's part in it, does."""
        place = span.at if self._ranges else 0
        for piece in pieces:
            self._count(len(piece))
            rest = memoryview(piece)
            while rest:
                if self._halt.is_set() or span.owner is not owner:
                    return True
                border = min((place // CHUNK + 1) * CHUNK, self._size)
                now, rest = rest[: border - place], rest[border - place :]
                place += len(now)
                # Where ranges do not work, what is there already comes once more.
                if place > span.at and not self._write(span, owner, now[span.at - place :]):
                    return True
            self._halt.wait(self._rate.wait(len(piece)))
        return False

    def _count(self, size: int) -> None:
        with self._lock:
            self.received += size
            if self.received - self._counted >= TRICKLE:
                self._counted, self.last_byte = self.received, time.monotonic()

    def _write(self, span: Span, owner: object, data: memoryview) -> bool:
        """Write bytes of one chunk, and note it when it is whole; False when the span ends for its owner."""
        with span.lock:
            if span.owner is not owner:
                return False
            self._part.write(span.at, data)
            span.hash.update(data)
            span.at += len(data)
            whole = span.at % CHUNK == 0 or span.at == self._size
            if whole:
                index, digest = (span.at - 1) // CHUNK, span.hash.hexdigest()
                span.hash = hashlib.sha256()
                self._part.note(index, digest)
                self._chunks[index] = digest
                self._arrived.set()
        with self._lock:
            self.written += len(data)
        return not whole or self._plan.next_chunk(span, owner, time.monotonic())

    def _check(self) -> None:
        """Hash the file from its start, close behind the connections; ask for chunks again that went bad."""
        rounds, index, whole, synced = 1, 0, hashlib.sha256(), time.monotonic()
        while not self._halt.is_set():
            if time.monotonic() - synced > SYNC_EVERY:
                self._part.sync()
                synced = time.monotonic()
            if index < self._total:
                if index not in self._chunks:
                    self._arrived.wait(IDLE)
                    self._arrived.clear()
                elif (data := self._good_chunk(index)) is not None:
                    whole.update(data)
                    index += 1
                    self.hashed += len(data)
                continue
            if self._source.sha256 in (None, whole.hexdigest()):
                self.sha256 = whole.hexdigest()
                self.news.set()
                return
            self._doubtful = set(self._chunks)
            bad = [index for index in sorted(self._doubtful) if self._good_chunk(index) is None]
            if not bad or rounds == ROUNDS:
                found, wanted = whole.hexdigest()[:12], str(self._source.sha256)[:12]
                raise TransferError("checksum", CHECKSUM, found=found, wanted=wanted)
            rounds, index, whole, self.hashed = rounds + 1, 0, hashlib.sha256(), 0

    def _good_chunk(self, index: int) -> bytes | None:
        """Return a chunk from the disk; None, and it is fetched again, when it is not what was written."""
        data = self._part.read(index * CHUNK, chunk_size(self._size, index))
        if index in self._doubtful:
            self._doubtful.discard(index)
            if hashlib.sha256(data).hexdigest() != self._chunks[index]:
                del self._chunks[index]
                with self._lock:
                    self.written -= chunk_size(self._size, index)
                self._plan.lost(index)
                return None
        return data
