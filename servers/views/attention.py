"""The overview: the first steps, what needs attention, what runs, what was changed last."""

from datetime import timedelta
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from jobs.adapters.hostlink import link
from jobs.models import Alert, AuditEntry, Build, Host, ModelArtifact
from jobs.views.audit import changes_of
from jobs.views.work import silent_hosts, waiting_count
from servers.domain.policy import policy_of
from servers.models import Incident, Instance, ServerProfile
from servers.views.incident_rows import incident_rows
from servers.views.lists import SERVERS
from servers.views.rows import Observed, instances, server_rows
from servers.views.upkeep import loop_of

LAST_ENTRIES = 5
SHOWN = 8  # rows of one trouble; the list shows the others
RUNNING_SHOWN = 50
LATELY = timedelta(hours=24)
SHORT = 0.10  # of the disk
# Started again by the panel after a failure, or given up after that.
LOOPING = Q(observed=Observed.BACKOFF) | Q(observed=Observed.FAILED, attempts__gt=0)
TROUBLED = Q(observed__in=(Observed.FAILED, Observed.EXITED, Observed.UNRESPONSIVE)) & ~LOOPING


def overview_context() -> dict[str, Any]:
    """What the overview keeps current."""
    running = instances().exclude(observed__in=Instance.RESTING)
    rows = server_rows(running.order_by("profile__name")[:RUNNING_SHOWN])
    troubles = {
        "silent": silent_hosts(),
        "alerts": _first(Alert.objects.filter(state=Alert.State.FIRING)),
        "disks": short_disks(),
        "waiting": waiting_count(),
        "loops": _loops(),
        "failed_servers": _first(instances().filter(TROUBLED)),
        "no_mtp": _first(running.filter(profile__settings__speculation="mtp", facts__mtp=False)),
        "outdated": _first(running.exclude(revision=F("profile__revision"))),
        "failed_builds": _first(failed_builds().defer("capabilities")),
        "incomplete": _first(ModelArtifact.objects.filter(complete=False).defer("header", "facts")),
    }
    return {
        **troubles,
        "calm": not any(troubles.values()),
        "incidents": incident_rows(_latest_incidents()),
        "steps": checklist(),
        "running": rows,
        "labels": SERVERS.labels,
        "running_more": running.count() - len(rows) if len(rows) == RUNNING_SHOWN else 0,
        "first_profile": ServerProfile.objects.first(),
    }


def _first(rows: QuerySet[Any]) -> dict[str, Any] | None:
    """Return the first rows and the number of the others, None when there is none."""
    found = list(rows[: SHOWN + 1])
    if not found:
        return None
    return {"rows": found[:SHOWN], "more": rows.count() - SHOWN if len(found) > SHOWN else 0}


def _latest_incidents() -> QuerySet[Incident]:
    latest = Incident.objects.filter(last_at__gte=timezone.now() - LATELY)
    return latest.select_related("run", "profile")[:LAST_ENTRIES]


def _loops() -> dict[str, Any] | None:
    found = _first(instances().filter(LOOPING))
    if found:
        found["rows"] = [
            {"instance": row, "loop": loop_of(row, policy_of(row.profile.policy))} for row in found["rows"]
        ]
    return found


def failed_builds() -> QuerySet[Build]:
    """Return the builds that failed, without those whose config has been built anew since."""
    newer = Build.objects.filter(config=OuterRef("config"), pk__gt=OuterRef("pk"))
    return Build.objects.filter(~Exists(newer), state=Build.State.FAILED)


def short_disks() -> list[dict[str, Any]]:
    """Return the hosts whose data folder has less than a tenth of its disk left."""
    found = []
    for host in Host.objects.all():
        disk = link(host.slug).data_disk()
        if disk is not None and disk.free < SHORT * disk.total:
            found.append({"host": host, "free": disk.free, "percent": int(100 * disk.free / disk.total)})
    return found


def checklist() -> list[dict[str, Any]]:
    """The four steps of a first run; empty once a server has been ready."""
    if Instance.objects.filter(observed=Observed.READY).exists() or _was_ready():
        return []
    done = [
        Build.objects.filter(state=Build.State.READY).exists(),
        ModelArtifact.objects.filter(kind=ModelArtifact.Kind.MODEL).exists(),
        ServerProfile.objects.exists(),
        False,
    ]
    return [
        {"number": index + 1, "done": flag, "next": not flag and all(done[:index])}
        for index, flag in enumerate(done)
    ]


def _was_ready() -> bool:
    steps = Instance.objects.values_list("steps", flat=True).iterator(chunk_size=100)
    return any(step["key"] == "ready" for taken in steps for step in taken)


def last_changes() -> list[dict[str, Any]]:
    """The newest audit rows."""
    return [
        {"entry": entry, "changes": changes_of(entry)} for entry in AuditEntry.objects.all()[:LAST_ENTRIES]
    ]
