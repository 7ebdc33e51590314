"""The overview: first steps, what needs attention, what runs."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlpanel.lib.access import has_role, role_required
from servers.views import attention


@require_safe
@role_required("viewer")
def overview(request: HttpRequest) -> HttpResponse:
    """Show the state of the whole panel."""
    context = {"section": "overview", "topics": "overview,meters,jobs", **attention.overview_context()}
    if has_role(request.user, "admin"):
        context["changes"] = attention.last_changes()
    return render(request, "servers/overview.html", context)
