"""The playground: conversations with servers that are ready, or that a question starts."""

from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.words import translate
from jobs.services.audit import Actor
from servers.domain.sampling import read_sampling
from servers.models import Conversation, ServerProfile, Turn
from servers.services import conversations as service
from servers.services import waking
from servers.services.instances import Observed
from servers.views.conversations import SignedIn, listed
from servers.views.rail import total_seconds
from servers.views.turn_card import card, render_card


@dataclass(frozen=True)
class Choice:
    """One server of the picker, and how it is in a few words; `closed`: it cannot be chosen."""

    profile: ServerProfile
    words: str
    selected: bool = False
    closed: bool = False


@require_GET
@role_required("viewer")
def playground(request: SignedIn) -> HttpResponse:
    """Show an empty conversation; `?profile=<slug>` chooses the server."""
    wanted = request.GET.get("profile", "")
    actor = Actor.web(request)
    open_to, others, left_out = service.profiles_to_ask(actor)
    chosen = next((row for row in open_to if row.slug == wanted), open_to[0] if open_to else None)
    choices = [Choice(row, _how(row), selected=row == chosen) for row in open_to]
    choices += [Choice(row, service.why_not_asked(row, actor), closed=True) for row in others]
    return render(
        request,
        "servers/playground.html",
        {
            "section": "playground",
            "choices": choices,
            "left_out": left_out,
            "can_ask": chosen is not None,
            "start_hint": _start_hint(chosen) if chosen else "",
            **listed(request),
        },
    )


@require_GET
@role_required("viewer")
def conversation(request: SignedIn, pk: int) -> HttpResponse:
    """Show one of the user's own conversations."""
    row = get_object_or_404(service.conversations_of(request.user), pk=pk)
    service.end_stale_turns(row)
    turns = list(row.turns.select_related("conversation"))
    reason = service.why_not_asked(row.profile, Actor.web(request))
    return render(
        request,
        "servers/playground.html",
        {
            "section": "playground",
            "conversation": row,
            "cards": [card(turn, turn is turns[-1]) for turn in turns],
            "reason": reason,
            "can_ask": not reason,
            "start_hint": _start_hint(row.profile) if row.profile and not reason else "",
            **listed(request),
        },
    )


@require_POST
@role_required("viewer")
def turn_create(request: SignedIn) -> HttpResponse:
    """Ask: in the conversation named by the form, or in a new one with the chosen server."""
    prompt = request.POST.get("prompt", "")
    number = request.POST.get("conversation", "")
    row: Conversation | None = None
    try:
        if number:
            if not number.isdecimal():
                return HttpResponse(status=404)
            row = get_object_or_404(service.conversations_of(request.user), pk=int(number))
            turn = service.ask_in_conversation(row, prompt)
        else:
            profile = ServerProfile.objects.filter(slug=request.POST.get("profile", "")).first()
            sampling, wrong = read_sampling(request.POST.dict())
            if wrong:
                raise Refused(" ".join(map(translate, wrong.values())), code="sampling")
            turn = service.ask_in_new_conversation(request.user, profile, prompt, sampling)
    except Refused as error:
        return _refused(request, error, row)
    if row is None or not request.htmx:
        return _go(request, turn.conversation)
    return HttpResponse(render_card(turn))


@require_POST
@role_required("viewer")
def turn_stop(request: SignedIn, pk: int) -> HttpResponse:
    """Stop an answer; the stream that shows it says so within a second."""
    turn = _own_turn(request, pk)
    service.request_stop(turn)
    return HttpResponse(status=204) if request.htmx else _go(request, turn.conversation)


@require_POST
@role_required("viewer")
def turn_continue(request: SignedIn, pk: int) -> HttpResponse:
    """Go on with an answer that was cut short."""
    turn = _own_turn(request, pk)
    try:
        service.continue_turn(turn)
    except Refused as error:
        return _refused(request, error, turn.conversation)
    return _turn_again(request, turn)


@require_POST
@role_required("viewer")
def turn_regenerate(request: SignedIn, pk: int) -> HttpResponse:
    """Make an answer anew."""
    turn = _own_turn(request, pk)
    try:
        service.regenerate_turn(turn)
    except Refused as error:
        return _refused(request, error, turn.conversation)
    return _turn_again(request, turn)


@require_http_methods(["GET", "POST"])
@role_required("viewer")
def turn_edit(request: SignedIn, pk: int) -> HttpResponse:
    """Show a question as a form (`?keep` shows it as text again), and ask the changed one."""
    turn = _own_turn(request, pk)
    if request.method == "GET":
        name = "_turn_prompt" if "keep" in request.GET else "_turn_edit"
        later = turn.conversation.turns.filter(position__gt=turn.position).count()
        return render(request, f"servers/{name}.html", {"turn": turn, "later": later})
    try:
        removed = service.edit_turn(turn, request.POST.get("prompt", ""))
    except Refused as error:
        return _refused(request, error, turn.conversation, f"#turn-{turn.pk}-edit-error")
    if not request.htmx:
        return _go(request, turn.conversation)
    turn.refresh_from_db()
    gone = format_html_join(
        "", '<article id="turn-{}" hx-swap-oob="delete"></article>', ((n,) for n in removed)
    )
    return HttpResponse(render_card(turn) + gone)


def _how(profile: ServerProfile) -> str:
    if profile.instance.observed == Observed.READY:
        return _("ready")
    return _("is starting") if waking.is_under_way(profile.instance) else _("starts on demand")


def _start_hint(profile: ServerProfile) -> str:
    """Return what a message to a server does that is not ready, "" for one that is."""
    instance = profile.instance
    told: dict[str, object] = {"name": profile.name}
    if instance.observed == Observed.READY:
        return ""
    if waking.is_under_way(instance):
        return _("%(name)s is starting: your message waits for it.") % told
    seconds = total_seconds(instance)
    if seconds is None:
        return _("%(name)s is not loaded: your message starts it first.") % told
    told["seconds"] = max(1, round(seconds))
    return _("%(name)s is not loaded: your message starts it, that takes about %(seconds)s s.") % told


def _own_turn(request: SignedIn, pk: int) -> Turn:
    return get_object_or_404(service.turns_of(request.user), pk=pk)


def _turn_again(request: SignedIn, turn: Turn) -> HttpResponse:
    if not request.htmx:
        return _go(request, turn.conversation)
    turn.refresh_from_db()
    return HttpResponse(render_card(turn))


def _refused(
    request: SignedIn, error: Refused, row: Conversation | None, place: str = "#composer-error"
) -> HttpResponse:
    if not request.htmx:
        messages.error(request, str(error))
        return _go(request, row)
    answer = render(request, "servers/_turn_refused.html", {"error": str(error)}, status=422)
    answer["HX-Retarget"] = place
    answer["HX-Reswap"] = "innerHTML"
    return answer


def _go(request: SignedIn, row: Conversation | None) -> HttpResponse:
    address = reverse("playground-conversation", args=[row.pk]) if row else reverse("playground")
    return HttpResponseClientRedirect(address) if request.htmx else redirect(address)
