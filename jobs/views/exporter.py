"""The metrics as a monitoring system reads them: opened by a token of their own, never by a session."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from jobs.services.exporter import gather, rendered
from jobs.services.exporter_tokens import opens


@require_safe
@never_cache
def panel_metrics(request: HttpRequest) -> HttpResponse:
    """Answer with what is known now; 401 without a token."""
    if not opens(request.headers.get("Authorization", "")):
        challenge = {"WWW-Authenticate": 'Bearer realm="metrics"'}
        return HttpResponse(status=401, headers=challenge, content_type="text/plain")
    text, content_type = rendered(gather(), request.headers.get("Accept", ""))
    return HttpResponse(text, content_type=content_type)


panel_metrics.role_needed = "token"  # type: ignore[attr-defined]
