"""The one way from web processes to a host's run logs and servers; on one machine it is direct."""

import asyncio
import io
import shutil
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from jobs.adapters import readiness
from jobs.adapters.loopback import NoConnection, ServerStream, request
from jobs.adapters.runs import log_path
from jobs.domain.readiness_facts import Facts
from jobs.logs.cut import last_lines
from jobs.logs.index import LogIndexes
from jobs.logs.search import Found, Limits, Place, Rule

RANGE = 4 * 1024 * 1024  # bytes, at most, of one answer
BLOCK = 64 * 1024
DOWNLOAD_BLOCK = 256 * 1024


@dataclass(frozen=True)
class Endpoint:
    """A server's place: host slug, run id, port on that host's loopback, API key."""

    host: str
    run_id: str
    port: int
    key: str = field(repr=False)


@dataclass(frozen=True)
class Reply:
    """A server's whole answer."""

    status: int
    body: bytes


@dataclass(frozen=True)
class Disk:
    """The disk of a host's data folder, in bytes."""

    total: int
    free: int


class HostLink:
    """Reads logs and reaches servers of this machine.

    Log calls block on the disk: call them in a thread. Offsets are bytes of the file; `log_start` says where
    its text begins when older text was removed (the bytes before it are a hole). A log that is not there
    reads as empty.
    """

    def __init__(self) -> None:
        self._indexes = LogIndexes()

    def log_size(self, run_id: str, log_start: int = 0) -> tuple[int, int]:
        """Return the log's first and last offset."""
        end = self._size(run_id)
        return min(log_start, end), end

    def log_range(self, run_id: str, start: int, end: int, log_start: int = 0) -> bytes:
        """Return the bytes from max(start, log_start) to end, at most the first 4 MiB of them."""
        begin = max(start, log_start)
        length = min(end - begin, RANGE)
        if length <= 0:
            return b""
        try:
            with log_path(run_id).open("rb", buffering=0) as file:
                file.seek(begin)
                return _read_exactly(file, length)
        except FileNotFoundError:
            return b""

    def log_tail(self, run_id: str, lines: int, log_start: int = 0) -> tuple[int, bytes]:
        """Return the last lines (fewer when they are more than 4 MiB) and the offset at which they begin."""
        end = self._size(run_id)
        start, data = end, b""
        # One line end more than lines, because the last line usually has one; but for the first block the
        # file may go on growing, so all is read up to the size taken at first.
        while start > log_start and len(data) < RANGE and data.count(b"\n") <= lines:
            begin = max(start - BLOCK, log_start)
            block = self.log_range(run_id, begin, start, log_start)
            if len(block) < start - begin:
                break  # the file became shorter
            start, data = begin, block + data
        head = last_lines(data, lines)
        return start + head, data[head:]

    def log_search(
        self, run_id: str, rule: Rule, place: Place, log_start: int, stop: threading.Event
    ) -> Found:
        """Return the line to which the rule applies that is next from the place, and how many there are.

        Takes at most about 2 s and goes on with the next call; `stop` ends it within one block of 1 MiB.
        """
        inode, size = self._stat(run_id)
        index = self._indexes.get(run_id, inode, size)

        def read(start: int, end: int) -> bytes:
            return self.log_range(run_id, start, end)

        return index.find(read, rule, min(log_start, size), size, place, Limits(stop))

    def log_line(self, run_id: str, at: int, stop: threading.Event) -> int | None:
        """Return the number of the line to which byte `at` belongs; None when counting took too long."""
        inode, size = self._stat(run_id)
        index = self._indexes.get(run_id, inode, size)
        return index.line(lambda start, end: self.log_range(run_id, start, end), min(at, size), Limits(stop))

    def log_download(self, run_id: str, log_start: int = 0) -> Iterator[bytes]:
        """Yield the log as it is now in blocks of 256 KB."""
        end = self._size(run_id)
        at = log_start
        while at < end:
            block = self.log_range(run_id, at, min(at + DOWNLOAD_BLOCK, end))
            if not block:
                return
            yield block
            at += len(block)

    async def ask_server(self, endpoint: Endpoint, path: str, seconds: float) -> Reply:
        """Return a server's answer to a GET; raises ServerUnreachable, also when it takes longer."""
        try:
            async with (
                asyncio.timeout(seconds),
                request("GET", endpoint.port, path, _headers(endpoint)) as answer,
            ):
                return Reply(answer.status, await answer.read(RANGE))
        except TimeoutError as error:
            raise NoConnection("no answer in time") from error

    def open_stream(
        self, endpoint: Endpoint, path: str, body: bytes
    ) -> AbstractAsyncContextManager[ServerStream]:
        """Post JSON to a server and read its answer as it comes; see `jobs.adapters.loopback.request`."""
        headers = {**_headers(endpoint), "Content-Type": "application/json"}
        return request("POST", endpoint.port, path, headers, body)

    def data_disk(self) -> Disk | None:
        """Return the disk of the data folder, None when it cannot be asked; free is for the panel to use."""
        return self.disk(settings.PANEL_DATA)

    def readiness_facts(self) -> Facts:
        """Return what the host tells of itself; its programs may take seconds to answer."""
        return readiness.facts()

    def disk(self, folder: Path) -> Disk | None:
        """Return the disk on which a folder lies, or will lie; None when it cannot be asked."""
        try:
            usage = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists()))
        except OSError:
            return None
        return Disk(usage.total, usage.free)

    def _size(self, run_id: str) -> int:
        return self._stat(run_id)[1]

    def _stat(self, run_id: str) -> tuple[int, int]:
        try:
            found = log_path(run_id).stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_ino, found.st_size


_LOCAL = HostLink()


def link(host_slug: str) -> HostLink:
    """Return the link to a host; with one machine there is only the direct one."""
    return _LOCAL


def _headers(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}


def _read_exactly(file: io.RawIOBase, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = file.read(length)
        if not part:
            break
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
