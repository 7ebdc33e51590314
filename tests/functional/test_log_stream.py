"""A run's log from its file through its stream to a page."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
import redis
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from controlpanel.lib.streams import publish
from jobs import live
from jobs.adapters.runs import log_path
from jobs.logs import hub, viewer
from jobs.models import Run
from jobs.runtime import shipper as shipper_module
from jobs.runtime.shipper import LogShipper
from tests.sockets import cookie_for, page, text_of

pytestmark = pytest.mark.django_db(transaction=True)


async def test_the_snapshot_comes_first_and_then_what_is_added(
    redis_server: redis.Redis, charlie: User, run: Run
) -> None:
    log = log_path(run.pk)
    log.write_text("".join(f"line {n}\n" for n in range(600)) + "unfinished <b>")
    cookie = await cookie_for(charlie)
    socket = page(cookie, f"log:{run.pk}")
    await socket.connect()
    snapshot = await socket.until(lambda html: f'id="log-{run.pk}"' in html)
    assert 'hx-swap-oob="innerHTML"' in snapshot
    assert text_of(snapshot) == "".join(f"line {n}\n" for n in range(101, 600)) + "unfinished <b>"
    with log.open("a") as file:
        file.write(" finished\r\n中文\n")
    delta = await socket.until(lambda html: f'id="log-{run.pk}"' in html)
    assert 'hx-swap-oob="beforeend"' in delta
    assert text_of(delta) == " finished\r\n中文\n"
    arrived = re.search(r'data-time="(\d+)"', delta)  # known although no shipper told it
    assert arrived and abs(int(arrived[1]) / 1000 - time.time()) < 30
    await socket.leave()


async def test_two_pages_get_each_byte_once_from_one_reader(
    redis_server: redis.Redis, charlie: User, run: Run
) -> None:
    log = log_path(run.pk)
    log.write_text("first\n")
    shipper = LogShipper(hub.async_client, log.parent.parent)
    shipping = asyncio.create_task(shipper.run(lambda: {run.pk}))
    cookie = await cookie_for(charlie)
    pages = [page(cookie, f"log:{run.pk}") for _ in range(2)]
    texts = []
    for socket in pages:
        await socket.connect()
        texts.append(text_of(await socket.until(lambda html: f'id="log-{run.pk}"' in html)))
    with log.open("a") as file:
        for number in range(2000):
            file.write(f"{number} ─ 文\n")
    expected = log.read_text()
    for place, socket in enumerate(pages):
        while len(texts[place]) < len(expected):
            texts[place] += text_of(await socket.until(lambda html: f'id="log-{run.pk}"' in html))
    assert texts == [expected, expected]
    assert len(hub._hubs[asyncio.get_running_loop()]) == 1
    for socket in pages:
        await socket.leave()
    shipping.cancel()
    await asyncio.gather(shipping, return_exceptions=True)


async def test_a_log_that_was_replaced_begins_anew(
    redis_server: redis.Redis, charlie: User, run: Run
) -> None:
    log = log_path(run.pk)
    log.write_text("old text that is longer\n" * 10)
    shipper = LogShipper(hub.async_client, log.parent.parent)
    shipping = asyncio.create_task(shipper.run(lambda: {run.pk}))
    cookie = await cookie_for(charlie)
    socket = page(cookie, f"log:{run.pk}")
    await socket.connect()
    await socket.until(lambda html: "old text" in html)
    log.write_text("new\n")
    snapshot = await socket.until(lambda html: f'id="log-{run.pk}"' in html)
    assert 'hx-swap-oob="innerHTML"' in snapshot
    assert text_of(snapshot) == "new\n"
    with log.open("a") as file:
        file.write("newer\n")
    assert text_of(await socket.until(lambda html: f'id="log-{run.pk}"' in html)) == "newer\n"
    async with asyncio.timeout(10):
        while (await hub.async_client().xinfo_stream(f"log:{run.pk}"))["last-generated-id"] != b"10-0":
            await asyncio.sleep(0.02)
    await socket.leave()
    shipping.cancel()
    await asyncio.gather(shipping, return_exceptions=True)


async def test_an_ended_run_ships_its_rest_and_an_end_that_expires(
    redis_server: redis.Redis, run: Run
) -> None:
    log = log_path(run.pk)
    log.write_bytes("one\ntwo 中".encode()[:-1])
    active = {run.pk}
    shipper = LogShipper(hub.async_client, log.parent.parent)
    shipping = asyncio.create_task(shipper.run(lambda: set(active)))
    stream = f"log:{run.pk}"
    async with asyncio.timeout(10):
        while not redis_server.exists(stream):
            await asyncio.sleep(0.02)
    active.clear()
    async with asyncio.timeout(10):
        while redis_server.ttl(stream) < 0:
            await asyncio.sleep(0.02)
    entries = redis_server.xrange(stream)
    assert [name for name, _ in entries[-2:]] == [b"10-0", b"10-1"]
    assert b"".join(fields.get(b"data", b"") for _, fields in entries) == log.read_bytes()
    assert entries[-1][1] == {b"eof": b"1"}
    assert 0 < redis_server.ttl(stream) <= 3600
    shipping.cancel()
    await asyncio.gather(shipping, return_exceptions=True)


async def test_a_run_that_ended_while_no_shipper_was_there_gets_its_end(
    monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis, run: Run
) -> None:
    monkeypatch.setattr(shipper_module, "LEFTOVERS_AFTER", 0.1)
    log_path(run.pk).write_text("first\nlast\n")
    stream = f"log:{run.pk}"
    redis_server.xadd(stream, {"start": 0, "data": "first\n"}, id="6-0")
    shipping = asyncio.create_task(LogShipper(hub.async_client, log_path(run.pk).parent.parent).run(set))
    async with asyncio.timeout(10):
        while redis_server.ttl(stream) < 0:
            await asyncio.sleep(0.02)
    assert redis_server.xrange(stream, min="6-1") == [
        (b"11-0", {b"start": b"6", b"data": b"last\n"}),
        (b"11-1", {b"eof": b"1"}),
    ]
    shipping.cancel()
    await asyncio.gather(shipping, return_exceptions=True)


async def test_a_lost_stream_begins_at_a_line_near_the_end(redis_server: redis.Redis, run: Run) -> None:
    log = log_path(run.pk)
    log.write_bytes((b"x" * 98 + b"\n") * 60_000)
    size = log.stat().st_size
    shipping = asyncio.create_task(LogShipper(hub.async_client, log.parent.parent).run(lambda: {run.pk}))
    stream = f"log:{run.pk}"
    async with asyncio.timeout(20):
        while (
            not redis_server.exists(stream) or redis_server.xrevrange(stream, count=1)[0][0] != b"%d-0" % size
        ):
            await asyncio.sleep(0.02)
    start = int(redis_server.xrange(stream, count=1)[0][1][b"start"])
    assert start % 99 == 0
    assert 0 <= start - (size - 4 * 1024 * 1024) < 99
    shipping.cancel()
    await asyncio.gather(shipping, return_exceptions=True)


async def test_the_log_moves_without_redis(monkeypatch: pytest.MonkeyPatch, charlie: User, run: Run) -> None:
    def away() -> redis.asyncio.Redis:
        return redis.asyncio.Redis.from_url("unix:///nonexistent/valkey.sock")

    monkeypatch.setattr(hub, "async_client", away)
    monkeypatch.setattr(live, "async_client", away)
    cookie = await cookie_for(charlie)
    socket = page(cookie, f"log:{run.pk}")
    await socket.connect()
    await socket.until(lambda html: f'id="log-{run.pk}"' in html)
    log_path(run.pk).write_text("alone\n")
    delta = await socket.until(lambda html: f'id="log-{run.pk}"' in html)
    assert text_of(delta) == "alone\n"
    await socket.leave()


async def test_the_page_learns_how_the_run_ended(redis_server: redis.Redis, charlie: User, run: Run) -> None:
    cookie = await cookie_for(charlie)
    socket = page(cookie, f"log:{run.pk}")
    await socket.connect()
    await socket.until(lambda html: f'id="log-state-{run.pk}"' in html and "running" in html)
    await Run.objects.filter(pk=run.pk).aupdate(state=Run.State.EXITED, exit_code=3)
    await sync_to_async(publish)("run", run.pk)
    await socket.until(lambda html: f'id="log-state-{run.pk}"' in html and "exit code 3" in html)
    await socket.leave()


async def test_a_viewer_is_put_ahead_only_when_more_than_four_mebibytes_wait(
    redis_server: redis.Redis, run: Run
) -> None:
    log = log_path(run.pk)
    line = "x" * 99 + "\n"
    allowed = asyncio.Event()
    allowed.set()
    received: list[str] = []

    async def send(message: str) -> None:
        await allowed.wait()
        received.append(message)

    async def all_received(end: int) -> None:
        async with asyncio.timeout(20):
            while f'data-end="{end}"' not in received[-1]:
                await asyncio.sleep(0.02)

    shipper = LogShipper(hub.async_client, log.parent.parent)
    shipping = asyncio.create_task(shipper.run(lambda: {run.pk}))
    following = asyncio.create_task(viewer.follow(run.pk, send))
    async with asyncio.timeout(10):
        while not received:
            await asyncio.sleep(0.02)
    reader = hub._hubs[asyncio.get_running_loop()][run.pk]
    size = 0
    for mebibytes, gap in ((3, False), (6, True)):
        allowed.clear()
        for _ in range(mebibytes * 10):
            with log.open("a") as file:
                file.write(line * 1024)
            size += 100 * 1024
            async with asyncio.timeout(20):
                while reader.window.end < size:
                    await asyncio.sleep(0.02)
        allowed.set()
        await all_received(size)
        gaps = re.findall(
            r'class="log-gap" data-start="(\d+)" data-end="(\d+)" data-lines="(\d+)"', "".join(received)
        )
        assert bool(gaps) == gap
    start, end, lines = map(int, gaps[0])
    assert lines == (end - start) / 100
    text = sum(len(text_of(message)) for message in received)
    assert text + end - start == size
    for task in (following, shipping):
        task.cancel()
    await asyncio.gather(following, shipping, return_exceptions=True)
