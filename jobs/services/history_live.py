"""The last minute of all subjects, second by second: from the agent to the pages through Redis."""

import json
import logging
import threading
import time as clock
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from redis.exceptions import RedisError

from controlpanel.lib.redis import sync_client
from jobs.domain.series import known, told
from jobs.models import Host

logger = logging.getLogger(__name__)

LENGTH = 60  # entries, one for each second
FEW = 5  # entries that are read first: most readers ask for the last second or two
DELAY = 2  # seconds after which nothing more is recorded of a second
PAUSE = 3.0  # seconds without a further try after a failure, so that a page waits for the broker once

Values = dict[str, float | None]
Second = tuple[int, dict[str, Values]]

_lock = threading.Lock()
_recent: dict[int, dict[str, Values]] = {}  # what is not published yet, by second and subject
_published = True
_next_try = 0.0


def stream_of(host_slug: str) -> str:
    """Return the name of a host's stream; an entry has `time` and {subject: {field: value}} in `data`."""
    return f"series:{host_slug}"


def note(subject: str, seconds: Sequence[int], values: Values) -> None:
    """Keep a subject's values of these seconds until they are published."""
    with _lock:
        for second in seconds:
            _recent.setdefault(second, {})[subject] = values
        while len(_recent) > LENGTH:
            del _recent[next(iter(_recent))]


def publish_history() -> None:
    """Publish the seconds that are complete."""
    publish_seconds(settings.PANEL_HOST, clock.time())


def publish_rest() -> None:
    """Publish all that was recorded: nothing more comes."""
    publish_seconds(settings.PANEL_HOST, clock.time() + DELAY)


def publish_seconds(host_slug: str, now: float) -> None:
    """Publish what was recorded of the seconds that are complete at `now`, one entry each."""
    global _published
    with _lock:
        # Seconds of the future are from before the clock was set back; they come when it is their time.
        ready = sorted(second for second in _recent if second <= int(now) - DELAY)
        found = [(second, _recent.pop(second)) for second in ready]
    try:
        for second, subjects in found:
            fields: dict[Any, Any] = {"time": str(second), "data": _text(subjects)}
            sync_client().xadd(stream_of(host_slug), fields, maxlen=LENGTH, approximate=False)
    except (RedisError, OSError) as error:
        if _published:
            logger.warning("samples are not published: %s", error)
        _published = False
        return
    _published = True


def _text(subjects: Mapping[str, Values]) -> str:
    rounded = {
        subject: dict(zip(values, told(list(values.values())), strict=True))
        for subject, values in subjects.items()
    }
    return json.dumps(rounded, separators=(",", ":"))


def live_since(host: Host, time: float) -> list[Second]:
    """Return what was published of the seconds after `time`, each once, oldest first; at most a minute.

    Without Redis, and for a few seconds after it did not answer, that is nothing.
    """
    global _next_try
    if clock.monotonic() < _next_try:
        return []
    try:
        found = _entries(host, FEW)
        if not found or found[-1][0] > time:
            found = _entries(host, LENGTH)
    except (RedisError, OSError):
        _next_try = clock.monotonic() + PAUSE
        return []
    # After a clock was set back a second is there twice: the newer one counts.
    return sorted({second: values for second, values in reversed(found) if second > time}.items())


def _entries(host: Host, count: int) -> list[Second]:
    """Return the last entries, the newest first; one that something else wrote is left out."""
    found = []
    entries: Any = sync_client().xrevrange(stream_of(host.slug), count=count)
    for _name, fields in entries:
        try:
            found.append((int(fields[b"time"]), _values(json.loads(fields[b"data"]))))
        except (KeyError, ValueError):
            continue
    return found


def _values(data: Any) -> dict[str, Values]:
    """Return the values of a second by subject, what is no number as unknown; ValueError for other data."""
    if not isinstance(data, dict) or not all(isinstance(fields, dict) for fields in data.values()):
        raise ValueError("this is no second")
    return {
        subject: {
            name: known(value) if isinstance(value, int | float) else None for name, value in fields.items()
        }
        for subject, fields in data.items()
    }
