"""The page of repositories: where builds come from; admins add and delete."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, say_no
from jobs.forms_builds import RepositoryForm
from jobs.models import Repository
from jobs.services import configs as service
from jobs.services.audit import Actor


@require_safe
@role_required("viewer")
def repositories(request: HttpRequest) -> HttpResponse:
    """List the repositories."""
    return _page(request, RepositoryForm())


@require_POST
@role_required("admin")
def repository_add(request: HttpRequest) -> HttpResponse:
    """Allow builds from another source: code that this host will run, so admins only."""
    form = RepositoryForm(request.POST)
    if form.is_valid():
        clean = form.cleaned_data
        try:
            row = service.add_repository(Actor.web(request), clean["name"], clean["kind"], clean["url"])
        except Refused as reason:
            form.add_error(reason.field or None, str(reason))
        else:
            messages.success(request, _("Builds from %(name)s are allowed now.") % {"name": row.name})
            return redirect("repositories")
    return _page(request, form)


@require_POST
@role_required("admin")
def repository_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Forget a repository."""
    repository = get_object_or_404(Repository, pk=pk)
    try:
        service.delete_repository(Actor.web(request), repository)
    except Refused as reason:
        say_no(request, reason)
    else:
        messages.success(request, _("The repository %(name)s was removed.") % {"name": repository.name})
    return back(request, "repositories")


def _page(request: HttpRequest, form: RepositoryForm) -> HttpResponse:
    rows = Repository.objects.prefetch_related("configs").select_related("created_by")
    context = {"section": "builds", "topics": "jobs", "rows": rows, "form": form}
    return render(request, "jobs/repositories.html", context)
