"""Conversations and turns as their user sees them: ask, stop, continue, edit, find, rename, delete.

Together with `claims` the only module that changes Turn.state. Turns are talk, not a change of the panel, so
they leave no audit rows.
"""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Exists, Max, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from jobs.services.audit import Actor
from servers.models import Conversation, Instance, ServerProfile, Turn
from servers.services import waking

MAX_PROMPT = 400_000  # characters
STALE_AFTER = timedelta(seconds=10)  # a claimant writes its heartbeat each second
LISTED = 50
NOT_READY_LISTED = 50  # profiles that cannot be asked; a reader looks for those on the page Servers
MAX_TITLE = 60  # characters of a title made from a question
State = Turn.State


def conversations_of(user: User) -> QuerySet[Conversation]:
    """Return the user's conversations, the latest first."""
    return Conversation.objects.filter(user=user).select_related("profile__instance")


def turns_of(user: User) -> QuerySet[Turn]:
    """Return the turns of all of the user's conversations."""
    return Turn.objects.filter(conversation__user=user).select_related("conversation__profile__instance")


def profiles_to_ask(actor: Actor) -> tuple[list[ServerProfile], list[ServerProfile], int]:
    """Return all profiles that the actor can ask, some of the others, and how many of these are left out.

    The ready ones come first, then those that a question starts.
    """
    rows = ServerProfile.objects.select_related("instance")
    is_ready = Q(instance__observed=Instance.Observed.READY)
    resting = rows.exclude(is_ready).filter(policy__on_demand=True, instance__isnull=False)
    started = [row for row in resting if waking.can_ask(actor, row.instance)]
    others = rows.exclude(is_ready | Q(pk__in=[row.pk for row in started]))
    left_out = max(0, others.count() - NOT_READY_LISTED)
    return [*rows.filter(is_ready), *started], list(others[:NOT_READY_LISTED]), left_out


def why_not_asked(profile: ServerProfile | None, actor: Actor) -> str:
    """Return why the actor cannot ask the profile's server now, "" when that can be or starts it."""
    if profile is None:
        return deleted()
    instance = getattr(profile, "instance", None)
    if instance is None:
        return _("never started")
    if waking.can_ask(actor, instance):
        return ""
    state = str(instance.get_observed_display())
    return _("%(state)s: an operator can start it") % {"state": state} if waking.may_wake(instance) else state


def deleted() -> str:
    """Say that a conversation's profile is gone."""
    return _("The server profile of this conversation was deleted. Start a new conversation.")


def search_conversations(user: User, words: str) -> QuerySet[Conversation]:
    """Return the user's conversations with the words in their title, a question or an answer."""
    found = conversations_of(user)
    if not words.strip():
        return found
    words = words.strip()
    turns = Turn.objects.filter(conversation=OuterRef("pk"))
    texts = turns.filter(Q(prompt__icontains=words) | Q(answer__icontains=words))
    return found.filter(Q(title__icontains=words) | Exists(texts))


def rename_conversation(conversation: Conversation, title: str) -> None:
    """Give the conversation another title; Refused when it is empty or too long."""
    title = " ".join(title.replace("\0", "").split())
    limit = Conversation._meta.get_field("title").max_length or 0
    if not title:
        raise Refused(_("Write a title first."), field="title", code="empty_title")
    if len(title) > limit:
        raise Refused(
            _("The title has %(length)s characters; at most %(limit)s are accepted. Shorten it.")
            % {"length": len(title), "limit": limit},
            field="title",
            code="title_too_long",
        )
    # Not by save(): its place in the list follows from what was said last.
    Conversation.objects.filter(pk=conversation.pk).update(title=title)
    conversation.title = title


def delete_conversation(conversation: Conversation) -> None:
    """Remove the conversation with its turns; whoever answers one finds its row gone and stops."""
    conversation.delete()


def set_sampling(conversation: Conversation, sampling: dict[str, Any]) -> None:
    """Store the settings for the conversation's next answers; see `servers.domain.sampling`."""
    Conversation.objects.filter(pk=conversation.pk).update(sampling=sampling)
    conversation.sampling = sampling


def ask_in_new_conversation(
    user: User, profile: ServerProfile | None, prompt: str, sampling: dict[str, Any] | None = None
) -> Turn:
    """Start a conversation with its first, pending turn; Refused without a profile."""
    prompt = checked_prompt(prompt)
    if profile is None:
        raise Refused(_("Choose a server first."), field="profile", code="no_server")
    with transaction.atomic():
        conversation = Conversation.objects.create(
            user=user, profile=profile, title=title_of(prompt), sampling=sampling or {}
        )
        return Turn.objects.create(conversation=conversation, position=1, prompt=prompt)


def title_of(prompt: str) -> str:
    """Return the beginning of a question as one line, cut between two words."""
    text = " ".join(prompt.split())
    if len(text) <= MAX_TITLE:
        return text
    head, space, _cut = text[: MAX_TITLE + 1].rpartition(" ")
    # A text without spaces, Chinese for example, is cut where it is full.
    return (head if space and len(head) > MAX_TITLE // 2 else text[:MAX_TITLE]) + "…"


def ask_in_conversation(conversation: Conversation, prompt: str) -> Turn:
    """Add a pending turn; Refused while the conversation's last one is unfinished."""
    prompt = checked_prompt(prompt)
    if conversation.profile is None:
        raise Refused(deleted(), code="no_server")
    end_stale_turns(conversation)
    try:
        with transaction.atomic():
            last = conversation.turns.aggregate(last=Max("position"))["last"] or 0
            turn = Turn.objects.create(conversation=conversation, position=last + 1, prompt=prompt)
            conversation.save(update_fields=["updated_at"])
    except IntegrityError as error:
        raise _busy() from error
    return turn


def checked_prompt(prompt: str) -> str:
    """Return the prompt with plain line ends; Refused when it is empty or too long."""
    prompt = prompt.replace("\r\n", "\n").replace("\0", "")
    if not prompt.strip():
        raise Refused(_("Write a question first."), field="prompt", code="empty_prompt")
    if len(prompt) > MAX_PROMPT:
        raise Refused(
            _("The question has %(length)s characters; at most %(limit)s are accepted. Shorten it.")
            % {"length": len(prompt), "limit": MAX_PROMPT},
            field="prompt",
            code="prompt_too_long",
        )
    return prompt


def request_stop(turn: Turn) -> None:
    """End a waiting turn at once; ask the claimant of a streaming one to stop (it looks twice a second)."""
    end_stale_turns(turn.conversation)
    now = timezone.now()
    Turn.objects.filter(pk=turn.pk, state=State.PENDING).update(state=State.STOPPED, updated_at=now)
    # Without touching updated_at, which is the claimant's heartbeat.
    Turn.objects.filter(pk=turn.pk, state=State.STREAMING).update(stop_requested=True)


def continue_turn(turn: Turn) -> None:
    """Make a turn pending again; what is kept of its answer is what the server goes on from."""
    if not can_continue(turn):
        raise Refused(_("There is no unfinished answer to continue."), code="nothing_to_continue")
    _ask_again(turn)


def regenerate_turn(turn: Turn) -> None:
    """Make a turn pending again with an empty answer."""
    _ask_again(turn, answer="", reasoning="")


def edit_turn(turn: Turn, prompt: str) -> list[int]:
    """Ask another question instead, which removes all later turns; returns their ids."""
    prompt = checked_prompt(prompt)
    end_stale_turns(turn.conversation)
    with transaction.atomic():
        if turn.conversation.turns.filter(state__in=Turn.UNFINISHED).exists():
            raise _busy()
        later = turn.conversation.turns.filter(position__gt=turn.position)
        removed = list(later.values_list("pk", flat=True))
        later.filter(pk__in=removed).delete()
        _ask_again(turn, prompt=prompt, answer="", reasoning="")
        if turn.position == 1:
            _follow_title(turn, prompt)
    return removed


def _follow_title(turn: Turn, prompt: str) -> None:
    """Let a title that was made from the first question follow it; one that somebody gave stays."""
    Conversation.objects.filter(pk=turn.conversation_id, title=title_of(turn.prompt)).update(
        title=title_of(prompt)
    )


def can_continue(turn: Turn) -> bool:
    """True for an answer that was cut short: stopped, failed, or at the limit of tokens."""
    cut = turn.state in (State.STOPPED, State.FAILED) or turn.timings.get("finish_reason") == "length"
    return turn.has_ended and cut and bool(turn.answer)


def end_stale_turns(conversation: Conversation) -> int:
    """Stop turns whose claimant died with its process; returns how many there were."""
    stale = timezone.now() - STALE_AFTER
    # 0 or 1 in practice; an UPDATE of no row at all is skipped, because it would wait for the write lock.
    turns = conversation.turns.filter(state=State.STREAMING, updated_at__lt=stale)
    if not turns.exists():
        return 0
    return turns.update(
        state=State.STOPPED,
        error=_("The answer was interrupted: the panel's web process ended."),
        stop_requested=False,
        updated_at=timezone.now(),
    )


def _ask_again(turn: Turn, **fields: object) -> None:
    if turn.conversation.profile is None:
        raise Refused(deleted(), code="no_server")
    if turn.conversation.turns.filter(position__gt=turn.position).exists():
        raise Refused(_("Only the last answer of a conversation can be made anew."), code="not_last")
    try:
        won = Turn.objects.filter(pk=turn.pk, state__in=Turn.ENDED, attempt=turn.attempt).update(
            state=State.PENDING,
            error="",
            timings={},
            answer_html="",
            html_version=0,
            stop_requested=False,
            updated_at=timezone.now(),
            **fields,
        )
    except IntegrityError as error:
        raise _busy() from error
    if not won:
        raise _busy()


def _busy() -> Refused:
    return Refused(
        _("The last question is still being answered. Wait for its end or stop it."), code="turn_unfinished"
    )
