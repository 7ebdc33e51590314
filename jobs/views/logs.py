"""Pages and fragments of a run's log."""

from collections.abc import AsyncIterator

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, StreamingHttpResponse
from django.shortcuts import aget_object_or_404, get_object_or_404, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from controlpanel.lib.access import role_required
from jobs.adapters import hostlink
from jobs.logs import hub
from jobs.logs.cut import utf8_cut, utf8_start
from jobs.logs.render import piece
from jobs.logs.render import render as render_lines
from jobs.models import Run

RANGE = 1024 * 1024  # bytes of text in one answer


@require_GET
@role_required("viewer")
def run_log(request: HttpRequest, run_id: str) -> HttpResponse:
    """The log of one run as a page of its own."""
    run = get_object_or_404(Run, pk=run_id)
    return render(request, "jobs/run_log.html", {"run": run, "topics": f"log:{run.pk}"})


@require_GET
@role_required("viewer")
def log_range(request: HttpRequest, run_id: str) -> HttpResponse:
    """Bytes `start` to `end` of a log, rendered; at most 1 MiB from the start: the answer says how far.

    `align=start` leaves out an unfinished line at the start (unless nothing else is there), `align=end` one
    at the end.
    """
    run = get_object_or_404(Run.objects.select_related("host"), pk=run_id)
    numbers = [request.GET.get(name, "") for name in ("start", "end")]
    if not all(number.isascii() and number.isdigit() and len(number) < 19 for number in numbers):
        return HttpResponseBadRequest(_("start and end must be byte numbers."))
    start, end = max(int(numbers[0]), run.log_start), int(numbers[1])
    end = min(end, start + RANGE)
    before = 1 if start > run.log_start else 0
    data = hostlink.link(run.host.slug).log_range(run.pk, start - before, end, run.log_start)
    fresh = not before or data[:1] == b"\n"
    data = data[before:]
    align = request.GET.get("align")
    if align == "start" and not fresh:
        # Past the first line end, but not past all of the text.
        line = data.find(b"\n") + 1
        cut = line if 0 < line < len(data) else utf8_start(data)
        fresh = cut == line > 0
        start, data = start + cut, data[cut:]
    elif align == "end":
        data = data[: data.rfind(b"\n") + 1 or utf8_cut(data) or len(data)]
    return HttpResponse(piece(render_lines(data, start, fresh), start, start + len(data)))


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
