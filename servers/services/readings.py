"""What a started server took of memory, read back once per run and shown beside what was estimated."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.text import N_
from controlpanel.llamacpp.memory import Estimate, EstimateError, estimate
from controlpanel.llamacpp.memory_learn import Learned, learn
from controlpanel.llamacpp.memory_log import Buffers, read_buffers
from controlpanel.llamacpp.memory_types import HOST
from jobs.models import Run
from jobs.services.fits import Cards, total_of
from servers.models import Instance, StartReading
from servers.services.estimates import Inputs, inputs_of
from servers.services.revisions import data_as_started

logger = logging.getLogger(__name__)

HELD = "held"  # what the driver says of the server's process, among the measured terms

# (label, terms of the estimate, terms of the log)
_ROWS = (
    (N_("Weights"), ("weights", "mtp_weights"), ("weights",)),
    (N_("KV cache"), ("kv",), ("kv",)),
    (N_("Recurrent state"), ("recurrent", "mtp_recurrent"), ("recurrent",)),
    (N_("KV cache of MTP"), ("mtp_kv",), ("mtp_kv",)),
    (N_("Vision projector"), ("mmproj",), ("mmproj",)),
    (N_("Computation"), ("compute",), ("compute",)),
    (N_("Computation of MTP"), ("mtp_compute",), ("mtp_compute",)),
    (N_("Computation of the projector"), ("mmproj_compute",), ("mmproj_compute",)),
    (N_("Scores"), (), ("output",)),
    (N_("Driver and margin"), ("margin",), ("driver",)),
)


@dataclass(frozen=True)
class Row:
    """One term in bytes; None is what is not known."""

    label: str
    estimated: int | None
    measured: int | None


@dataclass(frozen=True)
class Place:
    """One graphics card, or main memory, with its terms; the sums are bytes."""

    name: str
    rows: tuple[Row, ...]
    estimated: int | None
    measured: int | None


@dataclass(frozen=True)
class Reading:
    """A reading as a page shows it. `teaches` tells that estimates are corrected by it."""

    places: tuple[Place, ...]
    at: datetime
    teaches: bool


def take_reading(instance: Instance, log: str) -> None:
    """Store once per run what its log and the driver say it took; nothing that goes wrong is raised.

    `log` is the beginning of the run's log, of which memory_log.MAX_TEXT characters are looked at.
    """
    try:
        if instance.run and not StartReading.objects.filter(run=instance.run).exists():
            _take(instance, instance.run, read_buffers(log))
    except Exception:
        logger.exception("no memory reading of %s", instance)


def reading_of(run: Run) -> Reading | None:
    """Return what the start of a run took beside what was estimated, None when nothing was read."""
    row = StartReading.objects.filter(run=run).first()
    if row is None:
        return None
    places = sorted({*row.measured, *row.estimated}, key=lambda key: (key == str(HOST), len(key), key))
    shown = (_place(key, row.estimated.get(key, {}), row.measured.get(key, {})) for key in places)
    return Reading(tuple(place for place in shown if place.rows), row.created_at, bool(row.learned))


def _take(instance: Instance, run: Run, buffers: Buffers) -> None:
    started = _started(instance)
    if started is None or not buffers.devices:
        return
    build = started.data.build
    cards = Cards(()) if buffers.backend == "CPU" else started.cards(run.pid)
    held = {place: size for place, size in enumerate(cards.own) if size}
    found: Estimate | None = None
    learned: Learned | None = None
    arguments = (started.parts, started.projector, started.settings, started.dialect, cards.devices)
    try:
        found = estimate(*arguments)
        learned = learn(*arguments, buffers, held)
    except EstimateError as error:
        logger.info("%s teaches nothing: %s", instance, error)
    StartReading.objects.get_or_create(
        run=run,
        defaults={
            "profile": instance.profile,
            "build": build,
            "fingerprint": build.fingerprint,
            "architecture": (started.parts[0].architecture or "")[:60],
            "backend": buffers.backend[:40],
            "settings": started.settings,
            "estimated": _estimated(found),
            "measured": _measured(buffers, held),
            "learned": learned.to_dict() if learned else {},
        },
    )


def _started(instance: Instance) -> Inputs | None:
    """Return with what the instance was started, None when that is not known any more."""
    try:
        data = data_as_started(instance)
        return inputs_of(data) if data else None
    except (EstimateError, Refused) as error:
        logger.info("no memory reading of %s: %s", instance, error)
        return None


def _estimated(found: Estimate | None) -> dict[str, Any]:
    """Return the terms in MiB by place, main memory under its own number."""
    if found is None:
        return {}
    places = {str(index): dict(fit.terms) for index, fit in enumerate(found.devices)}
    return {**places, str(HOST): dict(found.host)}


def _measured(buffers: Buffers, held: Mapping[int, float]) -> dict[str, Any]:
    """Return the terms in MiB by place, and what the driver has beside the buffers."""
    found: dict[str, Any] = {str(place): dict(terms) for place, terms in buffers.by_place().items()}
    for place, size in held.items():
        terms = found.setdefault(str(place), {})
        rest = size - sum(terms.values())
        terms[HELD] = size
        if rest >= 0:
            terms["driver"] = rest
    return found


def _place(key: str, estimated: Mapping[str, Any], measured: Mapping[str, Any]) -> Place:
    rows = []
    for label, guessed, told in _ROWS:
        row = Row(_(label), _sum(estimated, guessed), _sum(measured, told))
        if row.estimated or row.measured:
            rows.append(row)
    name = _("Main memory") if key == str(HOST) else _("GPU %(index)s") % {"index": key}
    guessed_terms = [term for _label, terms, _told in _ROWS for term in terms]
    told_terms = [term for _label, _guessed, terms in _ROWS for term in terms]
    return Place(name, tuple(rows), _sum(estimated, guessed_terms), _sum(measured, told_terms))


def _sum(terms: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """Return bytes; None when none of the terms is there, or one is not known."""
    sizes = [terms[name] for name in names if name in terms]
    return total_of(sizes) if sizes else None
