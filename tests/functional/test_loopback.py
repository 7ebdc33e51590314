"""Reading an answer from a server on this machine: every framing, every split, and broken connections."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.loopback import MAX_HEAD, ConnectionBroken, ResponseReader, request
from tests.engines import free_port

HEAD = b"HTTP/1.1 200 OK\r\nServer: x\r\n"
bodies = st.lists(st.binary(min_size=1, max_size=300), max_size=8)


def chunked(parts: list[bytes]) -> bytes:
    """The parts as chunks, with an extension and a trailer as the protocol allows."""
    chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in parts)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nX-Trailer: y\r\n\r\n"


def measured(parts: list[bytes]) -> bytes:
    """The parts with their length."""
    body = b"".join(parts)
    return HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def until_the_end(parts: list[bytes]) -> bytes:
    """The parts up to the end of the connection."""
    return HEAD + b"Connection: close\r\n\r\n" + b"".join(parts)


def read(data: bytes, places: list[int]) -> tuple[int, bytes]:
    """Status and body of an answer that arrives cut at the places."""
    reader = ResponseReader()
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    pieces = [data[a:b] for a, b in zip(edges, edges[1:], strict=False) if a < b]
    body = b"".join([reader.feed(piece) for piece in pieces])
    reader.end()
    assert reader.complete
    return reader.status, body


@pytest.mark.parametrize("framing", [chunked, measured, until_the_end])
@given(parts=bodies, places=st.lists(st.integers(0, 10_000), max_size=40))
def test_any_split_gives_the_same_body(
    framing: Callable[[list[bytes]], bytes], parts: list[bytes], places: list[int]
) -> None:
    assert read(framing(parts), places) == (200, b"".join(parts))


@pytest.mark.parametrize("framing", [chunked, measured])
@given(parts=bodies.filter(any), cut=st.integers(0, 10_000))
def test_an_answer_that_breaks_off_is_told_from_a_complete_one(
    framing: Callable[[list[bytes]], bytes], parts: list[bytes], cut: int
) -> None:
    data = framing(parts)
    reader = ResponseReader()
    reader.feed(data[: cut % len(data)])
    with pytest.raises(ConnectionBroken):
        reader.end()


@given(st.binary(min_size=1, max_size=200), st.booleans())
def test_bytes_that_are_not_http_break_the_connection_or_wait(data: bytes, after_head: bool) -> None:
    reader = ResponseReader()
    with suppress(ConnectionBroken):
        reader.feed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" if after_head else b"")
        reader.feed(data)
    if not reader.complete:
        with pytest.raises(ConnectionBroken):
            reader.end()


def test_headers_without_end_are_refused() -> None:
    reader = ResponseReader()
    reader.feed(HEAD)
    with pytest.raises(ConnectionBroken):
        for _ in range(MAX_HEAD // 1000 + 2):
            reader.feed(b"X: " + b"y" * 1000 + b"\r\n")


def test_a_status_before_the_answer_is_passed_over() -> None:
    assert read(b"HTTP/1.1 100 Continue\r\n\r\n" + chunked([b"a", b"b"]), [3, 20, 30]) == (200, b"ab")


def test_what_follows_a_complete_answer_is_ignored() -> None:
    reader = ResponseReader()
    assert reader.feed(measured([b"abc"]) + b"rubbish\r\n\r\n") == b"abc"
    assert reader.complete and reader.feed(b"more") == b""


# Over a socket

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def serving(serve: Serve, ask: Callable[[int], Awaitable[None]]) -> None:
    """A server on this machine while it is asked."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        await asyncio.wait_for(ask(server.sockets[0].getsockname()[1]), 30)


async def test_a_request_carries_its_headers_and_its_body() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        seen.append(await reader.readexactly(5_000_000))
        writer.write(chunked([b"a", b"b"]))
        writer.close()

    async def ask(port: int) -> None:
        async with request("POST", port, "/x", {"Authorization": "Bearer k"}, b"z" * 5_000_000) as answer:
            assert answer.status == 200
            assert b"".join([chunk async for chunk in answer.chunks()]) == b"ab"

    await serving(serve, ask)
    assert seen[0].startswith(b"POST /x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nContent-Length: 5000000\r\n" in seen[0] and b"\r\nAuthorization: Bearer k\r\n" in seen[0]


async def test_leaving_closes_the_connection_at_once() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        with suppress(ConnectionError):
            await reader.read()
        gone.set()
        writer.close()

    async def ask(port: int) -> None:
        async def follow() -> None:
            async with request("POST", port, "/", {}, b"") as answer:
                async for _ in answer.chunks():
                    arrived.set()

        arrived = asyncio.Event()
        following = asyncio.ensure_future(follow())
        await arrived.wait()
        assert not gone.is_set()
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await asyncio.wait_for(gone.wait(), 5)

    await serving(serve, ask)


async def test_a_slow_reader_loses_nothing() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for number in range(500):
            writer.write(b"4\r\n%04d\r\n" % number)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        writer.close()

    async def ask(port: int) -> None:
        async with request("POST", port, "/", {}, b"") as answer:
            body = b""
            async for chunk in answer.chunks():
                body += chunk
                await asyncio.sleep(0.001)
        assert body == b"".join(b"%04d" % number for number in range(500))

    await serving(serve, ask)


async def test_nobody_listening_is_a_broken_connection() -> None:
    with pytest.raises(ConnectionBroken):
        async with request("POST", free_port(), "/", {}, b""):
            pass


async def test_a_header_cannot_bring_another_one_along() -> None:
    with pytest.raises(ValueError, match="line end"):
        async with request("POST", free_port(), "/", {"X": "a\r\nY: b"}, b""):
            pass


async def test_the_beginning_of_a_long_answer_is_enough_for_an_error() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 1_000_000)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def ask(port: int) -> None:
        async with request("POST", port, "/", {}, b"") as answer:
            assert answer.status == 500
            assert 1000 <= len(await answer.read(1000)) < 1_000_000

    await serving(serve, ask)


def test_a_connection_that_is_reset_is_broken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        async def ask() -> None:
            async with request("POST", listener.getsockname()[1], "/", {}, b""):
                pass

        async def both() -> None:
            asking = asyncio.ensure_future(ask())
            peer, _ = await asyncio.to_thread(listener.accept)
            peer.close()
            with pytest.raises(ConnectionBroken):
                await asyncio.wait_for(asking, 10)

        asyncio.run(both())
