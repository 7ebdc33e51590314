"""The page of admins on which a monitoring system gets access to the metrics."""

from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import messages
from django.http import FileResponse, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from jobs.forms_exporter import MetricsTokenForm
from jobs.models import MetricsToken
from jobs.services import exporter_tokens as service
from jobs.services.audit import Actor

DASHBOARD = settings.BASE_DIR / "deploy" / "grafana" / "llamacpp-panel.json"
SNIPPET = """scrape_configs:
  - job_name: llamacpp-panel
    scrape_interval: 15s
    scheme: {scheme}
    metrics_path: {path}
    authorization:
      credentials: {token}
    static_configs:
      - targets: ["{target}"]
"""


@require_safe
@role_required("admin")
def access(request: HttpRequest) -> HttpResponse:
    """Show the tokens and how to read with one."""
    return _page(request, MetricsTokenForm())


@require_POST
@role_required("admin")
@never_cache
def access_add(request: HttpRequest) -> HttpResponse:
    """Make a token; this answer is the only place where it stands."""
    form = MetricsTokenForm(request.POST)
    if form.is_valid():
        try:
            row, text = service.make_token(Actor.web(request), form.cleaned_data["name"])
        except Refused as reason:
            form.add_error(reason.field or None, str(reason))
        else:
            return _page(request, MetricsTokenForm(), made=row, text=text)
    return _page(request, form)


@require_POST
@role_required("admin")
def access_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Forget a token."""
    token = get_object_or_404(MetricsToken, pk=pk)
    service.delete_token(Actor.web(request), token)
    messages.success(request, _("The token %(name)s was deleted.") % {"name": token.name})
    return redirect("metrics-access")


@require_safe
@role_required("admin")
def dashboard(request: HttpRequest) -> FileResponse:
    """Give the dashboard for Grafana as a file."""
    return FileResponse(DASHBOARD.open("rb"), as_attachment=True, content_type="application/json")


def _page(
    request: HttpRequest, form: MetricsTokenForm, made: MetricsToken | None = None, text: str = ""
) -> HttpResponse:
    public = urlsplit(settings.PANEL_URL.origin if settings.PANEL_URL else request.build_absolute_uri("/"))
    snippet = SNIPPET.format(
        scheme=public.scheme,
        path=reverse("panel-metrics"),
        target=public.netloc,
        token=text or _("THE-TOKEN"),
    )
    rows = MetricsToken.objects.select_related("created_by")
    context = {"rows": rows, "form": form, "made": made, "text": text, "snippet": snippet}
    return render(request, "jobs/metrics_access.html", context)
