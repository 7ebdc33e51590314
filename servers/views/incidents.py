"""The page of incidents."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.listing import tidy
from servers.views.incident_rows import INCIDENTS, incidents_table


@require_safe
@role_required("viewer")
def incidents(request: HttpRequest) -> HttpResponse:
    """List the incidents of all servers, the newest first."""
    table = incidents_table(INCIDENTS.read(request.GET))
    context = {"section": "incidents", "topics": f"{table.wish.topic},jobs", "table": table}
    return tidy(request, render(request, "servers/incidents.html", context), table)
