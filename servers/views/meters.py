"""Meters of servers as pages write them: with a dash for what is not known."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from jobs.views.measures import UNKNOWN, bar
from servers.domain.meter import STALE_AFTER, ServerMeter, SlotUse
from servers.services.metering import latest_meters

PER_MILLE = 1000


def shown(meter: ServerMeter) -> dict[str, Any]:
    """Return a meter as pages write it."""
    slots = len(meter.slots) or None
    return {
        "predicted": _number(meter.predicted_tps, 1),
        "prompt": _number(meter.prompt_tps, 1),
        "last_predicted": _with("t/s", meter.last_predicted_tps, 1),
        "last_prompt": _with("t/s", meter.last_prompt_tps, 1),
        "busy": _of(meter.busy, slots),
        "waiting": _number(meter.waiting),
        "pressure": bar(meter.busy, slots),
        "slots": [_slot(slot) for slot in meter.slots],
        "context": _of(meter.context_used, meter.context_size),
        "acceptance": _percent(meter.acceptance),
        "positions": [
            {"number": place + 1, "share": _percent(share), "bar": bar(int(share * PER_MILLE), PER_MILLE)}
            for place, share in enumerate(meter.per_position or ())
        ],
        "mean_length": _number(meter.mean_length, 2),
        "totals": _totals(meter.totals),
    }


def running_meters(pks: Iterable[int]) -> dict[int, dict[str, str]]:
    """Return what lists show of these servers, by the keys of their profiles; a dash is not known."""
    meters, now = latest_meters() or {}, time.time()
    return {pk: _brief(meters.get(pk), now) for pk in pks}


def live_meters() -> list[dict[str, Any]]:
    """Return what lists show of all servers that are measured."""
    now = time.time()
    return [{"pk": pk, **_brief(meter, now)} for pk, meter in (latest_meters() or {}).items()]


def _brief(meter: ServerMeter | None, now: float) -> dict[str, str]:
    if meter is None or now - meter.time > STALE_AFTER:
        meter = ServerMeter(now)
    words = shown(meter)
    return {
        "tps": _with("t/s", meter.predicted_tps, 1),
        "busy": words["busy"],
        "context": words["context"],
        "acceptance": words["acceptance"],
    }


def _slot(slot: SlotUse) -> dict[str, Any]:
    state = {True: _("at work"), False: _("idle"), None: UNKNOWN}[slot.busy]
    return {
        "id": slot.id,
        "state": state,
        "busy": slot.busy,
        "use": _of(slot.used, slot.size),
        "bar": bar(slot.used, slot.size),
    }


def _totals(totals: Mapping[str, float]) -> list[dict[str, str]]:
    def seconds(name: str) -> str:
        return _with("s", totals.get(name), 1)

    return [
        {"name": _("Requests answered"), "value": _number(totals.get("requests"))},
        {"name": _("Tokens generated"), "value": _number(totals.get("predicted_tokens"))},
        {"name": _("Time generating"), "value": seconds("predicted_seconds")},
        {"name": _("Prompt tokens read"), "value": _number(totals.get("prompt_tokens"))},
        {"name": _("Time reading prompts"), "value": seconds("prompt_seconds")},
        {"name": _("Tokens drafted"), "value": _number(totals.get("drafted"))},
        {"name": _("Drafted tokens accepted"), "value": _number(totals.get("accepted"))},
    ]


def _number(value: float | None, digits: int = 0) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def _with(unit: str, value: float | None, digits: int = 0) -> str:
    return UNKNOWN if value is None else f"{_number(value, digits)} {unit}"


def _of(part: float | None, whole: float | None) -> str:
    return UNKNOWN if part is None else f"{_number(part)} / {_number(whole)}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.0f} %"
