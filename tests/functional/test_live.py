"""The WebSocket of a page: who may open it, what it sends first, and what it sends when something changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from controlpanel.lib.access import has_role
from controlpanel.lib.streams import publish
from jobs import consumers, live
from jobs.adapters.runs import log_path
from jobs.live import Topic, register_topic
from jobs.logs import hub, viewer
from jobs.models import Run
from jobs.runtime.shipper import LogShipper
from tests.sockets import PageSocket

pytestmark = pytest.mark.django_db(transaction=True)

ORIGIN = b"http://localhost"
TAG = re.compile(r"<[^>]*>")


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[str, Topic]:
    """A registry in which a test can add topics of its own."""
    registry = dict(live._topics)
    monkeypatch.setattr(live, "_topics", registry)
    return registry


def cookie_of(client: Client) -> str:
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


def page(cookie: str, topics: str, path: str = "/ws/", origin: bytes = ORIGIN, **headers: str) -> PageSocket:
    pairs = [(b"origin", origin), (b"host", b"localhost"), (b"cookie", cookie.encode())]
    pairs += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return PageSocket(f"{path}?topics={topics}", pairs)


async def close_code(socket: PageSocket) -> int:
    """Open the connection; return the code with which the server ends it at once."""
    assert await socket.connect()
    return await ending(socket)


async def ending(socket: PageSocket) -> int:
    """The code with which the server ends the connection."""
    async with asyncio.timeout(15):
        while True:
            message = await socket.receive()
            if isinstance(message, int):
                return message


async def until(socket: PageSocket, found: Callable[[str], Any]) -> str:
    """The first message that `found` accepts."""
    async with asyncio.timeout(15):
        while True:
            message = await socket.receive()
            assert isinstance(message, str), f"closed with {message}"
            if found(message):
                return message


def text_of(message: str) -> str:
    return unescape(TAG.sub("", message))


async def test_nobody_gets_a_page_without_signing_in() -> None:
    assert await close_code(page("", "log:x")) == 4401
    assert await close_code(page(f"{settings.SESSION_COOKIE_NAME}=madeup", "log:x")) == 4401


async def test_another_site_is_refused(charlie: User, signed_in: Any, run: Run) -> None:
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    assert not await page(cookie, f"log:{run.pk}", origin=b"http://evil.example").connect()


async def test_an_account_without_a_role_is_refused(dora: User, signed_in: Any, run: Run) -> None:
    cookie = cookie_of(await sync_to_async(signed_in)(dora))
    assert await close_code(page(cookie, f"log:{run.pk}")) == 4403


async def test_unknown_topics_and_too_many_are_refused(charlie: User, signed_in: Any) -> None:
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    assert await close_code(page(cookie, "no-such-topic")) == 4404
    assert await close_code(page(cookie, "log:no-such-run")) == 4403
    assert await close_code(page(cookie, ",".join(f"log:{n}" for n in range(21)))) == 4400


async def test_another_path_is_refused(charlie: User, signed_in: Any) -> None:
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    assert not await page(cookie, "log:x", path="/other/").connect()


async def test_a_sub_path_is_taken_off_whether_or_not_the_proxy_passes_it(
    settings: Any, charlie: User, signed_in: Any, run: Run
) -> None:
    settings.SUB_PATH = "/panel"
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    for path in ("/panel/ws/", "/ws/"):
        socket = page(cookie, f"log:{run.pk}", path=path)
        assert await socket.connect()
        await until(socket, lambda html: 'id="heartbeat"' in html)
        await socket.leave()


async def test_the_snapshot_comes_first_and_then_what_is_added(
    redis_server: redis.Redis, charlie: User, signed_in: Any, run: Run
) -> None:
    log = log_path(run.pk)
    log.write_text("".join(f"line {n}\n" for n in range(600)) + "unfinished <b>")
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    socket = page(cookie, f"log:{run.pk}")
    await socket.connect()
    snapshot = await until(socket, lambda html: f'id="log-{run.pk}"' in html)
    assert 'hx-swap-oob="innerHTML"' in snapshot
    assert text_of(snapshot) == "".join(f"line {n}\n" for n in range(101, 600)) + "unfinished <b>"
    with log.open("a") as file:
        file.write(" finished\r\n中文\n")
    delta = await until(socket, lambda html: f'id="log-{run.pk}"' in html)
    assert 'hx-swap-oob="beforeend"' in delta
    assert text_of(delta) == " finished\r\n中文\n"
    await socket.leave()


async def test_two_pages_get_each_byte_once_from_one_reader(
    redis_server: redis.Redis, charlie: User, signed_in: Any, run: Run, tmp_path: Any
) -> None:
    log = log_path(run.pk)
    log.write_text("first\n")
    shipper = LogShipper(hub.async_client, log.parent.parent)
    shipping = asyncio.create_task(shipper.run(lambda: {run.pk}))
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    pages = [page(cookie, f"log:{run.pk}") for _ in range(2)]
    texts = []
    for socket in pages:
        await socket.connect()
        texts.append(text_of(await until(socket, lambda html: f'id="log-{run.pk}"' in html)))
    with log.open("a") as file:
        for number in range(2000):
            file.write(f"{number} ─ 文\n")
    expected = log.read_text()
    for place, socket in enumerate(pages):
        while len(texts[place]) < len(expected):
            texts[place] += text_of(await until(socket, lambda html: f'id="log-{run.pk}"' in html))
    assert texts == [expected, expected]
    assert len(hub._hubs[asyncio.get_running_loop()]) == 1
    for socket in pages:
        await socket.leave()
    shipping.cancel()
    await asyncio.gather(shipping, return_exceptions=True)


async def test_the_log_moves_without_redis(
    monkeypatch: pytest.MonkeyPatch, charlie: User, signed_in: Any, run: Run
) -> None:
    def away() -> redis.asyncio.Redis:
        return redis.asyncio.Redis(unix_socket_path="/nonexistent/valkey.sock")

    monkeypatch.setattr(hub, "async_client", away)
    monkeypatch.setattr(live, "async_client", away)
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    socket = page(cookie, f"log:{run.pk}")
    await socket.connect()
    await until(socket, lambda html: f'id="log-{run.pk}"' in html)
    log_path(run.pk).write_text("alone\n")
    delta = await until(socket, lambda html: f'id="log-{run.pk}"' in html)
    assert text_of(delta) == "alone\n"
    await socket.leave()


async def test_the_page_learns_how_the_run_ended(
    redis_server: redis.Redis, charlie: User, signed_in: Any, run: Run
) -> None:
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    socket = page(cookie, f"log:{run.pk}")
    await socket.connect()
    await until(socket, lambda html: f'id="log-state-{run.pk}"' in html and "running" in html)
    await Run.objects.filter(pk=run.pk).aupdate(state=Run.State.EXITED, exit_code=3)
    await sync_to_async(publish)("run", run.pk)
    await until(socket, lambda html: f'id="log-state-{run.pk}"' in html and "exit code 3" in html)
    await socket.leave()


async def test_a_topic_is_rendered_again_for_its_events_and_sent_when_it_changed(
    redis_server: redis.Redis, topics: dict[str, Topic], charlie: User, signed_in: Any
) -> None:
    renders = {"thing": 0, "other": 0}

    def render(name: str, words: list[str]) -> Callable[[Any, str], str]:
        def rendered(user: Any, arg: str) -> str:
            renders[name] += 1
            return f'<p id="{name}-{arg}" hx-swap-oob="true">{user.username} {words[-1]}</p>'

        return rendered

    def allowed(user: Any, arg: str) -> bool:
        return has_role(user, "viewer")

    words = ["one"]
    register_topic(Topic("thing", frozenset({"thing"}), allowed, render("thing", words)))
    register_topic(Topic("other", frozenset({"other"}), allowed, render("other", ["same"])))
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    socket = page(cookie, "thing:7,other:1")
    await socket.connect()
    await until(socket, lambda html: html == '<p id="thing-7" hx-swap-oob="true">charlie one</p>')
    await until(socket, lambda html: 'id="other-1"' in html)
    words.append("two")
    await sync_to_async(publish)("other", 1)
    await sync_to_async(publish)("thing", 7)
    message = await until(socket, lambda html: "heartbeat" not in html)
    assert message == '<p id="thing-7" hx-swap-oob="true">charlie two</p>'
    before = dict(renders)
    for _ in range(200):
        await sync_to_async(publish)("thing", 7)
    words.append("three")
    await sync_to_async(publish)("thing", 7)
    await until(socket, lambda html: "three" in html)
    assert renders["other"] == before["other"]
    assert renders["thing"] - before["thing"] < 20
    await socket.leave()


async def test_a_topic_that_fails_does_not_end_the_page(
    redis_server: redis.Redis, topics: dict[str, Topic], charlie: User, signed_in: Any
) -> None:
    def broken(user: Any, arg: str) -> str:
        raise RuntimeError("this topic is broken")

    def fine(user: Any, arg: str) -> str:
        return '<p id="fine" hx-swap-oob="true">fine</p>'

    register_topic(Topic("broken", frozenset({"thing"}), lambda user, arg: True, broken))
    register_topic(Topic("fine", frozenset({"thing"}), lambda user, arg: True, fine))
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    socket = page(cookie, "broken,fine")
    await socket.connect()
    await until(socket, lambda html: 'id="fine"' in html)
    await socket.leave()


async def test_a_page_ends_when_its_user_loses_the_role_or_signs_out(
    monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis, charlie: User, signed_in: Any, run: Run
) -> None:
    monkeypatch.setattr(consumers, "CHECK", 0.2)
    client = await sync_to_async(signed_in)(charlie)
    first = page(cookie_of(client), f"log:{run.pk}")
    await first.connect()
    await until(first, lambda html: f'id="log-{run.pk}"' in html)
    await charlie.groups.aclear()
    assert await ending(first) == 4403
    await sync_to_async(charlie.groups.create)(name="operator")
    second = page(cookie_of(client), f"log:{run.pk}")
    await second.connect()
    await until(second, lambda html: f'id="log-{run.pk}"' in html)
    await sync_to_async(client.logout)()
    assert await ending(second) == 4401


async def test_the_server_sends_heartbeats(
    monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis, charlie: User, signed_in: Any, run: Run
) -> None:
    monkeypatch.setattr(consumers, "HEARTBEAT", 0.2)
    socket = page(cookie_of(await sync_to_async(signed_in)(charlie)), f"log:{run.pk}")
    await socket.connect()
    for _ in range(3):
        await until(socket, lambda html: html == consumers.HEARTBEAT_HTML)
    await socket.leave()


async def test_a_page_is_rendered_in_the_language_of_its_user(
    redis_server: redis.Redis, topics: dict[str, Topic], charlie: User, signed_in: Any
) -> None:
    def speak(user: Any, arg: str) -> str:
        return f'<p id="speak" hx-swap-oob="true">{translation.get_language()}</p>'

    register_topic(Topic("speak", frozenset(), lambda user, arg: True, speak))
    cookie = cookie_of(await sync_to_async(signed_in)(charlie))
    chosen = page(f"{cookie}; {settings.LANGUAGE_COOKIE_NAME}=zh-hant", "speak", accept_language="en")
    preferred = page(cookie, "speak", accept_language="zh-Hans,en;q=0.5")
    for socket, language in ((chosen, "zh-hant"), (preferred, "zh-hans")):
        await socket.connect()
        await until(socket, lambda html, language=language: f">{language}<" in html)  # type: ignore[misc]
        await socket.leave()


async def test_a_closed_page_leaves_no_work_behind(
    monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis, charlie: User, signed_in: Any, run: Run
) -> None:
    monkeypatch.setattr(hub, "LINGER", 0.1)
    before = asyncio.all_tasks()
    socket = page(cookie_of(await sync_to_async(signed_in)(charlie)), f"log:{run.pk}")
    await socket.connect()
    await until(socket, lambda html: f'id="log-{run.pk}"' in html)
    await socket.leave()
    async with asyncio.timeout(10):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.02)


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
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
