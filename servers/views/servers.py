"""Pages of servers: list, look at, start, stop, restart."""

from collections.abc import Callable

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, say_no
from controlpanel.lib.listing import tidy
from jobs.services.audit import Actor
from servers.models import ServerProfile
from servers.services import instances as service
from servers.services import keeping, waking
from servers.services.flight import in_flight
from servers.views import buttons, rows
from servers.views.lists import SERVERS, servers_table
from servers.views.review import wait_of


@require_safe
@role_required("viewer")
def servers(request: HttpRequest) -> HttpResponse:
    """List all servers."""
    table = servers_table(SERVERS.read(request.GET))
    context = {"section": "servers", "topics": f"{table.wish.topic},meters,jobs", "table": table}
    return tidy(request, render(request, "servers/servers.html", context), table)


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


@require_safe
@role_required("operator")
async def server_question(request: HttpRequest, pk: int) -> HttpResponse:
    """Say what to ask before a stop or restart (`do`), with the requests that are in flight right now."""
    instance = await sync_to_async(get_object_or_404)(rows.instances(), profile_id=pk)
    busy = await in_flight(instance)
    text = buttons.question(instance.profile.name, request.GET.get("do", ""), busy)
    return HttpResponse(text, content_type="text/plain; charset=utf-8")


@require_POST
@role_required("operator")
def server_start(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for the server to run; with `anyway` although preflight warns."""
    anyway = request.POST.get("anyway") == "1"
    return _ask(request, pk, lambda actor, profile: service.request_start(actor, profile, anyway=anyway))


@require_POST
@role_required("operator")
def server_retry(request: HttpRequest, pk: int) -> HttpResponse:
    """Start at once what waits to be started again."""
    return _ask(request, pk, keeping.retry_now)


@require_POST
@role_required("operator")
def server_stop(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for the server to end; `wait` are seconds for the requests in flight."""
    wait = wait_of(request)
    return _ask(request, pk, lambda actor, profile: service.request_stop(actor, profile, wait))


@require_POST
@role_required("operator")
def server_restart(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for the server to end and to run again; `wait` are seconds for the requests in flight."""
    wait = wait_of(request)
    return _ask(request, pk, lambda actor, profile: service.request_restart(actor, profile, wait))


@require_POST
@role_required("operator")
def server_pin(request: HttpRequest, pk: int) -> HttpResponse:
    """Let the server stay loaded although nobody uses it (`pinned` 1), or no longer (0)."""
    pinned = request.POST.get("pinned") == "1"
    return _ask(request, pk, lambda actor, profile: waking.pin(actor, profile, pinned))


def _ask(request: HttpRequest, pk: int, wish: Callable[[Actor, ServerProfile], object]) -> HttpResponse:
    profile = get_object_or_404(ServerProfile.objects.select_related("build__host"), pk=pk)
    try:
        wish(Actor.web(request), profile)
    except Refused as reason:
        say_no(request, reason)
    return back(request, "server-detail", pk)
