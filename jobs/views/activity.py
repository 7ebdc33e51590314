"""The activity page: all jobs, and the button that cancels one."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, say_no
from controlpanel.lib.listing import tidy
from jobs.models import Job
from jobs.services import jobs as service
from jobs.services.audit import Actor
from jobs.views.lists import JOBS, jobs_table


@require_safe
@role_required("viewer")
def activity(request: HttpRequest) -> HttpResponse:
    """List the jobs, newest first."""
    table = jobs_table(JOBS.read(request.GET))
    context = {"section": "activity", "topics": f"{table.wish.topic},jobs", "table": table}
    return tidy(request, render(request, "jobs/activity.html", context), table)


@require_POST
@role_required("operator")
def job_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Cancel an active job."""
    job = get_object_or_404(Job, pk=pk)
    try:
        service.cancel_job(Actor.web(request), job)
    except Refused as reason:
        say_no(request, reason)
    else:
        messages.success(request, _("The job is asked to end."))
    return back(request, "activity")
