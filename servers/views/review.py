"""What saving a profile would change, asked before it: the diff, and the requests that a restart meets."""

from dataclasses import replace
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_POST

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, say_no
from controlpanel.llamacpp.meaning_kinds import whole
from jobs.services.audit import Actor
from servers.form_preview import preview_of
from servers.forms import ProfileForm
from servers.models import Instance, ServerProfile
from servers.services import instances
from servers.services.flight import asked_by, in_flight
from servers.services.profiles import data_of
from servers.services.revisions import changes_between
from servers.services.touched import arguments_between

WAIT = 600.0  # seconds that a restart waits for requests when somebody chooses to wait


@require_POST
@role_required("operator")
def profile_review(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what the form would change of the profile, and what a restart would cut off."""
    profile = get_object_or_404(ServerProfile.objects.select_related("build", "model", "mmproj"), pk=pk)
    preview = preview_of(ProfileForm(request.POST, user=request.user, profile=profile))
    context = {"profile": profile, "preview": preview, **restart_context(profile)}
    if preview.data is not None and not preview.error_count:
        before, after = data_of(profile), preview.data
        context["changes"] = changes_between(before, after)
        context["arguments"] = arguments_between(before, after)
        if context["running"] and context["changes"] and replace(before, policy=after.policy) == after:
            context |= {"running": False, "no_restart": True}
    return render(request, "servers/_profile_review.html", context)


def restart_context(profile: ServerProfile) -> dict[str, Any]:
    """Return what a restart would meet: whether the server runs, its requests, and who waits for answers."""
    instance = Instance.objects.select_related("run__host", "profile").get(profile=profile)
    running = instance.observed in Instance.ALIVE
    return {
        "running": running,
        "wait": int(WAIT),
        "busy": async_to_sync(in_flight)(instance) if running else 0,
        "asked_by": asked_by(profile) if running else [],
    }


def wait_of(request: HttpRequest) -> float:
    """Return for how many seconds a request wants a stop to wait, 0 for anything that is no number."""
    return float(whole(request.POST.get("wait")) or 0)


@require_POST
@role_required("operator")
def server_cut(request: HttpRequest, pk: int) -> HttpResponse:
    """End the waiting of a stop or restart for the requests in flight."""
    profile = get_object_or_404(ServerProfile, pk=pk)
    try:
        instances.cut_now(Actor.web(request), profile)
    except Refused as reason:
        say_no(request, reason)
    return back(request, "server-detail", pk)
