"""What the pages of the servers app show, read from the rows: for first renders and for live updates."""

import shlex
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlpanel.llamacpp.meanings import MEANINGS
from jobs.models import AuditEntry, Build, ModelArtifact, Run
from jobs.views.audit import changes_of
from jobs.views.rows import is_waiting, silent_hosts, waiting_jobs
from servers.models import Instance, ServerProfile

Observed = Instance.Observed
PAST_RUNS = 10
LAST_ENTRIES = 5
STEPS = {
    "queued": gettext_lazy("queued"),
    "preflight": gettext_lazy("preflight"),
    "spawn": gettext_lazy("spawn"),
    "loading": gettext_lazy("loading"),
    "context": gettext_lazy("context"),
    "mtp": gettext_lazy("MTP"),
    "vision": gettext_lazy("vision"),
    "loaded": gettext_lazy("loaded"),
    "ready": gettext_lazy("ready"),
}
TROUBLED = {Observed.FAILED, Observed.EXITED, Observed.UNRESPONSIVE}
OPTIONAL_STEPS = {"mtp", "vision"}


@dataclass(frozen=True)
class Step:
    """One step of a start; `seconds` is None while it goes on or lies ahead, `since` its begin."""

    word: Any
    status: str  # done, now, failed, ahead
    seconds: float | None
    since: str


@dataclass(frozen=True)
class Button:
    """One action on a server; `reason` says why it cannot be done now, "" when it can."""

    name: str
    label: str
    icon: str
    reason: str
    question: str = ""


def instances() -> QuerySet[Instance]:
    """Return all instances with what a row shows."""
    return Instance.objects.select_related(
        "profile__build__host", "profile__model", "profile__mmproj", "run__host"
    )


def server_row(instance: Instance) -> dict[str, Any]:
    """One server with its facts and its buttons."""
    profile = instance.profile
    asked_mtp = profile.settings.get("speculation") == "mtp"
    return {
        "instance": instance,
        "profile": profile,
        "facts": instance.facts,
        "asked_mtp": asked_mtp,
        "no_mtp": asked_mtp and instance.facts.get("mtp") is False,
        "outdated": instance.observed not in Instance.RESTING and instance.revision != profile.revision,
        "waits": is_waiting("instance", instance.pk),
        "at_rest": instance.observed in Instance.RESTING,
        "buttons": buttons_of(instance),
    }


def servers_context() -> dict[str, Any]:
    """All servers."""
    return {"rows": [server_row(instance) for instance in instances()]}


def server_context(instance: Instance) -> dict[str, Any]:
    """One server's page."""
    run, row = instance.run, server_row(instance)
    return {
        **row,
        "self": row,
        "part": f"server-{instance.profile.pk}",
        "run": run,
        "start_seconds": total_seconds(instance) if instance.observed == Observed.READY else None,
        "touched": [
            (_(MEANINGS[key].label), value)
            for key, value in instance.profile.settings.items()
            if key in MEANINGS
        ],
        "steps": steps_of(instance),
        "command": shlex.join(run.argv) if run and run.argv else "",
        "runs": Run.objects.filter(subject_kind="instance", subject_id=str(instance.pk))[:PAST_RUNS],
    }


def buttons_of(instance: Instance) -> list[Button]:
    """Start, Restart and Stop, each with the reason why it cannot be done now."""
    profile, build = instance.profile, instance.profile.build
    word = instance.get_observed_display()
    start = stop = ""
    if instance.observed not in Instance.RESTING:
        start = _("The server is %(state)s already.") % {"state": word}
    elif build.state != Build.State.READY:
        start = _("The build %(name)s is not ready: it is %(state)s.") % {
            "name": build.name,
            "state": build.get_state_display(),
        }
    if instance.observed not in Instance.ALIVE:
        stop = _("The server is not running: it is %(state)s.") % {"state": word}
    question = _("Stop the server %(name)s? Requests in flight are cut off.") % {"name": profile.name}
    again = _("Restart the server %(name)s? Requests in flight are cut off.") % {"name": profile.name}
    return [
        Button("start", _("Start"), "ti-player-play", start),
        Button("restart", _("Restart"), "ti-refresh", stop, again),
        Button("stop", _("Stop"), "ti-player-stop", stop, question),
    ]


def steps_of(instance: Instance) -> list[Step]:
    """The rail of the last start, empty when there was none."""
    reached = {str(step["key"]): float(step["at"]) for step in instance.steps}
    if not reached:
        return []
    wanted = {
        "mtp": instance.profile.settings.get("speculation") == "mtp",
        "vision": bool(instance.profile.mmproj_id),
    }
    keys = [key for key in STEPS if key in reached or wanted.get(key, key not in OPTIONAL_STEPS)]
    times = sorted(reached.values())
    last = max(reached, key=lambda key: reached[key])
    going_on = instance.observed in {Observed.STARTING, Observed.LOADING}
    steps = []
    for key in keys:
        at = reached.get(key)
        after = next((moment for moment in times if at is not None and moment > at), None)
        status = "ahead" if at is None else "done"
        if key == last and key != "ready":
            status = "now" if going_on else "failed" if instance.observed == Observed.FAILED else "done"
        seconds = after - at if at is not None and after is not None and key != "ready" else None
        since = f"{at:.3f}" if status == "now" else ""
        steps.append(Step(STEPS[key], status, seconds, since))
    return steps


def total_seconds(instance: Instance) -> float | None:
    """How long the last start took until ready, None when it never was."""
    reached = {step["key"]: step["at"] for step in instance.steps}
    return reached["ready"] - reached["queued"] if {"ready", "queued"} <= reached.keys() else None


def checklist() -> list[dict[str, Any]]:
    """The four steps of a first run; empty once a server has been ready."""
    ready = any(
        step["key"] == "ready" for steps in Instance.objects.values_list("steps", flat=True) for step in steps
    )
    if ready or Instance.objects.filter(observed=Observed.READY).exists():
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


def overview_context() -> dict[str, Any]:
    """What the overview keeps current."""
    rows = [server_row(instance) for instance in instances()]
    return {
        "steps": checklist(),
        "failed_servers": [
            row
            for row in rows
            if row["instance"].observed in {Observed.FAILED, Observed.EXITED, Observed.UNRESPONSIVE}
        ],
        "no_mtp": [row for row in rows if row["no_mtp"]],
        "outdated": [row for row in rows if row["outdated"]],
        "failed_builds": Build.objects.filter(state=Build.State.FAILED),
        "incomplete": ModelArtifact.objects.filter(complete=False),
        "waiting": waiting_jobs().count(),
        "silent": silent_hosts(),
        "running": [row for row in rows if row["instance"].observed not in Instance.RESTING],
        "first_profile": ServerProfile.objects.first(),
    }


def last_changes() -> list[dict[str, Any]]:
    """The newest audit rows."""
    return [
        {"entry": entry, "changes": changes_of(entry)} for entry in AuditEntry.objects.all()[:LAST_ENTRIES]
    ]
