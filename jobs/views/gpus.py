"""The GPU page, and what it and the strip on top of each page show of the last samples."""

import time
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.words import translate
from jobs.domain.gpu import THROTTLE_ALARMS, THROTTLE_WORDS, WITHOUT_GPU, GpuSample, Sample, own_memory_mib
from jobs.models import Host
from jobs.services.gpus import latest

UNKNOWN = "–"
BAR = 1000  # width of a full bar in the drawing's own units


@require_safe
@role_required("viewer")
def gpus(request: HttpRequest) -> HttpResponse:
    """Show every card of every host."""
    return render(request, "jobs/gpus.html", {"section": "gpus", "topics": "gpus,jobs", **gpus_context()})


def gpus_context() -> dict[str, Any]:
    """All hosts with their cards; `known` is False when Redis does not answer."""
    found = latest()
    now = time.time()
    return {"known": found is not None, "hosts": [_host(host, sample, now) for host, sample in found or ()]}


def strip_context() -> dict[str, Any]:
    """The cards in brief; nothing at all where there is no card and nothing wrong with one."""
    context = gpus_context()
    hosts = [host for host in context["hosts"] if host["kind"] in {"cards", "broken"}]
    return {"known": context["known"], "hosts": hosts, "several": len(context["hosts"]) > 1}


def _host(host: Host, sample: Sample | None, now: float) -> dict[str, Any]:
    if sample is None:
        return {"host": host, "kind": "unsampled"}
    since = sample.stale_since(now)
    gpus = sample.gpus
    empty = "none" if gpus.problem in WITHOUT_GPU else "broken"
    return {
        "host": host,
        "kind": "cards" if gpus.gpus else empty,
        "driver": gpus.driver or UNKNOWN,
        "cuda": gpus.cuda or UNKNOWN,
        "error": translate(gpus.error) if gpus.error else "",
        "remedy": translate(gpus.remedy) if gpus.remedy else "",
        "stale": None if since is None else _moment(since),
        "cards": [_card(card, stale=since is not None) for card in gpus.gpus],
    }


def _card(card: GpuSample, *, stale: bool) -> dict[str, Any]:
    state, word = _state(card, stale=stale)
    return {
        "index": card.index,
        "name": card.name or _("card %(number)d") % {"number": card.index},
        "uuid": card.uuid or "",
        "lost": card.lost,
        "error": card.error or "",
        "state": state,
        "word": word,
        "use": _unit(card.utilization, "%"),
        "memory": _pair(_gib(card.memory_used_mib), _gib(card.memory_total_mib), "GiB"),
        "bar": _bar(card),
        "temperature": _unit(card.temperature, "°C"),
        "power": _pair(_whole(card.power_w), _whole(card.power_limit_w), "W"),
        "clock": _unit(card.clock_mhz, "MHz"),
        "memory_clock": _unit(card.memory_clock_mhz, "MHz"),
        "link": _link(card),
        "traffic": _traffic(card),
        "fan": _unit(card.fan, "%"),
        "throttle": _throttle(card),
        "alarm": bool(THROTTLE_ALARMS.intersection(card.throttle or ())),
        "processes": None if card.processes is None else [_process(item) for item in card.processes],
    }


def _state(card: GpuSample, *, stale: bool) -> tuple[str, str]:
    """Return a state that has a colour, and the word beside it."""
    if stale:
        return "stale", _("not current")
    if card.lost:
        return "failed", _("lost")
    if card.error:
        return "unresponsive", _("not readable")
    if THROTTLE_ALARMS.intersection(card.throttle or ()):
        return "unresponsive", _("slowed down")
    return "ready", _("works")


def _process(item: Any) -> dict[str, Any]:
    return {
        "pid": item.pid,
        "name": item.name or UNKNOWN,
        "memory": UNKNOWN if item.memory_mib is None else f"{item.memory_mib:,} MiB",
        "ours": item.ours,
    }


def _bar(card: GpuSample) -> dict[str, int] | None:
    """Return the parts of the memory bar in BAR units: the panel's own processes, then all else."""
    total, used = card.memory_total_mib, card.memory_used_mib
    if not total or used is None:
        return None
    used = min(used, total)
    own = min(own_memory_mib(card) or 0, used)
    return {"own": own * BAR // total, "used": used * BAR // total, "full": BAR}


def _throttle(card: GpuSample) -> str:
    if card.throttle is None:
        return UNKNOWN
    words = [_(THROTTLE_WORDS[name]) for name in card.throttle if name in THROTTLE_WORDS]
    return ", ".join(words) or _("nothing")


def _link(card: GpuSample) -> str:
    if card.pcie_gen is None or card.pcie_width is None:
        return UNKNOWN
    text = _("gen %(gen)d ×%(width)d") % {"gen": card.pcie_gen, "width": card.pcie_width}
    return f"{text} / ×{card.pcie_width_max}" if card.pcie_width < (card.pcie_width_max or 0) else text


def _traffic(card: GpuSample) -> str:
    if card.pcie_rx_mib_s is None or card.pcie_tx_mib_s is None:
        return UNKNOWN
    return _("in %(rx).0f, out %(tx).0f MiB/s") % {"rx": card.pcie_rx_mib_s, "tx": card.pcie_tx_mib_s}


def _gib(mib: int | None) -> str:
    return UNKNOWN if mib is None else f"{mib / 1024:.1f}"


def _whole(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:.0f}"


def _unit(number: float | None, unit: str) -> str:
    return UNKNOWN if number is None else f"{number:.0f} {unit}"


def _pair(first: str, second: str, unit: str) -> str:
    return UNKNOWN if first == second == UNKNOWN else f"{first} / {second} {unit}"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.get_current_timezone())
