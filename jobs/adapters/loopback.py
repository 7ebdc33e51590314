"""A request to a server on this machine, on a connection of its own, whose answer can be read as it comes.

The parser of httpx is written in Python and takes half of a stream's processor time; this one is uvicorn's.
What is left out are pools, proxies, redirects, cookies and TLS, none of which a server on this machine needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httptools

CONNECT_SECONDS = 5.0
MAX_HEAD = 64 * 1024  # bytes of status line and headers
BUFFER = 64 * 1024  # bytes read at once; at most twice as many wait before the server is slowed down


class ServerUnreachable(Exception):
    """There is no answer, or only a part of one."""


class NoConnection(ServerUnreachable):
    """The server took no connection in time."""


class ConnectionBroken(ServerUnreachable):
    """The connection ended, or carried something that is not HTTP, before the answer was complete."""


class ResponseReader:
    """Bytes of one HTTP/1.1 answer in, pieces of its body out, whatever its framing is."""

    def __init__(self) -> None:
        self.status = 0  # 0 until all headers are there
        self.complete = False
        self._parser = httptools.HttpResponseParser(self)
        self._head = 0
        self._framed = False  # the body says itself where it ends
        self._body: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """Return the part of the body in these bytes; raises ConnectionBroken."""
        if not self.status:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise ConnectionBroken("the server changed the protocol") from error
        except httptools.HttpParserError as error:
            # What comes after a complete answer is not of interest.
            if not self.complete:
                raise ConnectionBroken(f"not HTTP: {error}") from error
        if not self.status and self._head > MAX_HEAD:
            raise ConnectionBroken("the headers are too long")
        if not self._body:
            return b""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        return body

    def end(self) -> None:
        """Say that the connection has ended; raises ConnectionBroken when that cuts the answer off."""
        if not self.complete and (not self.status or self._framed):
            raise ConnectionBroken("the connection ended before the answer was complete")
        self.complete = True

    # The parser calls these.

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Note whether the body has a length or comes in chunks."""
        self._framed = self._framed or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        """Take the status; "100 Continue" and its like come before the answer."""
        code = self._parser.get_status_code()
        self.status = code if code >= 200 else 0

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if not self.complete:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Note the end, or that the answer itself is still to come."""
        self.complete = self.complete or self.status != 0
        if not self.complete:
            self._framed = False


class ServerStream:
    """An answer whose status is known."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._response = ResponseReader()
        self._first = b""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status

    async def begin(self) -> None:
        """Read the headers; raises ConnectionBroken."""
        while not self.status:
            self._first += await self._next()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; raises ConnectionBroken."""
        if self._first:
            yield self._first
        while not self._response.complete:
            if data := await self._next():
                yield data

    async def read(self, limit: int) -> bytes:
        """Return the beginning of the body, at least so many bytes of it if there are."""
        data = b""
        async for chunk in self.chunks():
            data += chunk
            if len(data) >= limit:
                break
        return data

    async def _next(self) -> bytes:
        try:
            data = await self._reader.read(BUFFER)
        except OSError as error:
            raise ConnectionBroken(str(error)) from error
        if data:
            return self._response.feed(data)
        self._response.end()
        return b""


@asynccontextmanager
async def request(
    method: str, port: int, path: str, headers: dict[str, str], body: bytes = b""
) -> AsyncIterator[ServerStream]:
    """Ask a port of this machine; leaving the block closes the connection at once.

    Raises NoConnection and ConnectionBroken. There is no limit on the time until the answer comes.
    """
    fields = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body)), **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if any(not line.isprintable() for line in lines):
        raise ValueError("a header with a line end")
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=BUFFER)
    except TimeoutError as error:
        raise NoConnection("no connection in time") from error
    except OSError as error:
        raise ConnectionBroken(str(error)) from error
    try:
        # As one piece: a server that answers after the first of two would end with the other one unread.
        writer.write("\r\n".join((*lines, "", "")).encode("latin-1") + body)
        # A server may answer, with an error for example, without having read everything.
        with suppress(ConnectionError):
            await writer.drain()
        stream = ServerStream(reader)
        await stream.begin()
        yield stream
    finally:
        writer.transport.abort()
