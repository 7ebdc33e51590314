"""A chat turn's stream: one claimant asks the server, everybody else follows the stored text."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from asgiref.sync import sync_to_async
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.words import translate
from jobs.adapters.hostlink import Endpoint
from servers.domain.chat import AnswerParts, ChatOptions, Delta, Exchange, PromptProgress, build_request
from servers.models import Turn
from servers.services.answers import AnswerFailed, numbers, stream_deltas
from servers.services.conversations import end_stale_turns, why_not_ready
from servers.services.instances import ensure_ready

logger = logging.getLogger(__name__)
FRAME = 0.05  # seconds; what arrives within it travels together
LOOK = 0.5  # seconds between two looks for a stop request; every second look stores the text
FOLLOW = 0.25
SILENCE = 15.0  # seconds until a sign of life is sent, for proxies that end silent connections
State = Turn.State


@dataclass(frozen=True)
class Text:
    """Text to append to the answer and to the reasoning."""

    answer: str
    reasoning: str


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


TurnEvent = Text | PromptProgress | Stored | Alive | Ended


@dataclass(frozen=True)
class Claim:
    """The right to answer one turn, held by whoever turned it from pending to streaming."""

    turn: Turn
    history: list[Exchange]
    endpoint: Endpoint | None
    refusal: str = ""


@dataclass
class Part:
    """What has arrived for a claim: texts, what of them is still unsent, and how it ended."""

    parts: AnswerParts = field(default_factory=AnswerParts)
    answer: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    progress: PromptProgress | None = None
    started: float = field(default_factory=time.monotonic)
    first_token_s: float | None = None
    # What the turn becomes: stopped, unless the stream came to an end of its own.
    state: str = State.STOPPED
    error: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, delta: Delta) -> None:
        """Take in a delta and wake whoever sends."""
        self.parts.add(delta)
        if delta.content or delta.reasoning:
            if self.first_token_s is None:
                self.first_token_s = time.monotonic() - self.started
            self.answer.append(delta.content)
            self.reasoning.append(delta.reasoning)
            self.wake.set()
        elif delta.progress:
            self.progress = delta.progress
            self.wake.set()

    def unsent(self) -> Text | PromptProgress | None:
        """Return what is to be sent now, and count it as sent; text makes progress old news."""
        progress, self.progress = self.progress, None
        if not self.answer:
            return progress
        text = Text("".join(self.answer), "".join(self.reasoning))
        self.answer.clear()
        self.reasoning.clear()
        return text


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
        if claim.endpoint is None:
            part.state, part.error = State.FAILED, claim.refusal
            return
        options = ChatOptions(prefill=claim.turn.answer)
        request = build_request(claim.history, claim.turn.prompt, (), options)
        async with aclosing(stream_deltas(claim.endpoint, request)) as deltas:
            async for delta in deltas:
                part.add(delta)
        part.state = State.DONE
    except AnswerFailed as error:
        part.state, part.error = State.FAILED, translate(error.message)
    except Exception:
        logger.exception("turn %s", claim.turn.pk)
        part.state, part.error = State.FAILED, _("The panel failed while it read the answer. Ask again.")
    finally:
        part.ended.set()
        part.wake.set()


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
        elif silent >= SILENCE:
            yield Alive()
            silent = 0.0
        await asyncio.sleep(FOLLOW)


async def _claimed(turn_id: int) -> Claim | None:
    claiming = asyncio.ensure_future(sync_to_async(claim_turn)(turn_id))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        # The client left within these milliseconds: the thread goes on, and its claim must not stay behind.
        if (claim := await claiming) is not None:
            await asyncio.shield(sync_to_async(end_turn)(claim, Part()))
        raise


def claim_turn(turn_id: int) -> Claim | None:
    """Turn a pending turn into a streaming one, with all that an answer needs; None when it is not ours."""
    won = Turn.objects.filter(pk=turn_id, state=State.PENDING).update(
        state=State.STREAMING, attempt=F("attempt") + 1, stop_requested=False, updated_at=timezone.now()
    )
    if not won:
        return None
    turn = Turn.objects.select_related("conversation__profile").get(pk=turn_id)
    earlier = turn.conversation.turns.filter(position__lt=turn.position).exclude(answer="")
    history = [Exchange(*texts) for texts in earlier.order_by("position").values_list("prompt", "answer")]
    profile = turn.conversation.profile
    if profile is None:
        return Claim(turn, history, None, why_not_ready(None))
    try:
        return Claim(turn, history, ensure_ready(profile))
    except Refused as error:
        return Claim(turn, history, None, str(error))
    except Exception:
        # The turn is ours already, so it has to end in words here too.
        logger.exception("turn %s", turn_id)
        return Claim(turn, history, None, _("The panel failed while it looked for the server. Ask again."))


def store_part(claim: Claim, part: Part) -> bool:
    """Store what has arrived and the heartbeat; False when the claimant should stop."""
    won = _own_row(claim).update(
        answer=claim.turn.answer + "".join(part.parts.answer),
        reasoning=claim.turn.reasoning + "".join(part.parts.reasoning),
        updated_at=timezone.now(),
    )
    return bool(won) and still_wanted(claim, part)


def still_wanted(claim: Claim, _part: Part) -> bool:
    """False when somebody asked to stop, or when the turn is not this claimant's any more."""
    return _own_row(claim).filter(stop_requested=False).exists()


def end_turn(claim: Claim, part: Part) -> bool:
    """Store the end of the claimant's work; False when the turn was not its own any more."""
    return bool(
        _own_row(claim).update(
            state=part.state,
            error=part.error,
            answer=claim.turn.answer + "".join(part.parts.answer),
            reasoning=claim.turn.reasoning + "".join(part.parts.reasoning),
            timings=numbers(part.parts, part.first_token_s),
            stop_requested=False,
            updated_at=timezone.now(),
        )
    )


def look_at_turn(turn_id: int) -> Turn | None:
    """Return the turn as it is stored, after ending it if its claimant is dead."""
    turn = Turn.objects.select_related("conversation").filter(pk=turn_id).first()
    if turn is not None and turn.state == State.STREAMING and end_stale_turns(turn.conversation):
        turn.refresh_from_db()
    return turn


def _own_row(claim: Claim) -> QuerySet[Turn]:
    return Turn.objects.filter(pk=claim.turn.pk, state=State.STREAMING, attempt=claim.turn.attempt)
