"""What the pages of the servers app show, read from the rows: for first renders and for live updates."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from controlpanel.llamacpp.meanings import MEANINGS
from jobs.models import Build, Job, Run
from jobs.registry import Subject
from jobs.views.build_rows import diagnosis_card
from jobs.views.work import Wait, waits_by_subject
from servers.models import Instance
from servers.services.instances import STOP, jobs_of, waits
from servers.services.readings import reading_of

Observed = Instance.Observed
PAST_RUNS = 10
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
HEAVY = (
    "profile__build__capabilities",
    "profile__model__header",
    "profile__model__facts",
    "profile__mmproj__header",
    "profile__mmproj__facts",
    "run__log_tail",
)
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
    """One action on a server; `reason` says why it cannot be done now, "" when it can.

    `question` is asked first; `ask` is the address that words it for this moment.
    """

    name: str
    label: str
    icon: str
    reason: str
    href: str
    question: str = ""
    ask: str = ""


def instances() -> QuerySet[Instance]:
    """Return all instances with what a page shows; what takes much room and is not shown stays away."""
    rows = Instance.objects.select_related(
        "profile__build__host", "profile__model", "profile__mmproj", "run__host"
    )
    return rows.defer(*HEAVY)


def server_subjects(keys: set[str]) -> dict[str, Subject]:
    """Find the servers that jobs are about, by the keys of their instances."""
    found = Instance.objects.filter(pk__in=[key for key in keys if key.isdigit()])
    return {
        str(pk): Subject(name, reverse("server-detail", args=[profile]))
        for pk, profile, name in found.values_list("pk", "profile_id", "profile__name")
    }


def server_rows(found: Iterable[Instance]) -> list[dict[str, Any]]:
    """Servers with what each of their jobs waits for, read once for all of them."""
    waiting = waits_by_subject("instance")
    return [server_row(instance, waiting) for instance in found]


def server_row(instance: Instance, waiting: dict[str, Wait]) -> dict[str, Any]:
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
        "wait": waiting.get(str(instance.pk)),
        "at_rest": instance.observed in Instance.RESTING,
        "buttons": buttons_of(instance),
    }


def server_context(instance: Instance) -> dict[str, Any]:
    """One server's page."""
    run, row = instance.run, server_row(instance, waits_by_subject("instance"))
    edit = reverse("profile-edit", args=[instance.profile_id])
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
        "draining": draining(instance),
        "diagnoses": _diagnoses(instance),
        "change_href": f"{edit}?change={run.pk if run else ''}",
        "reading": reading_of(run) if run else None,
        "command": shlex.join(run.argv) if run and run.argv else "",
        "runs": Run.objects.filter(subject_kind="instance", subject_id=str(instance.pk))[:PAST_RUNS],
    }


def _diagnoses(instance: Instance) -> list[dict[str, Any]]:
    """Return why the server failed, the best cause first; none once it was started again."""
    if instance.observed != Observed.FAILED or instance.run is None:
        return []
    return [diagnosis_card(item) for item in instance.run.diagnosis]


def draining(instance: Instance) -> dict[str, int] | None:
    """Return {"busy"}, the requests that a stop waits for (0: not known), or None when none waits."""
    if instance.observed != Observed.STOPPING:
        return None
    stops = jobs_of(instance, STOP).filter(state__in=Job.ACTIVE)
    job = next((row for row in stops if waits(row)), None)
    return {"busy": int(job.progress.get("busy") or 0)} if job else None


def buttons_of(instance: Instance) -> list[Button]:
    """Start, Restart and Stop, each with the reason why it cannot be done now."""
    profile, build = instance.profile, instance.profile.build
    word = instance.word
    start = stop = ""
    if instance.observed not in Instance.RESTING:
        start = _("The server is %(state)s already.") % {"state": word}
    elif build.state != Build.State.READY:
        start = _("The build %(name)s is not ready: it is %(state)s.") % {
            "name": build.name,
            "state": build.word,
        }
    if instance.observed not in Instance.ALIVE:
        stop = _("The server is not running: it is %(state)s.") % {"state": word}
    page = reverse("server-detail", args=[profile.pk])
    return [
        Button("start", _("Start"), "ti-player-play", start, f"{page}start/"),
        _asking("restart", _("Restart"), "ti-refresh", stop, page, profile.name),
        _asking("stop", _("Stop"), "ti-player-stop", stop, page, profile.name),
    ]


def _asking(name: str, label: str, icon: str, reason: str, page: str, profile: str) -> Button:
    if reason:
        return Button(name, label, icon, reason, f"{page}{name}/")
    ask = f"{page}question/?do={name}"
    return Button(name, label, icon, "", f"{page}{name}/", question(profile, name, 0), ask)


def question(name: str, action: str, busy: int | None) -> str:
    """Return what is asked before a stop or restart; `busy` requests are in flight, None: nobody knows."""
    first = _("Restart the server %(name)s?") if action == "restart" else _("Stop the server %(name)s?")
    if busy is None:
        rest = _("The server does not say whether requests are in flight.")
    elif busy:
        rest = ngettext(
            "%(number)d request is in flight.",
            "%(number)d requests are in flight.",
            busy,
        ) % {"number": busy}
    else:
        rest = ""
    return f"{first % {'name': name}} {rest}".rstrip()


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
