"""The panel's event stream: (kind, pk) says that a row changed; readers read the row again."""

import logging
import time

from django.db import transaction
from redis.exceptions import RedisError

from controlpanel.lib.redis import sync_client

EVENTS = "events"
LENGTH = 10_000
PAUSE = 3.0  # seconds without a further try after a failure, so that a page waits for the broker once
logger = logging.getLogger(__name__)
_next_try = 0.0


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
