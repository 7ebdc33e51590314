"""A page's WebSocket against the ASGI application itself.

channels' own communicator cannot be imported without daphne, which the panel does not use.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import unquote

from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from controlpanel.asgi import websocket_application

ORIGIN = b"http://localhost"
TAG = re.compile(r"<[^>]*>")


class PageSocket(ApplicationCommunicator):
    """One connection to `path` (with its query) with the given headers."""

    def __init__(self, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        address, _, query = path.partition("?")
        scope = {
            "type": "websocket",
            "path": unquote(address),
            "query_string": query.encode(),
            "headers": headers,
            "subprotocols": [],
        }
        super().__init__(websocket_application, scope)

    async def connect(self) -> bool:
        """Open the connection; False when the server refused it."""
        await self.send_input({"type": "websocket.connect"})
        answer = await self.receive_output(10)
        return bool(answer["type"] == "websocket.accept")

    async def receive(self) -> str | int:
        """Return the next message, or the code with which the server closed."""
        message: dict[str, Any] = await self.receive_output(15)
        return int(message["code"]) if message["type"] == "websocket.close" else str(message["text"])

    async def until(self, found: Callable[[str], Any]) -> str:
        """Return the first message that `found` accepts."""
        async with asyncio.timeout(15):
            while True:
                message = await self.receive()
                assert isinstance(message, str), f"closed with {message}"
                if found(message):
                    return message

    async def ending(self) -> int:
        """Return the code with which the server ends the connection."""
        async with asyncio.timeout(15):
            while True:
                message = await self.receive()
                if isinstance(message, int):
                    return message

    async def leave(self) -> None:
        """Close as a browser does, and wait until the server is done."""
        await self.send_input({"type": "websocket.disconnect", "code": 1001})
        await self.wait(10)


def cookie_of(client: Client) -> str:
    """Return the Cookie header of a signed-in client."""
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


async def cookie_for(user: User) -> str:
    """Sign the user in; return the Cookie header."""
    client = Client()
    await sync_to_async(client.force_login)(user)
    return cookie_of(client)


def page(cookie: str, topics: str, path: str = "/ws/", origin: bytes = ORIGIN, **headers: str) -> PageSocket:
    """Return the socket, not connected yet, of a page with these topics."""
    pairs = [(b"origin", origin), (b"host", b"localhost"), (b"cookie", cookie.encode())]
    pairs += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return PageSocket(f"{path}?topics={topics}", pairs)


def text_of(message: str) -> str:
    """Return the text of a message as a browser shows it."""
    return unescape(TAG.sub("", message))
