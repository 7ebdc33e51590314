"""The ASGI application: Django for HTTP, one consumer for the pages' WebSockets."""

import os
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlpanel.settings")
django_application = get_asgi_application()

# These import models, so they come after Django's set-up.
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator, WebsocketDenier  # noqa: E402
from channels.sessions import CookieMiddleware  # noqa: E402
from django.conf import settings  # noqa: E402
from django.urls import path, re_path  # noqa: E402

from jobs.consumers import LiveConsumer  # noqa: E402


class SubPath:
    """Takes PANEL_URL's path off WebSocket addresses, for proxies that pass it on."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        prefix = settings.SUB_PATH
        if prefix and scope["path"].startswith(f"{prefix}/"):
            scope = {**scope, "path": scope["path"].removeprefix(prefix)}
        return await self.application(scope, receive, send)


# The consumer asks for the session's user itself, at the start and each minute: no AuthMiddleware.
websocket_application = AllowedHostsOriginValidator(
    SubPath(
        URLRouter(
            [
                path("ws/", CookieMiddleware(LiveConsumer.as_asgi())),
                re_path("", WebsocketDenier.as_asgi()),
            ]
        )
    )
)
application = ProtocolTypeRouter({"http": django_application, "websocket": websocket_application})
