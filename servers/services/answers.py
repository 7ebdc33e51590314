"""One answer from a server: the request, its stream of deltas, and `ask` for commands."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async

from controlpanel.lib.errors import Refused
from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import translate
from jobs.adapters import hostlink
from jobs.adapters.loopback import ConnectionBroken, NoConnection, ServerUnreachable
from jobs.services.audit import Actor
from servers.domain.chat import (
    AnswerParts,
    AnswerReader,
    ChatOptions,
    Delta,
    build_request,
    error_in_words,
    timings_summary,
)
from servers.domain.sse import StreamBroken
from servers.models import Instance, ServerProfile
from servers.services.instances import ensure_ready
from servers.services.waking import ready_endpoint

logger = logging.getLogger(__name__)
CHAT = "/v1/chat/completions"
ERROR_BYTES = 64 * 1024
GATHER = 0.01  # seconds for which tokens come together once text has begun: fewer wake-ups for each
PROPS_TIMEOUT = 1.0


class AnswerFailed(Exception):
    """The server gave no answer, or only a part of one; `message` says why in words."""

    def __init__(self, message: Message) -> None:
        super().__init__(str(message))
        self.message = message


@dataclass(frozen=True)
class Answer:
    """A complete answer; timings as of `timings_summary`, with first_token_s and finish_reason."""

    answer: str
    reasoning: str
    timings: dict[str, Any]


async def stream_deltas(endpoint: hostlink.Endpoint, request: dict[str, Any]) -> AsyncGenerator[Delta]:
    """Yield the answer's deltas; AnswerFailed ends it. Closing the generator closes the connection."""
    body = json.dumps(request).encode()
    link = hostlink.link(endpoint.host)
    for last_try in (False, True):
        arrived = False
        try:
            async with link.open_stream(endpoint, CHAT, body) as answer:
                arrived = True
                if answer.status != 200:
                    raise AnswerFailed(error_in_words(answer.status, await answer.read(ERROR_BYTES)))
                reader, text_began = AnswerReader(), False
                async for chunk in answer.chunks():
                    for delta in reader.feed(chunk):
                        if delta.error:
                            raise AnswerFailed(delta.error)
                        yield delta
                        text_began = text_began or bool(delta.content or delta.reasoning)
                    if text_began:
                        await asyncio.sleep(GATHER)
                if problem := reader.end():
                    raise AnswerFailed(problem)
                return
        except NoConnection as error:
            raise AnswerFailed(Message(N_("The server does not answer. Look at its log."))) from error
        except ConnectionBroken as error:
            # The server closes kept connections without a word: once more, if it cannot have begun.
            logger.info("connection to the server of run %s broke: %r", endpoint.run_id, error)
            if arrived or last_try:
                raise AnswerFailed(
                    Message(N_("The connection to the server broke. Look at its log."))
                ) from error
        except StreamBroken as error:
            raise AnswerFailed(Message(N_("The server's answer cannot be read: it is too long."))) from error


async def server_props(profile: ServerProfile) -> Any:
    """Return what the profile's server tells at /props, None when it does not answer within a second."""
    try:
        endpoint = await sync_to_async(ensure_ready)(profile)
        reply = await hostlink.link(endpoint.host).ask_server(endpoint, "/props", PROPS_TIMEOUT)
        return json.loads(reply.body) if reply.status == 200 else None
    except (Refused, Instance.DoesNotExist, ServerUnreachable, ValueError):
        return None


async def ask(
    actor: Actor,
    profile: ServerProfile,
    prompt: str,
    images: Sequence[str] = (),
    options: ChatOptions | None = None,
) -> Answer:
    """Return the server's answer to one question with images (data URIs); Refused says why not.

    A server that is started on demand is waited for.
    """
    endpoint = await ready_endpoint(profile, actor)
    parts = AnswerParts()
    started = time.monotonic()
    first: float | None = None
    deltas = stream_deltas(endpoint, build_request((), prompt, images, options))
    try:
        async for delta in deltas:
            parts.add(delta)
            if first is None and (delta.content or delta.reasoning):
                first = time.monotonic() - started
    except AnswerFailed as error:
        raise Refused(translate(error.message), code="answer_failed") from error
    finally:
        await deltas.aclose()
    return Answer("".join(parts.answer), "".join(parts.reasoning), numbers(parts, first))


def numbers(parts: AnswerParts, first_token_s: float | None) -> dict[str, Any]:
    """Return what is stored about an answer besides its text."""
    return {
        **timings_summary(parts.timings),
        "first_token_s": None if first_token_s is None else round(first_token_s, 4),
        "finish_reason": parts.finish_reason,
    }
