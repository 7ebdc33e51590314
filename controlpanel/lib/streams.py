"""The panel's event stream: (kind, pk) says that a row changed, and readers read it again; and last samples.

A sample is the one entry of a stream, the last one wins: `time` (seconds since 1970) and `data` (JSON).
"""

import logging
import time
from typing import Any

from django.db import transaction
from redis.exceptions import RedisError

from controlpanel.lib.redis import sync_client

EVENTS = "events"
LENGTH = 10_000
PAUSE = 3.0  # seconds without a further try after a failure, so that a page waits for the broker once
logger = logging.getLogger(__name__)
_next_try = 0.0
_silent: set[str] = set()  # streams whose last sample could not be published


def publish(kind: str, pk: object) -> None:
    """Tell all readers that the row (kind, pk) changed; without Redis pages catch up by themselves."""
    global _next_try
    if time.monotonic() < _next_try:
        return
    try:
        sync_client().xadd(EVENTS, {"kind": kind, "pk": str(pk)}, maxlen=LENGTH, approximate=True)
    except (RedisError, OSError) as error:
        _next_try = time.monotonic() + PAUSE
        logger.warning("events are not published: %s", error)


def publish_on_commit(kind: str, pk: object) -> None:
    """Publish once the surrounding transaction has been committed."""
    transaction.on_commit(lambda: publish(kind, pk))


def publish_last(stream: str, at: float, data: str) -> bool:
    """Make `data` the stream's sample; False when Redis does not answer, which is logged once."""
    fields: dict[Any, Any] = {"time": f"{at:.3f}", "data": data}
    try:
        sync_client().xadd(stream, fields, maxlen=1, approximate=False)
    except (RedisError, OSError) as error:
        if stream not in _silent:
            logger.warning("samples of %s are not published: %s", stream, error)
        _silent.add(stream)
        return False
    _silent.discard(stream)
    return True
