"""Redis (or the embedded Valkey): one address for all, and clients that never block for long."""

import asyncio
import functools
import weakref
from urllib.parse import urlsplit

import redis
import redis.asyncio
from django.conf import settings

TIMEOUT = 1.0  # seconds; a page must stay fast when the broker is down


def kombu_url(url: str) -> str:
    """Translate a redis-py address into kombu's form, which differs for unix sockets only."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    database = dict(item.split("=", 1) for item in parts.query.split("&") if "=" in item).get("db", "0")
    return f"redis+socket://{parts.path}?virtual_host={database}"


@functools.cache
def sync_client() -> "redis.Redis":
    """Return this process's client; each call fails within a second or two when the server is away."""
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, health_check_interval=30
    )


_async_clients: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, redis.asyncio.Redis]" = (
    weakref.WeakKeyDictionary()
)


def async_client() -> "redis.asyncio.Redis":
    """Return the running loop's client; blocking reads must ask for less than 10 s."""
    loop = asyncio.get_running_loop()
    client = _async_clients.get(loop)
    if client is None:
        client = redis.asyncio.Redis.from_url(
            settings.REDIS_URL, socket_timeout=15, socket_connect_timeout=TIMEOUT
        )
        _async_clients[loop] = client
    return client
