"""A turn as a stream of server-sent events."""

import html
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import translation
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from controlpanel.lib.access import has_role
from servers.domain.chat import PromptProgress
from servers.services.claims import Starting, Text, look_at_turn
from servers.services.conversations import turns_of
from servers.services.instances import Observed
from servers.services.turns import Alive, Ended, Kept, Stored, TurnEvent, stream_turn
from servers.views.turn_card import render_card, render_part
from servers.views.turn_live import LiveAnswer

logger = logging.getLogger(__name__)
CLOSE = b"event: close\ndata: end\n\n"


@require_GET
async def turn_stream(request: HttpRequest, pk: int) -> StreamingHttpResponse:
    """Answer 200 whatever happens and end with the close event, or the browser would ask again for ever."""
    return StreamingHttpResponse(
        _frames(request, pk, translation.get_language() or "en"),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"},
    )


# Not by the decorator: a redirect or a 403 is no event stream. `_readable` holds the same rule.
turn_stream.role_needed = "viewer"  # type: ignore[attr-defined]


async def _frames(request: HttpRequest, pk: int, language: str) -> AsyncGenerator[bytes]:
    translation.activate(language)
    try:
        if await sync_to_async(_readable)(request, pk):
            live = LiveAnswer()
            async with aclosing(stream_turn(pk)) as events:
                async for event in events:
                    async for frame in _frames_of(event, pk, live):
                        yield frame
    except Exception:
        logger.exception("stream of turn %s", pk)
    yield CLOSE


def _readable(request: HttpRequest, pk: int) -> bool:
    user = request.user
    return isinstance(user, User) and has_role(user, "viewer") and turns_of(user).filter(pk=pk).exists()


async def _frames_of(event: TurnEvent, pk: int, live: LiveAnswer) -> AsyncGenerator[bytes]:
    if isinstance(event, Text):
        if event.reasoning:
            yield sse_frame("reasoning", html.escape(event.reasoning))
        if event.answer:
            yield sse_frame("delta", html.escape(event.answer))
            if blocks := await live.add(event.answer):
                yield sse_frame("blocks", blocks + _new_tail(pk, live.tail))
        if not live.begun:
            live.begun = True
            yield sse_frame("progress", html.escape(_("Answering")))
    elif isinstance(event, PromptProgress):
        yield sse_frame("progress", _progress(event))
    elif isinstance(event, Starting):
        yield sse_frame("progress", _starting(event))
    elif isinstance(event, Stored):
        await live.grow(event.turn.answer)
        yield sse_frame("part", await sync_to_async(render_part)(event.turn, live))
    elif isinstance(event, Kept):
        await live.add(event.answer)
    elif isinstance(event, Ended):
        if text := await sync_to_async(_final)(event.turn_id):
            yield sse_frame("done", text)
    else:
        assert isinstance(event, Alive)
        yield b":\n\n"


def _new_tail(pk: int, tail: str) -> str:
    # Together with the blocks, so that a text is never shown twice or not at all.
    return f'<div id="turn-{pk}-tail" hx-swap-oob="innerHTML">{html.escape(tail)}</div>'


def sse_frame(name: str, text: str) -> bytes:
    """Return one event; its data arrives as exactly the HTML `text`, whatever line ends it has."""
    lines = text.replace("\r", "&#13;").replace("\n", "\ndata: ")
    return f"event: {name}\ndata: {lines}\n\n".encode()


def _progress(progress: PromptProgress) -> str:
    words = _("Reading the prompt: %(processed)s of %(total)s tokens") % {
        "processed": progress.processed,
        "total": progress.total,
    }
    return html.escape(words)


def _starting(event: Starting) -> str:
    if event.observed == Observed.READY:
        # The composer's hint that a message starts the server is true no more.
        gone = '<span id="composer-start" hx-swap-oob="true"></span>'
        return html.escape(_("Waiting for the server")) + gone
    state = Observed(event.observed).label
    return html.escape(_("Starting the server… (%(state)s)") % {"state": state})


def _final(turn_id: int) -> str:
    turn = look_at_turn(turn_id)
    return render_card(turn) if turn else ""
