"""A page's WebSocket against the ASGI application itself.

channels' own communicator cannot be imported without daphne, which the panel does not use.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from asgiref.testing import ApplicationCommunicator

from controlpanel.asgi import websocket_application


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

    async def receive(self, seconds: float = 15) -> str | int:
        """Return the next message, or the code with which the server closed."""
        message: dict[str, Any] = await self.receive_output(seconds)
        return int(message["code"]) if message["type"] == "websocket.close" else str(message["text"])

    async def leave(self) -> None:
        """Close as a browser does, and wait until the server is done."""
        await self.send_input({"type": "websocket.disconnect", "code": 1001})
        await self.wait(10)
