"""Renders of topics, shared by all pages of a process whose readers have the same role and language."""

import asyncio
import logging
import weakref
from typing import TYPE_CHECKING

from channels.db import database_sync_to_async
from django.conf import settings
from django.urls import set_script_prefix
from django.utils import translation

if TYPE_CHECKING:
    from jobs.live import Subscription

logger = logging.getLogger(__name__)

KEPT = 20.0  # seconds for which a render is kept for those who ask late
FRESH = 1.0  # seconds for which a render serves pages to which nothing was told

Key = tuple["Subscription", str, str]


class Renders:
    """The last render of each topic by role and language, in one loop."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[float, asyncio.Task[str]]] = {}

    async def get(self, topic: "Subscription", role: str, language: str, since: float) -> str:
        """Return a render that began at `since` (the loop's clock) or later; "" when it fails."""
        clock = asyncio.get_running_loop().time
        key = topic, role, language
        begun, task = self._last.get(key, (since - 1, None))
        if task is None or begun < since:
            begun, task = clock(), asyncio.create_task(_rendered(topic, role, language), name="render")
            self._last[key] = begun, task
            for old in [old for old, (at, _task) in self._last.items() if at < begun - KEPT]:
                del self._last[old]
        # A page that leaves must not end the render for the others.
        return await asyncio.shield(task)


async def _rendered(topic: "Subscription", role: str, language: str) -> str:
    try:
        return await _in_a_thread(topic, role, language)
    except Exception:
        logger.exception("rendering %s:%s", topic.topic.name, topic.arg)
        return ""


def _now(topic: "Subscription", role: str, language: str) -> str:
    # Links in the page need the prefix that requests get from their handler.
    set_script_prefix(f"{settings.SUB_PATH}/")
    with translation.override(language):
        return topic.topic.render(role, topic.arg)


# Each call may run in any thread: one slow page must not hold up the others.
_in_a_thread = database_sync_to_async(_now, thread_sensitive=False)

_renders: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Renders]" = weakref.WeakKeyDictionary()


def renders() -> Renders:
    """Return the running loop's renders."""
    return _renders.setdefault(asyncio.get_running_loop(), Renders())
