"""Pages of profiles: list, new, edit, duplicate, delete, and the form's preview."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import leave, say_no
from controlpanel.lib.listing import tidy
from controlpanel.llamacpp.meaning_kinds import whole
from jobs.models import Build, ModelArtifact
from jobs.services.audit import Actor
from servers.forms import Preview, ProfileForm, initial_of, preview_of, usable_builds
from servers.models import Instance, ServerProfile
from servers.services import profiles as service
from servers.services.fit import Fit, fit_of, pid_of
from servers.views.lists import PROFILES, profiles_table


def _profiles() -> Any:
    return ServerProfile.objects.select_related("build", "model", "mmproj", "instance")


@require_safe
@role_required("viewer")
def profiles(request: HttpRequest) -> HttpResponse:
    """List all profiles."""
    table = profiles_table(PROFILES.read(request.GET))
    context = {"section": "profiles", "topics": f"{table.wish.topic},jobs", "table": table}
    return tidy(request, render(request, "servers/profiles.html", context), table)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def profile_new(request: HttpRequest) -> HttpResponse:
    """Make a profile."""
    first: dict[str, Any] = {
        "build": Build.objects.filter(state=Build.State.READY)
        .order_by("-created_at", "-pk")
        .values_list("pk", flat=True)
        .first(),
        "model": ModelArtifact.objects.filter(kind="model", complete=True)
        .values_list("pk", flat=True)
        .first(),
    }
    return _edit(request, None, first)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def profile_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a profile; a running server takes it over at its next start."""
    profile = get_object_or_404(_profiles(), pk=pk)
    return _edit(request, profile, initial_of(profile))


@require_safe
@role_required("operator")
def profile_duplicate(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the form for a new profile with the values of another one."""
    profile = get_object_or_404(_profiles(), pk=pk)
    first = {**initial_of(profile), "name": _("%(name)s copy") % {"name": profile.name[:50]}, "port": None}
    return _edit(request, None, first)


@require_POST
@role_required("operator")
def profile_preview(request: HttpRequest) -> HttpResponse:
    """Render the consequence of the form as it is typed; its fields too once another build was chosen."""
    preview = preview_of(ProfileForm(request.POST), typing=True)
    context = {
        "preview": preview,
        "fit": _fit(preview, whole(request.POST.get("profile"))),
        "with_fields": request.POST.get("shown_build") != request.POST.get("build"),
    }
    return render(request, "servers/_profile_preview.html", {**context, "oob": True})


@require_POST
@role_required("operator")
def profile_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a profile and its stopped server."""
    profile = get_object_or_404(_profiles(), pk=pk)
    try:
        service.delete_profile(Actor.web(request), profile)
    except Refused as reason:
        say_no(request, reason)
        return redirect("profile-edit", pk)
    messages.success(request, _("The profile %(name)s was deleted.") % {"name": profile.name})
    return leave(request, "profiles")


def _edit(request: HttpRequest, profile: ServerProfile | None, first: dict[str, Any]) -> HttpResponse:
    """Show the form, or save it; a form with errors comes back with them at their fields."""
    form = ProfileForm(request.POST) if request.method == "POST" else ProfileForm(_as_data(first))
    if request.method == "POST":
        data = form.profile_data() if form.is_valid() else None
        if data is not None and not preview_of(form).error_count:
            try:
                saved = service.save_profile(Actor.web(request), profile, data)
            except Refused as reason:
                form.add_error(reason.field if reason.field in form.fields else None, str(reason))
            else:
                messages.success(request, _("The profile %(name)s is saved.") % {"name": saved.name})
                return redirect("server-detail", saved.pk)
    preview = preview_of(form, typing=request.method != "POST")
    running = profile is not None and profile.instance.observed not in Instance.RESTING
    context = {
        "section": "profiles",
        "topics": "jobs",
        "profile": profile,
        "running": running,
        "preview": preview,
        "fit": _fit(preview, profile.pk if profile else None),
        "missing": [] if first.get("build") and first.get("model") else _missing(),
    }
    return render(request, "servers/profile_form.html", context)


def _fit(preview: Preview, profile_pk: int | None) -> Fit | None:
    """Return what the form's server takes; None without a build or a model."""
    data = preview.data
    if data is None:
        return None
    own_pid = pid_of(profile_pk) if profile_pk else None
    return fit_of(data.build, data.model, data.mmproj, data.settings, data.extra_args, own_pid)


def _as_data(first: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in first.items() if value is not None}


def _missing() -> list[str]:
    """Return what has to be there before a profile can be made."""
    found = []
    if not usable_builds().exists():
        found.append("build")
    if not ModelArtifact.objects.filter(kind=ModelArtifact.Kind.MODEL).exists():
        found.append("model")
    return found
