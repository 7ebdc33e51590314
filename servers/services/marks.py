"""What the servers bring onto the charts of their host: starts, when they were ready, and crashes."""

from datetime import UTC, datetime

from django.db.models import Q
from django.utils.translation import gettext as _

from jobs.models import Run
from jobs.services.marks import MOST, Mark
from servers.models import Incident, Instance, StartReading
from servers.services.launch import RUN_KIND

Kind = Incident.Kind
CRASHES = (Kind.START, Kind.CRASH, Kind.HANG, Kind.MEMORY, Kind.REBOOT)


def server_marks(host_pk: int, start: float, end: float) -> list[Mark]:
    """Return the newest marks of a host's servers between two moments in seconds since 1970."""
    span = (datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC))
    return [*_starts(host_pk, span), *_ready(host_pk, span), *_crashes(host_pk, span)]


def _starts(host_pk: int, span: tuple[datetime, datetime]) -> list[Mark]:
    runs = Run.objects.filter(host=host_pk, kind=RUN_KIND, created_at__range=span).order_by("-created_at")
    found = list(runs.values_list("subject_id", "created_at")[:MOST])
    rows = Instance.objects.filter(pk__in={pk for pk, _at in found if pk.isdigit()})
    names = {str(pk): name for pk, name in rows.values_list("pk", "profile__name")}
    deleted = _("a deleted server")
    return [
        Mark(at.timestamp(), "start", _("%(server)s: started") % {"server": names.get(pk, deleted)})
        for pk, at in found
    ]


def _ready(host_pk: int, span: tuple[datetime, datetime]) -> list[Mark]:
    # A reading is taken as soon as a server is ready; one whose log tells nothing has none.
    readings = StartReading.objects.filter(run__host=host_pk, created_at__range=span)
    past = readings.order_by("-pk").values_list("run", "profile__name", "created_at")[:MOST]
    current = Instance.objects.filter(run__host=host_pk, ready_at__range=span)
    moments = {run: (name, at) for run, name, at in past}
    for run, name, at in current.values_list("run", "profile__name", "ready_at"):
        if at is not None:
            moments[run] = (name, at)
    return [
        Mark(at.timestamp(), "ready", _("%(server)s: ready") % {"server": name})
        for name, at in moments.values()
    ]


def _crashes(host_pk: int, span: tuple[datetime, datetime]) -> list[Mark]:
    here = Q(run__host=host_pk) | Q(run=None, profile__build__host=host_pk)
    # Ordered by the index; what was seen again outside of the span is left out below.
    rows = Incident.objects.filter(here, kind__in=CRASHES, last_at__gte=span[0]).select_related("profile")
    return [
        Mark(row.first_at.timestamp(), "crash", f"{_name(row)}: {Kind(row.kind).label}")
        for row in rows.only("first_at", "kind", "server", "profile__name")[:MOST]
        if span[0] <= row.first_at <= span[1]
    ]


def _name(incident: Incident) -> str:
    return incident.profile.name if incident.profile else incident.server
