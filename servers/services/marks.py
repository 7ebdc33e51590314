"""What the servers bring onto the charts of their host: starts, when they were ready, and crashes."""

from collections.abc import Collection, Set
from datetime import UTC, datetime

from django.db.models import Q
from django.utils.translation import gettext as _

from jobs.models import Run
from jobs.services.marks import MOST, Mark, Subjects
from servers.models import Incident, Instance, StartReading
from servers.services.launch import RUN_KIND

Span = tuple[datetime, datetime]
Keys = Set[int]  # of profiles
Kind = Incident.Kind
SUBJECT = "server:"
DIGITS = 18  # of a key that fits into a column
CRASHES = (Kind.START, Kind.CRASH, Kind.HANG, Kind.MEMORY, Kind.REBOOT)


def server_marks(host_pk: int, start: float, end: float, subjects: Subjects = None) -> list[Mark]:
    """Return the newest marks of a host's servers between two moments in seconds since 1970."""
    span = (datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC))
    keys = None if subjects is None else _keys(subjects)
    return [*_starts(host_pk, span, keys), *_ready(host_pk, span, keys), *_crashes(host_pk, span, keys)]


def _keys(subjects: Collection[str]) -> Keys:
    """Return the keys of the profiles among the subjects."""
    keys = {subject.removeprefix(SUBJECT) for subject in subjects if subject.startswith(SUBJECT)}
    return {int(key) for key in keys if key.isdecimal() and len(key) <= DIGITS}


def _subject(profile_pk: int | None) -> str:
    return "" if profile_pk is None else f"{SUBJECT}{profile_pk}"


def _starts(host_pk: int, span: Span, keys: Keys | None) -> list[Mark]:
    runs = Run.objects.filter(host=host_pk, kind=RUN_KIND, created_at__range=span).order_by("-created_at")
    if keys is not None:
        own = Instance.objects.filter(profile__in=keys).values_list("pk", flat=True)
        runs = runs.filter(subject_id__in=[str(pk) for pk in own])
    found = list(runs.values_list("subject_id", "created_at")[:MOST])
    rows = Instance.objects.filter(pk__in={pk for pk, _at in found if pk.isdigit()})
    known = {
        str(pk): (name, profile) for pk, name, profile in rows.values_list("pk", "profile__name", "profile")
    }
    marks = []
    for pk, at in found:
        name, profile = known.get(pk, (_("a deleted server"), None))
        label = _("%(server)s: started") % {"server": name}
        marks.append(Mark(at.timestamp(), "start", label, _subject(profile)))
    return marks


def _ready(host_pk: int, span: Span, keys: Keys | None) -> list[Mark]:
    # A reading is taken as soon as a server is ready; one whose log tells nothing has none.
    readings = StartReading.objects.filter(run__host=host_pk, created_at__range=span)
    current = Instance.objects.filter(run__host=host_pk, ready_at__range=span)
    if keys is not None:
        readings, current = readings.filter(profile__in=keys), current.filter(profile__in=keys)
    past = readings.order_by("-pk").values_list("run", "profile", "profile__name", "created_at")[:MOST]
    moments = {run: (profile, name, at) for run, profile, name, at in past}
    for run, profile, name, at in current.values_list("run", "profile", "profile__name", "ready_at"):
        if at is not None:
            moments[run] = (profile, name, at)
    return [
        Mark(at.timestamp(), "ready", _("%(server)s: ready") % {"server": name}, _subject(profile))
        for profile, name, at in moments.values()
    ]


def _crashes(host_pk: int, span: Span, keys: Keys | None) -> list[Mark]:
    here = Q(run__host=host_pk) | Q(run=None, profile__build__host=host_pk)
    # Ordered by the index; what was seen again outside of the span is left out below.
    rows = Incident.objects.filter(here, kind__in=CRASHES, last_at__gte=span[0]).select_related("profile")
    if keys is not None:
        rows = rows.filter(profile__in=keys)
    return [
        Mark(
            row.first_at.timestamp(),
            "crash",
            _("%(name)s: %(reason)s") % {"name": _name(row), "reason": Kind(row.kind).label},
            _subject(row.profile_id),
        )
        for row in rows.only("first_at", "kind", "server", "profile__name")[:MOST]
        if span[0] <= row.first_at <= span[1]
    ]


def _name(incident: Incident) -> str:
    return incident.profile.name if incident.profile else incident.server
