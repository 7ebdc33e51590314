"""Pages of builds: list, register, look at, cancel, build again, count what is newer, probe again, delete."""

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlpanel.lib.access import has_role, refuse, role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, leave, say_no
from controlpanel.lib.listing import tidy
from jobs.forms_builds import BuildForm
from jobs.models import Build
from jobs.services import behind, building
from jobs.services import builds as service
from jobs.services.audit import Actor
from jobs.services.hosts import local_host
from jobs.views import build_rows
from jobs.views.lists import BUILDS, builds_table


@require_safe
@role_required("viewer")
def builds(request: HttpRequest) -> HttpResponse:
    """List all builds."""
    table = builds_table(BUILDS.read(request.GET))
    context = {"section": "builds", "topics": f"{table.wish.topic},jobs", "table": table}
    context |= build_rows.disk_context()
    return tidy(request, render(request, "jobs/builds.html", context), table)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def build_register(request: HttpRequest) -> HttpResponse:
    """Register a binary by its path: code that the panel will execute, so admins only."""
    form = BuildForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        name, path = form.cleaned_data["name"], form.cleaned_data["path"]
        try:
            build = service.register_build(Actor.web(request), local_host(), name, path)
        except Refused as reason:
            form.add_error(reason.field or None, str(reason))
        else:
            return redirect("build-detail", build.pk)
    context = {"section": "builds", "topics": "jobs", "form": form}
    return render(request, "jobs/build_register.html", context)


@require_safe
@role_required("viewer")
def build_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one build; `?step=` shows the log of one of its steps, else the page follows the work."""
    build = get_object_or_404(build_rows.builds(), pk=pk)
    shown = build_rows.build_context(build, request.GET.get("step", ""))
    topics = [f"build:{build_rows.topic_arg(build, shown['step_shown'])}", "jobs"]
    if shown["run"]:
        topics.append(f"log:{shown['run'].pk}")
    context = {"section": "builds", "topics": ",".join(topics), **shown}
    context["flags"] = shown["capabilities"].flags if shown["capabilities"] else ()
    return render(request, "jobs/build.html", context)


@require_POST
@role_required("operator")
def build_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Cancel a build."""
    return _ask(request, pk, building.cancel_build, _("The build is asked to end."))


@require_POST
@role_required("operator")
def build_behind(request: HttpRequest, pk: int) -> HttpResponse:
    """Count by how many commits a build is behind its branch."""
    return _ask(request, pk, behind.count_behind, "")


@require_POST
@role_required("operator")
def build_rebuild(request: HttpRequest, pk: int) -> HttpResponse:
    """Build the same inputs and the same commit again."""
    build = get_object_or_404(Build, pk=pk)
    try:
        again = building.rebuild(Actor.web(request), build)
    except Refused as reason:
        say_no(request, reason)
        return back(request, "build-detail", build.pk)
    return leave(request, reverse("build-detail", args=[again.pk]))


@require_POST
@role_required("operator")
def build_probe(request: HttpRequest, pk: int) -> HttpResponse:
    """Probe a build again; a registered binary is an admin's."""
    build = get_object_or_404(Build, pk=pk)
    if not _may_change(request, build):
        return refuse(request, "admin")
    return _ask(request, pk, service.request_probe, "")


@require_POST
@role_required("operator")
def build_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a build that was made here with its files, or forget a registered binary, which an admin may."""
    build = get_object_or_404(Build, pk=pk)
    if not _may_change(request, build):
        return refuse(request, "admin")
    made, name = build.made_here, build.name
    try:
        service.delete_build(Actor.web(request), build)
    except Refused as reason:
        say_no(request, reason)
        return back(request, "build-detail", pk)
    words = (
        _("The build %(name)s was deleted with its files.")
        if made
        else _("The build %(name)s is no longer registered; its files stay.")
    )
    messages.success(request, words % {"name": name})
    return back(request, "builds") if request.POST.get("next") else leave(request, "builds")


def _may_change(request: HttpRequest, build: Build) -> bool:
    return build.made_here or has_role(request.user, "admin")


def _ask(request: HttpRequest, pk: int, wish: Callable[[Actor, Build], object], done: str) -> HttpResponse:
    build = get_object_or_404(Build, pk=pk)
    try:
        wish(Actor.web(request), build)
    except Refused as reason:
        say_no(request, reason)
    else:
        if done:
            messages.success(request, done)
    return back(request, "build-detail", pk)
