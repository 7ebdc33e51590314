"""The audit page: who changed what."""

from typing import Any

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlpanel.lib.access import role_required
from jobs.models import AuditEntry

PER_PAGE = 50


@require_safe
@role_required("admin")
def audit(request: HttpRequest) -> HttpResponse:
    """List the audit entries, newest first."""
    text = request.GET.get("q", "").strip()
    entries = AuditEntry.objects.all()
    if text:
        entries = entries.filter(
            Q(action__icontains=text) | Q(object_label__icontains=text) | Q(actor_name__icontains=text)
        )
    page = Paginator(entries, PER_PAGE).get_page(request.GET.get("page"))
    rows = [{"entry": entry, "changes": changes_of(entry)} for entry in page]
    context = {"section": "audit", "topics": "jobs", "page": page, "rows": rows, "q": text}
    return render(request, "jobs/audit.html", context)


def changes_of(entry: AuditEntry) -> list[dict[str, Any]]:
    """Return the keys whose value differs between before and after; an absent side is None."""
    before = _flat(entry.before or {})
    after = _flat(entry.after or {})
    keys = [*before, *(key for key in after if key not in before)]
    return [
        {"key": key, "before": before.get(key), "after": after.get(key)}
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Write a nested JSON object as one level of texts; what is empty counts as absent."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value not in (None, ""):
            flat[prefix + key] = str(value)
    return flat
