"""The one way from web processes to a host's run logs and servers; on one machine it is direct."""

import asyncio
import io
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

from jobs.adapters.runs import log_path

RANGE = 4 * 1024 * 1024  # bytes, at most, of one answer
BLOCK = 64 * 1024
DOWNLOAD_BLOCK = 256 * 1024
SEARCH_BLOCK = 1024 * 1024
LINE = 2000  # bytes, at most, of a line in search results


@dataclass(frozen=True)
class Endpoint:
    """A server's place: host slug, run id, port on that host's loopback, API key."""

    host: str
    run_id: str
    port: int
    key: str = field(repr=False)


@dataclass(frozen=True)
class ServerAddress:
    """Where and with which headers a request reaches a server."""

    base_url: str
    headers: dict[str, str] = field(repr=False)


class HostLink:
    """Reads logs and reaches servers of this machine.

    Log calls block on the disk: call them in a thread. Offsets are bytes of the file; `log_start` says where
    its text begins when older text was removed (the bytes before it are a hole). A log that is not there
    reads as empty.
    """

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
        place = len(data) - 1 if data.endswith(b"\n") else len(data)
        for _ in range(lines):
            place = data.rfind(b"\n", 0, place)
            if place < 0:
                break
        if place >= 0:
            start, data = start + place + 1, data[place + 1 :]
        return start, data

    def log_search(self, run_id: str, text: str, limit: int, log_start: int = 0) -> list[tuple[int, str]]:
        """Return (offset, line) of the first `limit` lines that contain the text; ASCII case is ignored.

        Lines longer than 1 MiB are searched in parts; long lines are returned with their first 2,000 bytes.
        """
        wanted = text.encode().lower()
        found: list[tuple[int, str]] = []
        if not wanted:
            return found
        for offset, lines in self._line_blocks(run_id, log_start):
            lower = lines.lower()
            at = lower.find(wanted)
            while at >= 0:
                begin = lines.rfind(b"\n", 0, at) + 1
                line_end = lines.find(b"\n", at)
                line_end = len(lines) if line_end < 0 else line_end
                line = lines[begin:line_end].rstrip(b"\r")[:LINE]
                found.append((offset + begin, line.decode("utf-8", "replace")))
                if len(found) >= limit:
                    return found
                at = lower.find(wanted, line_end)
        return found

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

    def open_server(self, endpoint: Endpoint) -> ServerAddress:
        """Return the address of a server on this machine; use it with `server_client()`."""
        headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        return ServerAddress(f"http://127.0.0.1:{endpoint.port}", headers)

    def _size(self, run_id: str) -> int:
        try:
            return log_path(run_id).stat().st_size
        except FileNotFoundError:
            return 0

    def _line_blocks(self, run_id: str, start: int) -> Iterator[tuple[int, bytes]]:
        end = self._size(run_id)
        rest = b""
        while start < end:
            block = self.log_range(run_id, start, min(start + SEARCH_BLOCK, end))
            if not block:
                return
            data = rest + block
            start += len(block)
            line_end = data.rfind(b"\n") + 1
            if start >= end or (not line_end and len(data) >= SEARCH_BLOCK):
                line_end = len(data)
            if line_end:
                yield start - len(data), data[:line_end]
            rest = data[line_end:]


_LOCAL = HostLink()


def link(host_slug: str) -> HostLink:
    """Return the link to a host; with one machine there is only the direct one."""
    return _LOCAL


_clients: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]" = (
    weakref.WeakKeyDictionary()
)


def server_client() -> httpx.AsyncClient:
    """Return the running loop's client for llama-servers.

    llama-server closes connections that it promised to keep, so none is kept; its streams have no read limit.
    Loopback addresses only: no proxy, and no certificates to load (that alone costs 130 ms).
    """
    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None:
        client = httpx.AsyncClient(
            trust_env=False,
            verify=False,
            timeout=httpx.Timeout(30.0, connect=5.0, read=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )
        _clients[loop] = client
    return client


def _read_exactly(file: io.RawIOBase, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = file.read(length)
        if not part:
            break
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
