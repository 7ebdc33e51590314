"""Live pages: the registry of topics that a page can follow, and the one reader of the event stream."""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string
from redis.exceptions import RedisError

from controlpanel.lib.access import has_role
from controlpanel.lib.redis import async_client
from controlpanel.lib.streams import EVENTS
from jobs.logs import viewer
from jobs.logs.hub import entries_of
from jobs.models import Run

logger = logging.getLogger(__name__)

MAX_TOPICS = 20
BLOCK = 5000  # milliseconds
GATHER = 0.02  # seconds in which the rest of what is told in one go comes
ENTRIES = 500  # a reader that gets so many at once is behind: pages re-read everything instead

Follow = Callable[[str, viewer.Send], Awaitable[None]]


@dataclass(frozen=True)
class Topic:
    """Something a page shows and keeps current; on the wire `name` or `name:arg`.

    `events` are the kinds of rows whose change makes it render again. `allowed(user, arg)` and
    `render(role, arg)` run in a thread; render returns elements with an id and hx-swap-oob="true", the same
    for all users of a role. A topic with `follow(arg, send)` also sends messages of its own until it is
    cancelled; one with `every` is also rendered after so many seconds without an event.
    """

    name: str
    events: frozenset[str]
    allowed: Callable[[Any, str], bool]
    render: Callable[[str, str], str]
    follow: Follow | None = None
    every: float | None = None


@dataclass(frozen=True)
class Subscription:
    """One topic of a page with its argument ("" when it has none)."""

    topic: Topic
    arg: str


class UnknownTopic(Exception):
    """The page asks for a topic that nobody registered."""


class TooManyTopics(Exception):
    """The page asks for more than MAX_TOPICS topics."""


_topics: dict[str, Topic] = {}


def register_topic(topic: Topic) -> None:
    """Add a topic; the same one may be added again, another of its name may not."""
    if _topics.setdefault(topic.name, topic) != topic:
        raise ValueError(f"there is a topic {topic.name!r} already")


def subscriptions(text: str) -> list[Subscription]:
    """Return what the page's `topics` parameter names, each once and in its order."""
    names = list(dict.fromkeys(name for name in text.split(",") if name))
    if len(names) > MAX_TOPICS:
        raise TooManyTopics
    found: list[Subscription] = []
    for text_name in names:
        name, _, arg = text_name.partition(":")
        if name not in _topics:
            raise UnknownTopic(name)
        found.append(Subscription(_topics[name], arg))
    return found


def _may_see_log(user: Any, run_id: str) -> bool:
    return has_role(user, "viewer") and Run.objects.filter(pk=run_id).exists()


def _log_state(_role: str, run_id: str) -> str:
    run = Run.objects.get(pk=run_id)
    return render_to_string("jobs/_log_state.html", {"run": run, "oob": True})


# Logs are part of the connection itself, so their topic is always there.
register_topic(Topic("log", frozenset({"run"}), _may_see_log, _log_state, viewer.follow))


class Mailbox:
    """What changed since a page looked last."""

    def __init__(self) -> None:
        self.told_at = 0.0  # the loop's clock when something was told last
        self._kinds: set[str] = set()
        self._everything = False
        self._news = asyncio.Event()

    def put(self, kinds: set[str]) -> None:
        """Note that rows of these kinds changed."""
        self._kinds |= kinds
        self._tell()

    def put_everything(self) -> None:
        """Note that events may have been missed."""
        self._everything = True
        self._tell()

    def _tell(self) -> None:
        self.told_at = asyncio.get_running_loop().time()
        self._news.set()

    async def take(self, seconds: float) -> tuple[set[str], bool]:
        """Wait at most so long for news; return the kinds of rows and whether anything may have changed."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return set(), False
        await asyncio.sleep(GATHER)
        kinds, everything = self._kinds, self._everything
        self._kinds, self._everything = set(), False
        self._news.clear()
        return kinds, everything


class EventFeed:
    """The event stream's one reader in a loop; it works while there is a mailbox."""

    def __init__(self) -> None:
        self.down = False
        self._boxes: set[Mailbox] = set()
        self._reader: asyncio.Task[None] | None = None

    def open(self) -> Mailbox:
        """Return a mailbox; the first one starts the reader."""
        box = Mailbox()
        self._boxes.add(box)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read(), name="events")
        return box

    def close(self, box: Mailbox) -> None:
        """Take a mailbox away; the last one ends the reader."""
        self._boxes.discard(box)
        if not self._boxes and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    async def _read(self) -> None:
        last: bytes | None = None
        # redis-py loses a cancellation that comes while it connects, so the loop looks for itself.
        while self._reader is asyncio.current_task():
            try:
                last = await self._step(last)
                self.down = False
            except (RedisError, OSError):
                self.down, last = True, None
                await asyncio.sleep(1)
            except Exception:
                logger.exception("reading events")
                last = None
                await asyncio.sleep(1)

    async def _step(self, last: bytes | None) -> bytes | None:
        client = async_client()
        if last is None:
            newest: Any = await client.xrevrange(EVENTS, count=1)
            for box in self._boxes:
                box.put_everything()
            return newest[0][0] if newest else b"0-0"
        place: dict[Any, Any] = {EVENTS: last}
        entries = entries_of(await client.xread(place, count=ENTRIES, block=BLOCK))
        if len(entries) == ENTRIES:
            return None
        kinds = {fields[b"kind"].decode() for _, fields in entries if b"kind" in fields}
        if kinds:
            for box in self._boxes:
                box.put(kinds)
        return entries[-1][0] if entries else last


_feeds: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, EventFeed]" = weakref.WeakKeyDictionary()


def event_feed() -> EventFeed:
    """Return the running loop's feed."""
    return _feeds.setdefault(asyncio.get_running_loop(), EventFeed())
