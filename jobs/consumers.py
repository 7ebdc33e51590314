"""The one WebSocket of a page: renders its topics again when their rows change, and follows its logs."""

import asyncio
import logging
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user
from django.utils import translation

from controlpanel.lib.access import role_of
from jobs.live import (
    Mailbox,
    Subscription,
    TooManyTopics,
    UnknownTopic,
    event_feed,
    subscriptions,
)
from jobs.renders import FRESH, renders

logger = logging.getLogger(__name__)

# Close codes that tell the page not to come back by itself.
TOO_MANY, SIGNED_OUT, NOT_ALLOWED, UNKNOWN = 4400, 4401, 4403, 4404

HEARTBEAT = 10.0  # seconds
CHECK = 60.0  # seconds between two looks at what the user may see
RENDER_PAUSE = 0.2  # seconds between two renders
RENDER_ALL = 15.0  # seconds after which all topics are rendered whatever the events say
RENDER_ALL_BLIND = 5.0  # the same without an event stream
RETRY = 2.0  # seconds before a topic that failed is followed again

HEARTBEAT_HTML = '<span id="heartbeat" hx-swap-oob="true" hidden></span>'


class Refused(Exception):
    """The user may not (or no longer) follow what the page asks for."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Gone(Exception):
    """The browser has left."""


class LiveConsumer(AsyncWebsocketConsumer):
    """Serves `/ws/?topics=a,b:arg` to one page."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._work: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Also when the server ends the connection without a disconnect message.
            if self._work is not None:
                self._work.cancel()
                await asyncio.gather(self._work, return_exceptions=True)

    async def connect(self) -> None:
        # Accepted even when refused: only an open socket can carry a code that tells the page why.
        await self.accept()
        query = parse_qs(self.scope["query_string"].decode("latin1"))
        try:
            self._topics = subscriptions(",".join(query.get("topics", [])))
            self._role = await _permitted(self._session_key(), self._topics)
        except TooManyTopics:
            await self.close(TOO_MANY)
        except UnknownTopic:
            await self.close(UNKNOWN)
        except Refused as refused:
            await self.close(refused.code)
        else:
            self._language = _language(self.scope)
            self._work = asyncio.create_task(self._serve(), name="live page")

    def _session_key(self) -> str:
        return str(self.scope["cookies"].get(settings.SESSION_COOKIE_NAME, ""))

    async def _serve(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat())
                group.create_task(self._check())
                group.create_task(self._keep_current())
                for topic in self._topics:
                    if topic.topic.follow is not None:
                        group.create_task(self._follow(topic))
        except* Refused as group_of_refused:
            await self.close(_first(group_of_refused).code)
        except* Gone:
            pass
        except* Exception:
            logger.exception("a live page ended")
            await self.close(1011)

    async def _put(self, html: str) -> None:
        try:
            async with self._sending:
                await self.send(text_data=html)
        except (OSError, RuntimeError) as error:  # the server's words for a connection that is closed
            raise Gone from error

    async def _beat(self) -> None:
        while True:
            await self._put(HEARTBEAT_HTML)
            await asyncio.sleep(HEARTBEAT)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK)
            try:
                self._role = await _permitted(self._session_key(), self._topics)
            except Refused:
                raise
            except Exception:
                logger.exception("permissions of a live page were not checked")

    async def _follow(self, topic: Subscription) -> None:
        assert topic.topic.follow is not None
        while True:
            try:
                await topic.topic.follow(topic.arg, self._put)
            except Gone:
                raise
            except Exception:
                logger.exception("following %s:%s", topic.topic.name, topic.arg)
            await asyncio.sleep(RETRY)

    async def _keep_current(self) -> None:
        feed = event_feed()
        box = feed.open()
        try:
            shown: dict[Subscription, str] = {}
            clock = asyncio.get_running_loop().time
            await self._render(self._topics, shown, clock())
            rendered = dict.fromkeys(self._topics, clock())
            while True:
                kinds, everything = await self._due(box)
                late = RENDER_ALL_BLIND if feed.down else RENDER_ALL
                due = [
                    topic
                    for topic in self._topics
                    if everything
                    or topic.topic.events & kinds
                    or clock() - rendered[topic] >= min(late, topic.topic.every or late)
                ]
                rendered |= dict.fromkeys(due, clock())
                told = bool(kinds) or everything
                await self._render(due, shown, box.told_at if told else clock() - FRESH)
        finally:
            feed.close(box)

    async def _due(self, box: Mailbox) -> tuple[set[str], bool]:
        await asyncio.sleep(RENDER_PAUSE)
        return await box.take(1.0)

    async def _render(self, topics: list[Subscription], shown: dict[Subscription, str], since: float) -> None:
        """Send what of the topics is not on the page yet, in one message."""
        found = await asyncio.gather(
            *(renders().get(topic, self._role, self._language, since) for topic in topics)
        )
        new = {topic: html for topic, html in zip(topics, found, strict=True) if html}
        new = {topic: html for topic, html in new.items() if shown.get(topic) != html}
        shown.update(new)
        if new:
            await self._put("".join(new.values()))


def _first(group: "ExceptionGroup[Refused]") -> Refused:
    error: Refused | ExceptionGroup[Refused] = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _permitted_now(session_key: str, topics: list[Subscription]) -> str:
    """Return the role of the session's user as it is now; raise Refused when a topic is not allowed."""
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key or None)
    request: Any = SimpleNamespace(session=session)
    user = get_user(request)
    if not user.is_authenticated:
        raise Refused(SIGNED_OUT)
    for topic in topics:
        try:
            allowed = topic.topic.allowed(user, topic.arg)
        except ValueError:  # an argument that is no id
            allowed = False
        if not allowed:
            raise Refused(NOT_ALLOWED)
    return role_of(user) or ""


# It may run in any thread: one slow page must not hold up the others.
_permitted = database_sync_to_async(_permitted_now, thread_sensitive=False)


def _language(scope: Any) -> str:
    """Return the language that LocaleMiddleware would choose for a request of this browser."""
    headers = dict(scope["headers"])
    accepted = headers.get(b"accept-language", b"").decode("latin1")
    request: Any = SimpleNamespace(COOKIES=scope["cookies"], META={"HTTP_ACCEPT_LANGUAGE": accepted})
    return translation.get_language_from_request(request)
