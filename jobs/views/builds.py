"""Pages of builds: list, register, look at, probe again, delete."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, leave, say_no
from controlpanel.lib.listing import tidy
from jobs.forms import BuildForm
from jobs.models import Build
from jobs.services import builds as service
from jobs.services.audit import Actor
from jobs.services.hosts import local_host
from jobs.views import rows
from jobs.views.lists import BUILDS, builds_table


@require_safe
@role_required("viewer")
def builds(request: HttpRequest) -> HttpResponse:
    """List all builds."""
    table = builds_table(BUILDS.read(request.GET))
    context = {"section": "builds", "topics": f"{table.wish.topic},jobs", "table": table}
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
    """Show what one build can do."""
    build = get_object_or_404(Build.objects.select_related("host"), pk=pk)
    context = {"section": "builds", "topics": f"build:{build.pk},jobs", **rows.build_context(build)}
    context["flags"] = context["capabilities"].flags if context["capabilities"] else ()
    return render(request, "jobs/build.html", context)


@require_POST
@role_required("admin")
def build_probe(request: HttpRequest, pk: int) -> HttpResponse:
    """Probe a build again."""
    build = get_object_or_404(Build, pk=pk)
    try:
        service.request_probe(Actor.web(request), build)
    except Refused as reason:
        say_no(request, reason)
    return back(request, "build-detail", build.pk)


@require_POST
@role_required("admin")
def build_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Forget a build."""
    build = get_object_or_404(Build, pk=pk)
    try:
        service.delete_build(Actor.web(request), build)
    except Refused as reason:
        say_no(request, reason)
        return back(request, "build-detail", pk)
    messages.success(
        request, _("The build %(name)s is no longer registered; its files stay.") % {"name": build.name}
    )
    return leave(request, "builds")
