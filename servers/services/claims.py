"""The claim of a chat turn: who may answer it, what has arrived for it, and what of that is stored."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from jobs.adapters.hostlink import Endpoint
from jobs.models import AuditEntry
from jobs.services.audit import Actor
from servers.domain.chat import AnswerParts, ChatOptions, Delta, Exchange, PromptProgress, measured_summary
from servers.domain.sampling import NAMES
from servers.models import Instance, Turn
from servers.services import markdown
from servers.services.answers import numbers
from servers.services.conversations import deleted, end_stale_turns
from servers.services.instances import ensure_ready

logger = logging.getLogger(__name__)
State = Turn.State


@dataclass(frozen=True)
class Text:
    """Text to append to the answer and to the reasoning."""

    answer: str
    reasoning: str


@dataclass(frozen=True)
class Starting:
    """The turn waits for its server, whose observed state this is; ready ends the wait."""

    observed: str


@dataclass
class Claim:
    """The right to answer one turn, held by whoever turned it from pending to streaming.

    Without an endpoint there is either a refusal, or `asker`, for whom the server may be started first.
    """

    turn: Turn
    history: list[Exchange]
    endpoint: Endpoint | None
    options: ChatOptions
    n_ctx: int | None = None  # tokens of a slot, where the server told
    refusal: str = ""
    asker: Actor | None = None


@dataclass
class Part:
    """What has arrived for a claim: texts, what of them is still unsent, and how it ended."""

    parts: AnswerParts = field(default_factory=AnswerParts)
    answer: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    progress: PromptProgress | Starting | None = None
    server: str = ""  # the state of a server that is waited for, as it was told last
    started: float = field(default_factory=time.monotonic)
    first_token_s: float | None = None
    tokens: int = 0  # deltas with text: a server sends one for each token
    last_token_s: float = 0.0
    # What the turn becomes: stopped, unless the stream came to an end of its own.
    state: str = State.STOPPED
    error: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, delta: Delta) -> None:
        """Take in a delta and wake whoever sends."""
        self.parts.add(delta)
        if delta.content or delta.reasoning:
            self.last_token_s = time.monotonic() - self.started
            self.tokens += 1
            if self.first_token_s is None:
                self.first_token_s = self.last_token_s
            self.answer.append(delta.content)
            self.reasoning.append(delta.reasoning)
            self.wake.set()
        elif delta.progress:
            self.progress = delta.progress
            self.wake.set()

    def note_server(self, observed: str) -> None:
        """Take in how the server is that the turn waits for; an answer's time begins when it is ready."""
        self.started = time.monotonic()
        if observed != self.server:
            self.server = observed
            self.progress = Starting(observed)
            self.wake.set()

    def unsent(self) -> Text | PromptProgress | Starting | None:
        """Return what is to be sent now, and count it as sent; text makes progress old news."""
        progress, self.progress = self.progress, None
        if not self.answer:
            return progress
        text = Text("".join(self.answer), "".join(self.reasoning))
        self.answer.clear()
        self.reasoning.clear()
        return text

    def numbers(self, n_ctx: int | None) -> dict[str, Any]:
        """Return what is stored about the answer besides its text: the server's numbers, else the panel's."""
        found = numbers(self.parts, self.first_token_s)
        if not self.parts.timings and self.first_token_s is not None:
            found |= measured_summary(self.tokens, self.last_token_s - self.first_token_s)
        return found | {"n_ctx": n_ctx}


def claim_turn(turn_id: int) -> Claim | None:
    """Turn a pending turn into a streaming one, with all that an answer needs; None when it is not ours."""
    won = Turn.objects.filter(pk=turn_id, state=State.PENDING).update(
        state=State.STREAMING, attempt=F("attempt") + 1, stop_requested=False, updated_at=timezone.now()
    )
    if not won:
        return None
    turn = Turn.objects.select_related("conversation__profile__instance").get(pk=turn_id)
    history = _history(turn) if turn.position > 1 else []
    options = chat_options(turn)
    profile = turn.conversation.profile
    if profile is None:
        return Claim(turn, history, None, options, refusal=deleted())
    try:
        endpoint = ensure_ready(profile)
    except Refused:
        # Who asks is not read before, because the first text of a ready server waits for each query.
        asker = Actor(turn.conversation.user, AuditEntry.Source.WEB)
        return Claim(turn, history, None, options, asker=asker)
    except Exception:
        # The turn is ours already, so it has to end in words here too.
        logger.exception("turn %s", turn_id)
        refusal = _("The panel failed while it looked for the server. Ask again.")
        return Claim(turn, history, None, options, refusal=refusal)
    return Claim(turn, history, endpoint, options, profile.instance.facts.get("n_ctx"))


def _history(turn: Turn) -> list[Exchange]:
    earlier = turn.conversation.turns.filter(position__lt=turn.position).exclude(answer="")
    return [Exchange(*texts) for texts in earlier.order_by("position").values_list("prompt", "answer")]


def chat_options(turn: Turn) -> ChatOptions:
    """Return what the turn's request asks for: its conversation's settings, going on from what is kept."""
    known = {name: value for name, value in turn.conversation.sampling.items() if name in NAMES}
    return ChatOptions(prefill=turn.answer, **known)


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
    answer = claim.turn.answer + "".join(part.parts.answer)
    fields = {
        "state": part.state,
        "error": part.error,
        "answer": answer,
        "reasoning": claim.turn.reasoning + "".join(part.parts.reasoning),
        "answer_html": markdown.answer_html(answer),
        "html_version": markdown.VERSION,
        "timings": part.numbers(claim.n_ctx),
        "stop_requested": False,
    }
    now = timezone.now()
    with transaction.atomic():
        won = _own_row(claim).update(**fields, updated_at=now)
        if claim.endpoint is not None:
            Instance.objects.filter(run_id=claim.endpoint.run_id).update(used_at=now)
    return bool(won)


def look_at_turn(turn_id: int) -> Turn | None:
    """Return the turn with its server as it is stored, after ending it if its claimant is dead."""
    turn = Turn.objects.select_related("conversation__profile__instance").filter(pk=turn_id).first()
    if turn is not None and turn.state == State.STREAMING and end_stale_turns(turn.conversation):
        turn.refresh_from_db()
    return turn


def _own_row(claim: Claim) -> QuerySet[Turn]:
    return Turn.objects.filter(pk=claim.turn.pk, state=State.STREAMING, attempt=claim.turn.attempt)
