"""Pages of model artifacts: list, register, look at, read again, verify, delete."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, leave, say_no
from controlpanel.lib.listing import tidy
from controlpanel.lib.words import translate
from controlpanel.llamacpp.gguf import GgufError
from jobs.forms_models import ModelForm
from jobs.models import ModelArtifact, ModelFolder
from jobs.services import artifacts as service
from jobs.services import model_files
from jobs.services.audit import Actor
from jobs.services.gguf_reports import report_file
from jobs.services.hosts import local_host
from jobs.views import download_rows, model_rows
from jobs.views.lists import MODELS, models_table
from jobs.views.model_facts import verdicts_of


@require_safe
@role_required("viewer")
def models(request: HttpRequest) -> HttpResponse:
    """List all model artifacts, with the downloads that are under way above them."""
    table = models_table(MODELS.read(request.GET))
    topics = f"{table.wish.topic},open-downloads,jobs"
    context: dict[str, Any] = {"section": "models", "topics": topics, "table": table}
    context |= model_rows.disk_context() | download_rows.open_context()
    return tidy(request, render(request, "jobs/models.html", context), table)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def model_register(request: HttpRequest) -> HttpResponse:
    """Register a file that lies on this host."""
    form = ModelForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        path, name = form.cleaned_data["path"], form.cleaned_data["name"]
        try:
            artifact = service.register_artifact(Actor.web(request), local_host(), path, name)
        except Refused as reason:
            form.add_error(reason.field or None, str(reason))
        else:
            return redirect("model-detail", artifact.pk)
    folders = [str(service.models_folder()), *ModelFolder.objects.values_list("path", flat=True)]
    context = {"section": "models", "topics": "jobs", "form": form, "folders": folders}
    return render(request, "jobs/model_register.html", context)


@require_safe
@role_required("viewer")
def model_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what is known of a model."""
    artifact = get_object_or_404(model_rows.models(), pk=pk)
    context = {"section": "models", "topics": f"model:{pk},jobs", **model_rows.model_context(artifact)}
    return render(request, "jobs/model.html", context)


@require_safe
@role_required("viewer")
def model_builds(request: HttpRequest, pk: int) -> HttpResponse:
    """Say which builds can run a model; their libraries are read for it, so the page asks for it apart."""
    artifact = get_object_or_404(ModelArtifact, pk=pk)
    context: dict[str, Any] = {"artifact": artifact}
    try:
        context["verdicts"] = verdicts_of(report_file(Path(artifact.path)))
    except GgufError as error:
        context["error"] = translate(error.message)
    return render(request, "jobs/_model_builds.html", context)


@require_POST
@role_required("operator")
def model_refresh(request: HttpRequest, pk: int) -> HttpResponse:
    """Read the file's header again."""
    return _ask(request, pk, service.refresh_artifact, _("The header of %(name)s was read again."))


@require_POST
@role_required("operator")
def model_verify(request: HttpRequest, pk: int) -> HttpResponse:
    """Compare the files with their hashes."""
    return _ask(request, pk, model_files.verify, "")


@require_POST
@role_required("operator")
def model_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Forget an artifact; its file stays."""
    done = _("The model %(name)s is no longer registered; its file stays.")
    return _end(request, pk, service.delete_artifact, done)


@require_POST
@role_required("operator")
def model_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete an artifact with its files."""
    return _end(request, pk, model_files.remove, _("The model %(name)s is deleted with its files."))


def _ask(
    request: HttpRequest, pk: int, wish: Callable[[Actor, ModelArtifact], object], done: str
) -> HttpResponse:
    artifact = get_object_or_404(ModelArtifact.objects.select_related("host"), pk=pk)
    try:
        wish(Actor.web(request), artifact)
    except Refused as reason:
        say_no(request, reason)
    else:
        if done:
            messages.success(request, done % {"name": artifact.name})
    return back(request, "model-detail", pk)


def _end(
    request: HttpRequest, pk: int, wish: Callable[[Actor, ModelArtifact], object], done: str
) -> HttpResponse:
    artifact = get_object_or_404(ModelArtifact.objects.select_related("host"), pk=pk)
    try:
        wish(Actor.web(request), artifact)
    except Refused as reason:
        say_no(request, reason)
        return back(request, "model-detail", pk)
    messages.success(request, done % {"name": artifact.name})
    return back(request, "models") if request.POST.get("next") else leave(request, "models")
