"""The page of folders in which models lie: admins add and delete, operators scan."""

from pathlib import Path
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, say_no
from jobs.adapters.hostlink import link
from jobs.forms_models import FolderForm
from jobs.models import Job, ModelFolder
from jobs.services import model_files as service
from jobs.services.artifacts import models_folder
from jobs.services.audit import Actor
from jobs.services.hosts import local_host


@require_safe
@role_required("viewer")
def folders(request: HttpRequest) -> HttpResponse:
    """List the folders."""
    return _page(request, FolderForm())


@require_POST
@role_required("admin")
def folder_add(request: HttpRequest) -> HttpResponse:
    """Allow another folder: operators may then register, download into and delete below it."""
    form = FolderForm(request.POST)
    if form.is_valid():
        try:
            row = service.add_folder(Actor.web(request), local_host(), form.cleaned_data["path"])
        except Refused as reason:
            form.add_error(reason.field or None, str(reason))
        else:
            messages.success(
                request, _("The folder %(path)s is added; its models are being read.") % {"path": row.path}
            )
            return redirect("model-folders")
    return _page(request, form)


@require_POST
@role_required("operator")
def folder_scan(request: HttpRequest, pk: int) -> HttpResponse:
    """Register the models in a folder that are not registered yet."""
    folder = get_object_or_404(ModelFolder.objects.select_related("host"), pk=pk)
    try:
        service.scan(Actor.web(request), folder)
    except Refused as reason:
        say_no(request, reason)
    return back(request, "model-folders")


@require_POST
@role_required("admin")
def folder_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Forget a folder; its files and models stay."""
    folder = get_object_or_404(ModelFolder, pk=pk)
    path = folder.path
    try:
        service.delete_folder(Actor.web(request), folder)
    except Refused as reason:
        say_no(request, reason)
    else:
        messages.success(request, _("The folder %(path)s was removed; its files stay.") % {"path": path})
    return back(request, "model-folders")


def folders_context() -> dict[str, Any]:
    """All folders with their disks, and which of them are being scanned."""
    jobs = Job.objects.filter(kind=service.SCAN, state__in=Job.ACTIVE)
    scanning = set(jobs.values_list("subject_id", flat=True))
    host = link(local_host().slug)
    rows = ModelFolder.objects.select_related("created_by")
    return {
        "own": {"path": models_folder(), "disk": host.disk(models_folder())},
        "rows": [
            {"folder": row, "disk": host.disk(Path(row.path)), "scanning": str(row.pk) in scanning}
            for row in rows
        ],
    }


def _page(request: HttpRequest, form: FolderForm) -> HttpResponse:
    context = {"section": "models", "topics": "model-folders,jobs", "form": form, **folders_context()}
    return render(request, "jobs/model_folders.html", context)
