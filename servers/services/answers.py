"""One answer from a ready server: the request, its stream of deltas, and `ask` for commands."""

import json
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from asgiref.sync import sync_to_async

from controlpanel.lib.errors import Refused
from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import translate
from jobs.adapters import hostlink
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

logger = logging.getLogger(__name__)
# No read timeout: a long prompt may take minutes before the first byte; whoever waits can stop.
TIMEOUT = httpx.Timeout(None, connect=5.0)

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
    for last_try in (False, True):
        arrived = False
        try:
            async with _open(endpoint, body) as response:
                arrived = True
                if response.status_code != 200:
                    raise AnswerFailed(error_in_words(response.status_code, await response.aread()))
                reader = AnswerReader()
                async for chunk in response.aiter_raw():
                    for delta in reader.feed(chunk):
                        if delta.error:
                            raise AnswerFailed(delta.error)
                        yield delta
                if problem := reader.end():
                    raise AnswerFailed(problem)
                return
        except httpx.ConnectTimeout as error:
            raise AnswerFailed(Message(N_("The server does not answer. Look at its log."))) from error
        except httpx.TransportError as error:
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
        address = await sync_to_async(_address_of)(profile)
        answer = await hostlink.server_client().get(
            f"{address.base_url}/props", headers=address.headers, timeout=PROPS_TIMEOUT
        )
        return answer.json() if answer.status_code == 200 else None
    except (Refused, Instance.DoesNotExist, httpx.HTTPError, ValueError):
        return None


def _address_of(profile: ServerProfile) -> hostlink.ServerAddress:
    endpoint = ensure_ready(profile)
    return hostlink.link(endpoint.host).open_server(endpoint)


def _open(endpoint: hostlink.Endpoint, body: bytes) -> Any:
    address = hostlink.link(endpoint.host).open_server(endpoint)
    return hostlink.server_client().stream(
        "POST",
        f"{address.base_url}/v1/chat/completions",
        headers={**address.headers, "Content-Type": "application/json"},
        content=body,
        timeout=TIMEOUT,
    )


async def ask(
    profile: ServerProfile,
    prompt: str,
    images: Sequence[str] = (),
    options: ChatOptions | None = None,
) -> Answer:
    """Return the ready server's answer to one question with images (data URIs); Refused says why not."""
    endpoint = await sync_to_async(ensure_ready)(profile)
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
