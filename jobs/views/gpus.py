"""The GPU page, and what it and the strip on top of each page show of the last samples."""

import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.words import translate
from jobs.domain.gpu import THROTTLE_ALARMS, THROTTLE_WORDS, WITHOUT_GPU, GpuSample, Sample, Xid
from jobs.domain.xid import told
from jobs.models import Host
from jobs.services.gpus import latest, subject_of
from jobs.views.gpu_holders import Holders, holders_of
from jobs.views.hostload import loads_context
from jobs.views.measures import UNKNOWN, gib, moment, pair, unit, whole
from jobs.views.series import history_context


@require_safe
@role_required("viewer")
def gpus(request: HttpRequest) -> HttpResponse:
    """Show every card of every host."""
    context = {"section": "gpus", "topics": "gpus,hostload,jobs", **gpus_context(), **loads_context()}
    context.update(history_context())
    return render(request, "jobs/gpus.html", context)


def gpus_context(*, names: bool = True) -> dict[str, Any]:
    """All hosts with their cards; `known` is False when Redis does not answer.

    Without `names` the database is not asked whose the panel's own programs are.
    """
    found = latest()
    now = time.time()
    hosts = [_host(host, sample, now, names=names) for host, sample in found or ()]
    return {"known": found is not None, "hosts": hosts}


def strip_context() -> dict[str, Any]:
    """The cards in brief; nothing at all where there is no card and nothing wrong with one."""
    context = gpus_context(names=False)
    hosts = [host for host in context["hosts"] if host["kind"] in {"cards", "broken"}]
    return {"known": context["known"], "hosts": hosts, "several": len(context["hosts"]) > 1}


def _host(host: Host, sample: Sample | None, now: float, *, names: bool) -> dict[str, Any]:
    if sample is None:
        return {"host": host, "kind": "unsampled"}
    since = sample.stale_since(now)
    gpus = sample.gpus
    holders = holders_of(gpus, names=names)
    empty = "none" if gpus.problem in WITHOUT_GPU else "broken"
    return {
        "host": host,
        "kind": "cards" if gpus.gpus else empty,
        "driver": gpus.driver or UNKNOWN,
        "cuda": gpus.cuda or UNKNOWN,
        "error": translate(gpus.error) if gpus.error else "",
        "remedy": translate(gpus.remedy) if gpus.remedy else "",
        "stale": None if since is None else moment(since),
        "cards": [_card(card, holders, stale=since is not None) for card in gpus.gpus],
    }


def _card(card: GpuSample, holders: Holders, *, stale: bool) -> dict[str, Any]:
    state, word = _state(card, stale=stale)
    return {
        "index": card.index,
        "name": card.name or _("card %(number)d") % {"number": card.index},
        "uuid": card.uuid or "",
        "subject": subject_of(card),
        "lost": card.lost,
        "error": card.error or "",
        "state": state,
        "word": word,
        "use": unit(card.utilization, "%"),
        "memory": pair(gib(card.memory_used_mib), gib(card.memory_total_mib), "GiB"),
        "memory_use": unit(card.memory_utilization, "%"),
        "bar": holders.bar(card),
        "temperature": unit(card.temperature, "°C"),
        "power": pair(whole(card.power_w), whole(card.power_limit_w), "W"),
        "clock": unit(card.clock_mhz, "MHz"),
        "memory_clock": unit(card.memory_clock_mhz, "MHz"),
        "link": _link(card),
        "traffic": _traffic(card),
        "fan": unit(card.fan, "%"),
        "throttle": _throttle(card),
        "alarm": bool(THROTTLE_ALARMS.intersection(card.throttle or ())),
        "processes": holders.programs(card),
        "rest": holders.rest(card),
        "faults": _faults(card),
        "xids": [_xid(xid) for xid in card.xids],
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


def _xid(xid: Xid) -> dict[str, Any]:
    what, remedy = told(xid.number)
    at = moment(xid.time)
    today = at.date() == moment(time.time()).date()
    return {
        "number": xid.number,
        "at": at.strftime("%H:%M" if today else "%Y-%m-%d %H:%M"),
        "what": translate(what),
        "remedy": translate(remedy),
    }


def _faults(card: GpuSample) -> dict[str, Any]:
    """What is known of errors of a card's memory; a dash for a card that does not count them."""
    repairs = {"pending": _("repair waits for a reset"), "failed": _("repair failed")}
    return {
        "corrected": _count(card.ecc_corrected, card.ecc_corrected_ever),
        "uncorrected": _count(card.ecc_uncorrected, card.ecc_uncorrected_ever),
        "known": {card.ecc_corrected, card.ecc_uncorrected} != {None},
        "bad": bool(card.ecc_uncorrected),
        "rows": card.remapped_rows,
        "repair": repairs.get(card.repair or "", ""),
    }


def _count(now: int | None, ever: int | None) -> str:
    """Write a count since the driver was loaded, and in brackets since the card was made."""
    if now is None:
        return UNKNOWN
    return str(now) if ever is None else _("%(now)d (ever %(ever)d)") % {"now": now, "ever": ever}


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
