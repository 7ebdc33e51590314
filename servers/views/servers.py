"""Pages of servers: list, look at, start, stop, restart."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, say_no
from jobs.services.audit import Actor
from servers.models import ServerProfile
from servers.services import instances as service
from servers.views import rows


@require_safe
@role_required("viewer")
def servers(request: HttpRequest) -> HttpResponse:
    """List all servers."""
    context = {"section": "servers", "topics": "servers,jobs", **rows.servers_context()}
    return render(request, "servers/servers.html", context)


@require_safe
@role_required("viewer")
def server_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one server, by the key of its profile."""
    instance = get_object_or_404(rows.instances(), profile_id=pk)
    topics = [f"server:{pk}", "jobs"]
    if instance.run_id:
        topics.append(f"log:{instance.run_id}")
    context = {"section": "servers", "topics": ",".join(topics), **rows.server_context(instance)}
    return render(request, "servers/server.html", context)


@require_POST
@role_required("operator")
def server_start(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for the server to run."""
    return _ask(request, pk, service.request_start)


@require_POST
@role_required("operator")
def server_stop(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for the server to end."""
    return _ask(request, pk, service.request_stop)


@require_POST
@role_required("operator")
def server_restart(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for the server to end and to run again."""
    return _ask(request, pk, service.request_restart)


def _ask(request: HttpRequest, pk: int, wish: Callable[[Actor, ServerProfile], object]) -> HttpResponse:
    profile = get_object_or_404(ServerProfile.objects.select_related("build__host"), pk=pk)
    try:
        wish(Actor.web(request), profile)
    except Refused as reason:
        say_no(request, reason)
    return back(request, "server-detail", pk)
