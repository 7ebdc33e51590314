"""Pages of a profile's revisions: what was saved by whom and why, comparing, marking, rolling back."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import say_no
from controlpanel.llamacpp.meaning_kinds import whole
from jobs.services.audit import Actor
from servers.models import Instance, ProfileRevision, ServerProfile
from servers.services import revisions as service
from servers.services.instances import request_restart
from servers.services.profiles import data_of
from servers.views.review import restart_context, wait_of

PER_PAGE = 30


@require_safe
@role_required("viewer")
def profile_revisions(request: HttpRequest, pk: int) -> HttpResponse:
    """List a profile's revisions, each with what it changed; `a` and `b` are two to compare."""
    profile = get_object_or_404(ServerProfile.objects.select_related("instance"), pk=pk)
    rows = service.revisions_of(profile)
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "section": "profiles",
        "profile": profile,
        "running": _running(profile),
        "page": page,
        "rows": _with_changes(list(page), rows),
        "compared": _compared(rows, request),
        "numbers": list(rows.values_list("number", flat=True)[:500]),
    }
    return render(request, "servers/profile_revisions.html", context)


@require_POST
@role_required("operator")
def revision_mark(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    """Mark a revision as known-good (`good` = 1), or take the mark from it."""
    revision = _revision(pk, number)
    try:
        service.mark_known_good(Actor.web(request), revision, request.POST.get("good") == "1")
    except Refused as reason:
        say_no(request, reason)
    return redirect("profile-revisions", pk)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def revision_roll_back(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    """Save the profile as the revision has it, `restart` = 1 restarts its server; GET shows what changes."""
    revision, actor = _revision(pk, number), Actor.web(request)
    if request.method != "POST":
        return _ask_first(request, revision)
    reason = request.POST.get("reason", "").strip()
    try:
        saved = service.roll_back(actor, revision, reason)
        messages.success(
            request,
            _("The profile is as in revision %(old)d again, as revision %(new)d.")
            % {"old": number, "new": saved.revision},
        )
        if request.POST.get("restart") == "1":
            told = _("Back to revision %(number)d.") % {"number": number}
            request_restart(actor, saved, wait_of(request), f"{told} {reason}".strip())
    except Refused as refusal:
        say_no(request, refusal)
    return redirect("profile-revisions", pk)


def _ask_first(request: HttpRequest, revision: ProfileRevision) -> HttpResponse:
    profile = revision.profile
    context = {"profile": profile, "revision": revision, **restart_context(profile)}
    try:
        context["changes"] = service.changes_between(data_of(profile), service.data_of_revision(revision))
    except Refused as refusal:
        context["refused"] = str(refusal)
    return render(request, "servers/_roll_back.html", context)


def _revision(pk: int, number: int) -> ProfileRevision:
    rows = ProfileRevision.objects.select_related("profile__instance", "profile__build__host")
    return get_object_or_404(rows, profile_id=pk, number=number)


def _running(profile: ServerProfile) -> int | None:
    """Return the revision with which the server runs, None when it does not."""
    instance = profile.instance
    return None if instance.observed in Instance.RESTING else instance.revision


def _with_changes(shown: list[ProfileRevision], rows: Any) -> list[dict[str, Any]]:
    """Return revisions with what each changed of the one before it; the first of all changed nothing."""
    if not shown:
        return []
    before = [*shown[1:], rows.filter(number__lt=shown[-1].number).first()]
    return [
        {"revision": row, "changes": service.changes(earlier, row) if earlier else None}
        for row, earlier in zip(shown, before, strict=True)
    ]


def _compared(rows: Any, request: HttpRequest) -> dict[str, Any] | None:
    """Return the two revisions that are asked for and what differs; None when there are not two."""
    found = {row.number: row for row in rows.filter(number__in=_asked(request))}
    pair = [found.get(number) for number in _asked(request)]
    if len(pair) != 2 or pair[0] is None or pair[1] is None:
        return None
    return {"a": pair[0], "b": pair[1], "changes": service.changes(pair[0], pair[1])}


def _asked(request: HttpRequest) -> list[int]:
    numbers = [whole(request.GET.get(key)) for key in ("a", "b")]
    return [number for number in numbers if number is not None and 0 < number < 2**31]
