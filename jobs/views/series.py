"""The samples of a host as JSON, for the charts, and which charts there are."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.http import HttpRequest, JsonResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from controlpanel.lib.access import role_required
from jobs.domain.series import FIELDS
from jobs.models import Host
from jobs.services import history
from jobs.services.marks import marks_between

RANGES = {
    300: gettext_lazy("5 min"),
    900: gettext_lazy("15 min"),
    3600: gettext_lazy("1 h"),
    21_600: gettext_lazy("6 h"),
    86_400: gettext_lazy("24 h"),
    604_800: gettext_lazy("7 d"),
    2_592_000: gettext_lazy("30 d"),
}
SECONDS = 900  # up to this range the charts show each second, and new ones come live
SUBJECTS = 64  # of one request
SUBJECT = 100  # characters
DIGITS = 2


@dataclass(frozen=True)
class ChartSpec:
    """One chart: its name, the unit, and which fields of which kind of subject it draws.

    `divide` turns the stored number into the unit's; `words` names each field where there are several; `top`
    is the end of the scale where it is fixed.
    """

    title: Any
    unit: Any
    kind: str
    fields: tuple[str, ...]
    words: tuple[Any, ...] = ()
    divide: float = 1
    digits: int = 0
    top: int | None = None


CHARTS = (
    ChartSpec(gettext_lazy("Load"), "%", "gpu", ("utilization",), top=100),
    ChartSpec(gettext_lazy("Memory"), "GiB", "gpu", ("memory_used_mib",), divide=1024, digits=1),
    ChartSpec(gettext_lazy("Temperature"), "°C", "gpu", ("temperature",)),
    ChartSpec(gettext_lazy("Power"), "W", "gpu", ("power_w",)),
    ChartSpec(
        gettext_lazy("Clocks"),
        "MHz",
        "gpu",
        ("clock_mhz", "memory_clock_mhz"),
        (gettext_lazy("core"), gettext_lazy("memory (dashed)")),
    ),
    ChartSpec(
        gettext_lazy("PCIe traffic"),
        "MiB/s",
        "gpu",
        ("pcie_rx_mib_s", "pcie_tx_mib_s"),
        (gettext_lazy("in"), gettext_lazy("out (dashed)")),
    ),
    ChartSpec(gettext_lazy("CPU of the host"), "%", "host", ("cpu",), top=100),
    ChartSpec(
        gettext_lazy("Main memory of the host"),
        "GiB",
        "host",
        ("memory_used_mib", "swap_used_mib"),
        (gettext_lazy("memory"), gettext_lazy("swap (dashed)")),
        divide=1024,
        digits=1,
    ),
)


@dataclass(frozen=True)
class Subject:
    """The one subject of a page, and its name."""

    key: str
    name: str


def history_context() -> dict[str, Any]:
    """What the page needs to show the history of each host."""
    hosts = list(Host.objects.all())
    return {
        "history_hosts": hosts,
        "several": len(hosts) > 1,
        "history_ranges": RANGES.items(),
        "history_charts": CHARTS,
    }


def subject_context(subject: Subject, charts: Sequence[ChartSpec]) -> dict[str, Any]:
    """What a page needs to show the history of one subject."""
    return {"history_subject": subject, "history_ranges": RANGES.items(), "history_charts": charts}


@dataclass(frozen=True)
class Wish:
    """What a chart asks for; `since` is the last second that it has."""

    host: int
    subjects: tuple[str, ...]
    range: int
    since: float | None


@require_safe
@role_required("viewer")
def gpu_series(request: HttpRequest) -> JsonResponse:
    """Return the samples of some subjects in the last `range` seconds; with `since` only newer points.

    A range of more than 15 minutes has points that cover several seconds: then the point of `since` comes
    again, because it may not have been whole.
    """
    wish = _wish(request.GET)
    if isinstance(wish, str):
        return JsonResponse({"error": wish}, status=400)
    host = get_object_or_404(Host, pk=wish.host)
    now = time.time()
    start = int(now) - wish.range
    if wish.since is not None and wish.range <= SECONDS:
        found = _live(host, wish, max(wish.since, start))
    else:
        found = _stored(host, wish, start, int(now))
    marks = marks_between(host.pk, start, now, _marked(wish.subjects))
    return JsonResponse({**found, "marks": [asdict(mark) for mark in marks], "now": round(now, 3)})


def _marked(subjects: Sequence[str]) -> Sequence[str] | None:
    """Return whose marks belong to these samples; cards and the host (None) are shared by all servers."""
    return subjects if all(subject.startswith("server:") for subject in subjects) else None


def _wish(asked: QueryDict) -> Wish | str:
    """Read a request; a text says what is wrong with it."""
    subjects = tuple(dict.fromkeys(asked.getlist("subject")))
    if not 0 < len(subjects) <= SUBJECTS or not all(map(_is_subject, subjects)):
        return _("Ask for 1 to %(most)d subjects that the panel samples.") % {"most": SUBJECTS}
    try:
        host, seconds = int(str(asked["host"])), int(str(asked["range"]))
        since = float(str(asked["since"])) if "since" in asked else None
    except (KeyError, ValueError):
        return _("Name the host and the range as numbers.")
    if seconds not in RANGES or not 0 < host < 2**63 or not math.isfinite(since or 0):
        return _("The panel keeps no such range.")
    return Wish(host, subjects, seconds, since)


def _is_subject(text: str) -> bool:
    kind, _colon, key = text.partition(":")
    return kind in FIELDS and len(text) <= SUBJECT and (bool(key) or text == "host") and "\0" not in text


def _stored(host: Host, wish: Wish, start: int, end: int) -> dict[str, Any]:
    chart = history.read(host, wish.subjects, start, end)
    found = _cut(chart, 0 if wish.since is None else wish.since)
    _drop_unknown_end(found)
    if wish.range <= SECONDS:
        # What is not yet written, or was not when it was read.
        _join(found, _live(host, wish, max([start, *found["times"][-1:]])))
    return found


def _drop_unknown_end(found: dict[str, Any]) -> None:
    """Take the last points away of which nothing is known."""
    lists = [of["mean"] for fields in found["series"].values() for of in fields.values()]
    known = [max((n for n, value in enumerate(of) if value is not None), default=-1) for of in lists]
    length = max(known, default=-1) + 1
    del found["times"][length:]
    for fields in found["series"].values():
        for of in fields.values():
            for values in of.values():
                del (values or [])[length:]


def _cut(chart: history.Chart, since: float) -> dict[str, Any]:
    """Return the points of a chart from a moment on."""
    first = next((index for index, at in enumerate(chart.times) if at >= since), len(chart.times))
    return {
        "step": chart.step,
        "times": list(chart.times[first:]),
        "series": {
            subject: {
                field: {key: None if values is None else _short(values[first:]) for key, values in of.items()}
                for field, of in fields.items()
            }
            for subject, fields in chart.series.items()
        },
    }


def _live(host: Host, wish: Wish, since: float) -> dict[str, Any]:
    """Return the seconds after `since`, each once."""
    seconds = {int(at): values for at, values in history.live_since(host, since) if int(at) > since}
    rows = [values for _at, values in sorted(seconds.items())]
    return {
        "step": 1,
        "times": sorted(seconds),
        "series": {
            subject: {
                field: {"mean": _short(_column(rows, subject, field)), "low": None, "high": None}
                for field in FIELDS[subject.partition(":")[0]]
            }
            for subject in wish.subjects
        },
    }


def _column(rows: Sequence[Mapping[str, Any]], subject: str, field: str) -> list[float | None]:
    return [(row.get(subject) or {}).get(field) for row in rows]


def _join(found: dict[str, Any], more: dict[str, Any]) -> None:
    """Add seconds at the end; a subject that is not stored yet is unknown before them."""
    before = len(found["times"])
    for subject, fields in more["series"].items():
        own = found["series"].setdefault(subject, {})
        for field, new in fields.items():
            have = own.setdefault(field, {"mean": [None] * before, "low": None, "high": None})
            have["mean"] += new["mean"]
    found["times"] += more["times"]


def _short(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, DIGITS) for value in values]
