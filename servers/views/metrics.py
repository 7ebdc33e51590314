"""The page of what is measured of one server."""

import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from controlpanel.lib.access import role_required
from jobs.views.measures import UNKNOWN, gib, moment
from jobs.views.series import ChartSpec, Subject, subject_context
from servers.domain.meter import STALE_AFTER, ServerMeter
from servers.models import Instance
from servers.services.metering import latest_meters
from servers.views import rows, upkeep
from servers.views.meters import shown

CHARTS = (
    ChartSpec(
        gettext_lazy("Tokens per second"),
        "t/s",
        "server",
        ("predicted_tps", "prompt_tps"),
        (gettext_lazy("generation"), gettext_lazy("prompt (dashed)")),
        digits=1,
    ),
    ChartSpec(
        gettext_lazy("Requests"),
        gettext_lazy("requests"),
        "server",
        ("busy", "waiting"),
        (gettext_lazy("at work"), gettext_lazy("waiting (dashed)")),
    ),
    ChartSpec(gettext_lazy("Context used"), gettext_lazy("tokens"), "server", ("context_used",)),
    ChartSpec(gettext_lazy("Acceptance"), "%", "server", ("acceptance",), divide=0.01, top=100),
)


@require_safe
@role_required("viewer")
def server_metrics(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what is measured of one server, by the key of its profile."""
    instance = get_object_or_404(rows.instances(), profile_id=pk)
    context = {
        "section": "servers",
        "topics": f"metrics:{pk},jobs",
        "tab": "metrics",
        "host": instance.profile.build.host,
        **subject_context(Subject(f"server:{pk}", instance.profile.name), CHARTS),
        **metrics_context(instance),
    }
    return render(request, "servers/metrics.html", context)


def metrics_context(instance: Instance) -> dict[str, Any]:
    """What the page keeps current."""
    meters = latest_meters()
    meter = (meters or {}).get(instance.profile_id)
    now, at_rest = time.time(), instance.observed in Instance.RESTING
    stale = meter is not None and now - meter.time > STALE_AFTER
    argv = instance.run.argv if instance.run else []
    return {
        "instance": instance,
        "profile": instance.profile,
        "word": instance.word,
        "at_rest": at_rest,
        "connected": meters is not None,
        "measured": meter is not None and not at_rest,
        "stale": moment(meter.time) if meter is not None and stale else None,
        "without_metrics": bool(argv) and "--metrics" not in argv,
        "meter": shown(ServerMeter(now) if meter is None or stale or at_rest else meter),
        "vram": [
            {"card": card, "memory": UNKNOWN if mib is None else f"{gib(mib)} GiB"}
            for card, mib in (() if stale else upkeep.vram_of(instance))
        ],
    }
