"""Pages of downloads: list, look at, pause, resume, start over, cancel, forget."""

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, leave, say_no
from controlpanel.lib.listing import tidy
from jobs.models import Download
from jobs.services import downloads as service
from jobs.services.audit import Actor
from jobs.views import download_rows
from jobs.views.lists import DOWNLOADS, downloads_table


@require_safe
@role_required("viewer")
def downloads(request: HttpRequest) -> HttpResponse:
    """List all downloads, also those that are over."""
    table = downloads_table(DOWNLOADS.read(request.GET))
    context = {"section": "models", "topics": f"{table.wish.topic},jobs", "table": table}
    return tidy(request, render(request, "jobs/downloads.html", context), table)


@require_safe
@role_required("viewer")
def download_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one download with its files."""
    download = get_object_or_404(download_rows.downloads(), pk=pk)
    context = {"section": "models", "topics": f"download:{pk},jobs"}
    context |= download_rows.download_context(download)
    return render(request, "jobs/download.html", context)


@require_POST
@role_required("operator")
def download_pause(request: HttpRequest, pk: int) -> HttpResponse:
    """Stop loading; what has arrived is kept."""
    return _ask(request, pk, service.pause)


@require_POST
@role_required("operator")
def download_resume(request: HttpRequest, pk: int) -> HttpResponse:
    """Go on with what has arrived; `anew` begins at zero."""
    anew = bool(request.POST.get("anew"))
    return _ask(request, pk, lambda actor, row: service.resume(actor, row, anew=anew))


@require_POST
@role_required("operator")
def download_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Give a download up and remove what has arrived."""
    return _ask(request, pk, service.cancel)


@require_POST
@role_required("operator")
def download_forget(request: HttpRequest, pk: int) -> HttpResponse:
    """Take an ended download off the list."""
    download = get_object_or_404(Download, pk=pk)
    try:
        service.forget(Actor.web(request), download)
    except Refused as reason:
        say_no(request, reason)
        return back(request, "download-detail", pk)
    messages.success(request, _("The download %(name)s is off the list.") % {"name": download.name})
    return back(request, "downloads") if request.POST.get("next") else leave(request, "downloads")


def _ask(request: HttpRequest, pk: int, wish: Callable[[Actor, Download], object]) -> HttpResponse:
    download = get_object_or_404(Download.objects.select_related("host"), pk=pk)
    try:
        wish(Actor.web(request), download)
    except Refused as reason:
        say_no(request, reason)
    return back(request, "download-detail", pk)
