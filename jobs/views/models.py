"""Pages of model artifacts: list, register, look at, read again, delete."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, leave, say_no
from controlpanel.lib.listing import tidy
from jobs.forms import ModelForm
from jobs.models import ModelArtifact
from jobs.services import artifacts as service
from jobs.services.audit import Actor
from jobs.services.hosts import local_host
from jobs.views import rows
from jobs.views.lists import MODELS, models_table


@require_safe
@role_required("viewer")
def models(request: HttpRequest) -> HttpResponse:
    """List all model artifacts."""
    table = models_table(MODELS.read(request.GET))
    context = {"section": "models", "topics": f"{table.wish.topic},jobs", "table": table}
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
    context = {"section": "models", "topics": "jobs", "form": form, "folder": service.models_folder()}
    return render(request, "jobs/model_register.html", context)


@require_safe
@role_required("viewer")
def model_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what a file's header says."""
    artifact = get_object_or_404(ModelArtifact.objects.select_related("host"), pk=pk)
    context = {"section": "models", "topics": f"model:{pk},jobs", **rows.model_context(artifact)}
    return render(request, "jobs/model.html", context)


@require_POST
@role_required("operator")
def model_refresh(request: HttpRequest, pk: int) -> HttpResponse:
    """Read the file's header again."""
    artifact = get_object_or_404(ModelArtifact, pk=pk)
    try:
        service.refresh_artifact(Actor.web(request), artifact)
    except Refused as reason:
        say_no(request, reason)
    else:
        messages.success(request, _("The header of %(name)s was read again.") % {"name": artifact.name})
    return back(request, "model-detail", pk)


@require_POST
@role_required("operator")
def model_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Forget an artifact."""
    artifact = get_object_or_404(ModelArtifact, pk=pk)
    try:
        service.delete_artifact(Actor.web(request), artifact)
    except Refused as reason:
        say_no(request, reason)
        return back(request, "model-detail", pk)
    messages.success(
        request, _("The model %(name)s is no longer registered; its file stays.") % {"name": artifact.name}
    )
    return leave(request, "models")
