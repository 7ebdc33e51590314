"""The panel's web process within a test: uvicorn on Django, on the test's database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from channels.routing import ProtocolTypeRouter
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.test import Client, override_settings

from controlpanel.asgi import websocket_application
from tests.engines import free_port
from tests.waiting import wait_for


def pages() -> Any:
    """Django with the sources of static files instead of copies that were collected at some time."""
    with TemporaryDirectory() as empty:
        # ServeStatic reads these once, when the middleware is made.
        sources = {"SERVESTATIC_USE_FINDERS": True, "SERVESTATIC_AUTOREFRESH": True, "STATIC_ROOT": empty}
        with override_settings(**sources):
            return get_asgi_application()


@contextmanager
def web() -> Iterator[str]:
    """A running web process; its address without a slash at the end."""
    port = free_port()
    config = uvicorn.Config(
        ProtocolTypeRouter({"http": pages(), "websocket": websocket_application}),
        port=port,
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, 60, "uvicorn to listen")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


def cookies(user: User) -> dict[str, str]:
    """The cookies of a signed-in user."""
    client = Client()
    client.force_login(user)
    return {name: morsel.value for name, morsel in client.cookies.items()}
