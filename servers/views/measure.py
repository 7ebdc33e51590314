"""Measuring a form's settings by llama-fit-params, beside the estimate."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.llamacpp.meaning_kinds import whole
from jobs.models import Job
from jobs.services.audit import Actor
from servers.form_preview import preview_of
from servers.forms import ProfileForm
from servers.models import ServerProfile
from servers.services.measure import MEASURE, measured, request_measure


@require_POST
@role_required("operator")
def profile_measure(request: HttpRequest) -> HttpResponse:
    """Ask for a measurement of what the form says; the answer asks for its outcome until it is there."""
    profile = ServerProfile.objects.filter(pk=whole(request.POST.get("profile")) or 0).first()
    preview = preview_of(ProfileForm(request.POST, user=request.user, profile=profile))
    try:
        if preview.data is None or preview.error_count:
            raise Refused(_("The profile has errors: mend them first."))
        job = request_measure(Actor.web(request), preview.data)
    except Refused as reason:
        return render(request, "servers/_measure.html", {"refused": str(reason)})
    return render(request, "servers/_measure.html", {"job": job})


@require_safe
@role_required("operator")
def measure_result(request: HttpRequest, job: int) -> HttpResponse:
    """Show the outcome of a measurement, or that it goes on."""
    row = get_object_or_404(Job, pk=job, kind=MEASURE)
    try:
        found = measured(row)
    except Refused as reason:
        return render(request, "servers/_measure.html", {"refused": str(reason)})
    return render(request, "servers/_measure.html", {"job": None if found else row, "measured": found})
