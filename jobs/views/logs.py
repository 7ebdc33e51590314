"""Pages and fragments of a run's log."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse, StreamingHttpResponse
from django.shortcuts import aget_object_or_404, get_object_or_404, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from controlpanel.lib.access import role_required
from jobs.adapters import hostlink
from jobs.logs import hub, ranges
from jobs.logs.search import Errors, Place, Rule, Text, Way
from jobs.models import Run

T = TypeVar("T")

QUERY = 200  # characters
WAYS: tuple[Way, ...] = ("here", "next", "prev", "count")

# Apart from the threads that bring live text to pages: searching may keep the disk busy for seconds.
_searchers = ThreadPoolExecutor(2, thread_name_prefix="log-search")


@require_GET
@role_required("viewer")
def run_log(request: HttpRequest, run_id: str) -> HttpResponse:
    """The log of one run as a page of its own."""
    run = get_object_or_404(Run, pk=run_id)
    return render(request, "jobs/run_log.html", {"run": run, "topics": f"log:{run.pk}"})


@require_GET
@role_required("viewer")
def log_range(request: HttpRequest, run_id: str) -> HttpResponse:
    """A part of a log, rendered: bytes `start` to `end`, or the lines around the byte `around`."""
    run = get_object_or_404(Run.objects.select_related("host"), pk=run_id)
    link = hostlink.link(run.host.slug)
    if "around" in request.GET:
        at = _byte(request, "around")
        if at is None:
            return _no_numbers()
        return HttpResponse(ranges.around(link, run.pk, run.log_start, at))
    start, end = _byte(request, "start"), _byte(request, "end")
    if start is None or end is None:
        return _no_numbers()
    align = request.GET.get("align", "")
    return HttpResponse(ranges.part(link, run.pk, run.log_start, start, end, align))


@require_GET
@role_required("viewer")
async def log_search(request: HttpRequest, run_id: str) -> HttpResponse:
    """The line with the text `q` that is next from byte `at`, and how many lines have it.

    `go` is here, next, prev or count; `case=1` tells large letters from small ones.
    """
    text = request.GET.get("q", "")
    if not 0 < len(text) <= QUERY or "\n" in text or "\r" in text:
        return HttpResponseBadRequest(_("Search for 1 to 200 characters of one line."))
    return await _found(request, run_id, Text.of(text, fold=request.GET.get("case") != "1"))


@require_GET
@role_required("viewer")
async def log_errors(request: HttpRequest, run_id: str) -> HttpResponse:
    """The line shown as an error that is next from byte `at`, and how many there are; `go` as in a search."""
    return await _found(request, run_id, Errors())


@require_GET
@role_required("viewer")
async def log_line(request: HttpRequest, run_id: str) -> HttpResponse:
    """The number of the line to which byte `at` belongs.

    There is none once older text was removed: what was removed can no longer be counted.
    """
    run = await aget_object_or_404(Run.objects.select_related("host"), pk=run_id)
    at = _byte(request, "at")
    if at is None:
        return _no_numbers()
    if run.log_start:
        return _json(line=None, complete=True)
    line = await _searched(hostlink.link(run.host.slug).log_line, run.pk, at)
    return _json(line=line, complete=line is not None)


async def _found(request: HttpRequest, run_id: str, rule: Rule) -> HttpResponse:
    run = await aget_object_or_404(Run.objects.select_related("host"), pk=run_id)
    at, way = _byte(request, "at"), request.GET.get("go", "here")
    if at is None:
        return _no_numbers()
    if way not in WAYS:
        return HttpResponseBadRequest(_("go is here, next, prev or count."))
    place = Place(at, way)
    search = hostlink.link(run.host.slug).log_search
    found = await _searched(search, run.pk, rule, place, run.log_start)
    return _json(at=found.at, index=found.index, count=found.count, more=found.more, complete=found.complete)


async def _searched(call: Callable[..., T], *args: object) -> T:
    """Run a call of the host link that takes a `stop` at its end; it stops when the browser has left."""
    stop = threading.Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(_searchers, partial(call, *args, stop))
    finally:
        stop.set()


def _json(**values: Any) -> JsonResponse:
    return JsonResponse(values, headers={"Cache-Control": "no-store"})


def _byte(request: HttpRequest, name: str) -> int | None:
    """Return a byte number of the query, None where there is no sensible one."""
    number = request.GET.get(name, "")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else None


def _no_numbers() -> HttpResponse:
    return HttpResponseBadRequest(_("Byte numbers are whole numbers from 0 on."))


@require_GET
@role_required("viewer")
async def log_download(request: HttpRequest, run_id: str) -> StreamingHttpResponse:
    """The whole log as a file."""
    run = await aget_object_or_404(Run.objects.select_related("host"), pk=run_id)
    response = StreamingHttpResponse(_blocks(run), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{run.pk}.log"'
    response["Cache-Control"] = "no-store"
    return response


async def _blocks(run: Run) -> AsyncIterator[bytes]:
    blocks = hostlink.link(run.host.slug).log_download(run.pk, run.log_start)
    while block := await hub.in_thread(next, blocks, b""):
        yield block
