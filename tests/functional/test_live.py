"""The WebSocket of a page: who may open it, what it sends first, and what it sends when something changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import translation

from controlpanel.lib.access import has_role
from controlpanel.lib.streams import publish
from jobs import consumers, live
from jobs.live import Topic, register_topic
from jobs.logs import hub
from jobs.models import Run
from tests.sockets import PageSocket, cookie_for, cookie_of, page

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[str, Topic]:
    """A registry in which a test can add topics of its own."""
    registry = dict(live._topics)
    monkeypatch.setattr(live, "_topics", registry)
    return registry


def publish_all(*events: tuple[str, int]) -> None:
    """Tell of changes as fast as one thread can."""
    for kind, pk in events:
        publish(kind, pk)


async def close_code(socket: PageSocket) -> int:
    """Open the connection; return the code with which the server ends it at once."""
    assert await socket.connect()
    return await socket.ending()


async def test_nobody_gets_a_page_without_signing_in() -> None:
    assert await close_code(page("", "log:x")) == 4401
    assert await close_code(page(f"{settings.SESSION_COOKIE_NAME}=madeup", "log:x")) == 4401


async def test_another_site_is_refused(charlie: User, run: Run) -> None:
    cookie = await cookie_for(charlie)
    assert not await page(cookie, f"log:{run.pk}", origin=b"http://evil.example").connect()


async def test_an_account_without_a_role_is_refused(dora: User, run: Run) -> None:
    cookie = await cookie_for(dora)
    assert await close_code(page(cookie, f"log:{run.pk}")) == 4403


async def test_unknown_topics_and_too_many_are_refused(charlie: User) -> None:
    cookie = await cookie_for(charlie)
    assert await close_code(page(cookie, "no-such-topic")) == 4404
    assert await close_code(page(cookie, "log:no-such-run")) == 4403
    assert await close_code(page(cookie, ",".join(f"log:{n}" for n in range(21)))) == 4400


async def test_another_path_is_refused(charlie: User) -> None:
    cookie = await cookie_for(charlie)
    assert not await page(cookie, "log:x", path="/other/").connect()


async def test_a_sub_path_is_taken_off_whether_or_not_the_proxy_passes_it(
    settings: Any, charlie: User, run: Run
) -> None:
    settings.SUB_PATH = "/panel"
    cookie = await cookie_for(charlie)
    for path in ("/panel/ws/", "/ws/"):
        socket = page(cookie, f"log:{run.pk}", path=path)
        assert await socket.connect()
        await socket.until(lambda html: 'id="heartbeat"' in html)
        await socket.leave()


async def test_a_topic_is_rendered_again_for_its_events_and_sent_when_it_changed(
    redis_server: redis.Redis, topics: dict[str, Topic], charlie: User
) -> None:
    renders = {"thing": 0, "other": 0}

    def render(name: str, words: list[str]) -> Callable[[str, str], str]:
        def rendered(role: str, arg: str) -> str:
            renders[name] += 1
            return f'<p id="{name}-{arg}" hx-swap-oob="true">{role} {words[-1]}</p>'

        return rendered

    def allowed(user: Any, arg: str) -> bool:
        return has_role(user, "viewer")

    words = ["one"]
    register_topic(Topic("thing", frozenset({"thing"}), allowed, render("thing", words)))
    register_topic(Topic("other", frozenset({"other"}), allowed, render("other", ["same"])))
    cookie = await cookie_for(charlie)
    socket = page(cookie, "thing:7,other:1")
    await socket.connect()
    thing = '<p id="thing-7" hx-swap-oob="true">viewer %s</p>'
    await socket.until(
        lambda html: html == thing % "one" + '<p id="other-1" hx-swap-oob="true">viewer same</p>'
    )
    words.append("two")
    # In one go: a page gathers what is told at once, however slow this machine is.
    await sync_to_async(publish_all)(("other", 1), ("thing", 7))
    message = await socket.until(lambda html: "heartbeat" not in html)
    assert message == thing % "two"
    before = dict(renders)
    await sync_to_async(publish_all)(*[("thing", 7)] * 200)
    words.append("three")
    await sync_to_async(publish)("thing", 7)
    await socket.until(lambda html: "three" in html)
    assert renders["other"] == before["other"]
    assert renders["thing"] - before["thing"] < 20
    await socket.leave()


async def test_pages_that_show_the_same_share_a_render(
    redis_server: redis.Redis, topics: dict[str, Topic], bob: User, charlie: User
) -> None:
    renders: list[str] = []

    def render(role: str, arg: str) -> str:
        renders.append(role)
        return f'<p id="shared" hx-swap-oob="true">{role} {number}</p>'

    register_topic(Topic("shared", frozenset({"thing"}), lambda user, arg: True, render))
    number = 0
    viewer, operator = await cookie_for(charlie), await cookie_for(bob)
    sockets = [page(viewer, "shared") for _ in range(8)] + [page(operator, "shared")]
    for socket in sockets:
        await socket.connect()
        await socket.until(lambda html: 'id="shared"' in html)
    renders.clear()
    for number in range(1, 4):
        await sync_to_async(publish)("thing", 1)
        for socket in sockets:
            await socket.until(lambda html: f" {number}<" in html)  # noqa: B023
    assert renders.count("operator") <= 2 * 3
    assert renders.count("viewer") <= 2 * 3, "eight pages, one text"
    for socket in sockets:
        await socket.leave()


async def test_a_topic_that_fails_does_not_end_the_page(
    redis_server: redis.Redis, topics: dict[str, Topic], charlie: User
) -> None:
    def broken(role: str, arg: str) -> str:
        raise RuntimeError("this topic is broken")

    def fine(role: str, arg: str) -> str:
        return '<p id="fine" hx-swap-oob="true">fine</p>'

    register_topic(Topic("broken", frozenset({"thing"}), lambda user, arg: True, broken))
    register_topic(Topic("fine", frozenset({"thing"}), lambda user, arg: True, fine))
    cookie = await cookie_for(charlie)
    socket = page(cookie, "broken,fine")
    await socket.connect()
    await socket.until(lambda html: 'id="fine"' in html)
    await socket.leave()


async def test_a_page_ends_when_its_user_loses_the_role_or_signs_out(
    monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis, charlie: User, signed_in: Any, run: Run
) -> None:
    monkeypatch.setattr(consumers, "CHECK", 0.2)
    client = await sync_to_async(signed_in)(charlie)
    first = page(cookie_of(client), f"log:{run.pk}")
    await first.connect()
    await first.until(lambda html: f'id="log-{run.pk}"' in html)
    await charlie.groups.aclear()
    assert await first.ending() == 4403
    await sync_to_async(charlie.groups.create)(name="operator")
    second = page(cookie_of(client), f"log:{run.pk}")
    await second.connect()
    await second.until(lambda html: f'id="log-{run.pk}"' in html)
    await sync_to_async(client.logout)()
    assert await second.ending() == 4401


async def test_the_server_sends_heartbeats(
    monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis, charlie: User, run: Run
) -> None:
    monkeypatch.setattr(consumers, "HEARTBEAT", 0.2)
    socket = page(await cookie_for(charlie), f"log:{run.pk}")
    await socket.connect()
    for _ in range(3):
        await socket.until(lambda html: html == consumers.HEARTBEAT_HTML)
    await socket.leave()


async def test_a_page_is_rendered_in_the_language_of_its_user(
    redis_server: redis.Redis, topics: dict[str, Topic], charlie: User
) -> None:
    def speak(role: str, arg: str) -> str:
        return f'<p id="speak" hx-swap-oob="true">{translation.get_language()}</p>'

    register_topic(Topic("speak", frozenset(), lambda user, arg: True, speak))
    cookie = await cookie_for(charlie)
    chosen = page(f"{cookie}; {settings.LANGUAGE_COOKIE_NAME}=zh-hant", "speak", accept_language="en")
    preferred = page(cookie, "speak", accept_language="zh-Hans,en;q=0.5")
    for socket, language in ((chosen, "zh-hant"), (preferred, "zh-hans")):
        await socket.connect()
        await socket.until(lambda html, language=language: f">{language}<" in html)  # type: ignore[misc]
        await socket.leave()


async def test_a_closed_page_leaves_no_work_behind(
    monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis, charlie: User, run: Run
) -> None:
    monkeypatch.setattr(hub, "LINGER", 0.1)
    monkeypatch.setattr(live, "BLOCK", 500)
    before = asyncio.all_tasks()
    socket = page(await cookie_for(charlie), f"log:{run.pk}")
    await socket.connect()
    await socket.until(lambda html: f'id="log-{run.pk}"' in html)
    await socket.leave()
    async with asyncio.timeout(10):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.02)
