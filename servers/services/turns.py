"""A chat turn's stream: one claimant asks the server, everybody else follows the stored text."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass

from asgiref.sync import sync_to_async
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.words import translate
from jobs.adapters.hostlink import Endpoint
from servers.domain.chat import PromptProgress, build_request
from servers.models import Instance, Turn
from servers.services.answers import AnswerFailed, stream_deltas
from servers.services.claims import (
    Claim,
    Part,
    Starting,
    Text,
    claim_turn,
    end_turn,
    look_at_turn,
    still_wanted,
    store_part,
)
from servers.services.instances import Observed
from servers.services.waking import is_under_way, ready_endpoint

logger = logging.getLogger(__name__)
FRAME = 0.04  # seconds; what arrives within it travels together; at most 50 ms with answers.GATHER
LOOK = 0.5  # seconds between two looks for a stop request; every second look stores the text
FOLLOW = 0.25
SILENCE = 15.0  # seconds until a sign of life is sent, for proxies that end silent connections
State = Turn.State


@dataclass(frozen=True)
class Kept:
    """What is kept of an answer that goes on; comes first, and is on the page already."""

    answer: str


@dataclass(frozen=True)
class Stored:
    """All that is stored of an answer so far; replaces what a follower showed."""

    turn: Turn


@dataclass(frozen=True)
class Alive:
    """Nothing new, but the connection is."""


@dataclass(frozen=True)
class Ended:
    """The turn's row is to be shown anew as a whole; the last event."""

    turn_id: int


TurnEvent = Kept | Text | PromptProgress | Starting | Stored | Alive | Ended


async def stream_turn(turn_id: int) -> AsyncGenerator[TurnEvent]:
    """Yield a turn's events up to its end (none for an unknown turn); the first caller makes the answer."""
    claim = await _claimed(turn_id)
    events = _follow(turn_id) if claim is None else _generate(claim)
    async with aclosing(events):
        async for event in events:
            yield event


async def _generate(claim: Claim) -> AsyncGenerator[TurnEvent]:
    part = Part()
    reader = asyncio.create_task(_read(claim, part))
    keeper = asyncio.create_task(_keep(claim, part, reader))
    try:
        if claim.turn.answer:
            yield Kept(claim.turn.answer)
        async for event in _paced(part):
            yield event
    finally:
        # Also reached when the client left: ending the reader closes the connection to the server.
        for task in (reader, keeper):
            task.cancel()
        await asyncio.gather(reader, keeper, return_exceptions=True)
        await asyncio.shield(sync_to_async(end_turn)(claim, part))
    yield Ended(claim.turn.pk)


async def _paced(part: Part) -> AsyncGenerator[TurnEvent]:
    """Yield the first text at once, then what has come together in each frame, until the part has ended."""
    loop = asyncio.get_running_loop()
    sent = 0.0
    while True:
        try:
            async with asyncio.timeout(SILENCE):
                await part.wake.wait()
        except TimeoutError:
            yield Alive()
            continue
        if (rest := sent + FRAME - loop.time()) > 0 and not part.ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await part.ended.wait()
        part.wake.clear()
        ended = part.ended.is_set()
        event = part.unsent()
        if event is not None:
            yield event
        if isinstance(event, Text):  # progress must not make the first text wait for a frame
            sent = loop.time()
        if ended:
            return


async def _read(claim: Claim, part: Part) -> None:
    """Ask the server and fill the part; says at the end how it went."""
    try:
        endpoint = claim.endpoint or await _started(claim, part)
        request = build_request(claim.history, claim.turn.prompt, (), claim.options)
        async with aclosing(stream_deltas(endpoint, request)) as deltas:
            async for delta in deltas:
                part.add(delta)
        part.state = State.DONE
    except Refused as error:
        part.state, part.error = State.FAILED, str(error)
    except AnswerFailed as error:
        part.state, part.error = State.FAILED, translate(error.message)
    except Exception:
        logger.exception("turn %s", claim.turn.pk)
        part.state, part.error = State.FAILED, _("The panel failed while it read the answer. Ask again.")
    finally:
        part.ended.set()
        part.wake.set()


async def _started(claim: Claim, part: Part) -> Endpoint:
    """Return where the claim's server listens once it is ready, after starting it where that may be."""
    profile = claim.turn.conversation.profile
    if profile is None or claim.asker is None:
        raise Refused(claim.refusal)

    def tell(instance: Instance) -> None:
        part.note_server(instance.observed)
        claim.n_ctx = instance.facts.get("n_ctx")

    claim.endpoint = await ready_endpoint(profile, claim.asker, tell)
    return claim.endpoint


async def _keep(claim: Claim, part: Part, reader: "asyncio.Task[None]") -> None:
    """Store the text each second and end the reader when somebody asked to stop or the claim is lost."""
    storing = False
    while True:
        await asyncio.sleep(LOOK)
        try:
            wanted = await sync_to_async(store_part if storing else still_wanted)(claim, part)
        except Exception as error:  # the database may be away for a while; the answer goes on
            logger.warning("turn %s is not stored: %s", claim.turn.pk, error)
            continue
        storing = not storing
        if not wanted:
            reader.cancel()
            return


async def _follow(turn_id: int) -> AsyncGenerator[TurnEvent]:
    """Yield the stored text whenever it changed, without ever asking the server."""
    seen: tuple[int, int] | None = None
    told = ""  # the state of a server that starts
    silent = 0.0
    while (turn := await sync_to_async(look_at_turn)(turn_id)) is not None:
        # A turn that became pending again is rendered anew, connects anew and is claimed then.
        if turn.state != State.STREAMING:
            yield Ended(turn_id)
            return
        size = (turn.attempt, len(turn.answer) + len(turn.reasoning))
        silent += FOLLOW
        if size != seen:
            yield Stored(turn)
            seen, silent = size, 0.0
        elif (server := _server_of(turn, told)) != told:
            yield Starting(server)
            told, silent = server, 0.0
        elif silent >= SILENCE:
            yield Alive()
            silent = 0.0
        await asyncio.sleep(FOLLOW)


def _server_of(turn: Turn, told: str) -> str:
    """Return the state of the turn's server while it starts, up to its being ready; else what was told."""
    instance = getattr(turn.conversation.profile, "instance", None)
    if instance is None or told == Observed.READY or not (told or is_under_way(instance)):
        return told
    return str(instance.observed)


async def _claimed(turn_id: int) -> Claim | None:
    claiming = asyncio.ensure_future(sync_to_async(claim_turn)(turn_id))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        # The client left within these milliseconds: the thread goes on, and its claim must not stay behind.
        if (claim := await claiming) is not None:
            await asyncio.shield(sync_to_async(end_turn)(claim, Part()))
        raise
