"""What the pages of the servers app show, read from the rows: for first renders and for live updates."""

import shlex
from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from controlpanel.llamacpp.meanings import MEANINGS
from jobs.models import Job, Run
from jobs.registry import Subject
from jobs.views.build_rows import diagnosis_card
from jobs.views.work import Wait, waits_by_subject
from servers.domain.policy import policy_of
from servers.models import Instance
from servers.services.instances import STOP, jobs_of, waits
from servers.services.readings import reading_of
from servers.views import upkeep
from servers.views.buttons import buttons_of
from servers.views.incident_rows import incidents_of
from servers.views.meters import running_meters
from servers.views.rail import BROKEN, Step, steps_of, total_seconds

Observed = Instance.Observed
PAST_RUNS = 10
LAST_INCIDENTS = 5
HEAVY = (
    "profile__build__capabilities",
    "profile__model__header",
    "profile__model__facts",
    "profile__mmproj__header",
    "profile__mmproj__facts",
    "run__log_tail",
    "first_failure__log_tail",
)


def instances() -> QuerySet[Instance]:
    """Return all instances with what a page shows; what takes much room and is not shown stays away."""
    rows = Instance.objects.select_related(
        "profile__build__host", "profile__model", "profile__mmproj", "run__host", "first_failure"
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
    servers = [server_row(instance, waiting) for instance in found]
    if running := [row for row in servers if not row["at_rest"]]:
        numbers = running_meters(row["profile"].pk for row in running)
        for row in running:
            row["meter"] = numbers[row["profile"].pk]
    return servers


def server_row(instance: Instance, waiting: dict[str, Wait]) -> dict[str, Any]:
    """One server with its facts and its buttons."""
    profile, at_rest = instance.profile, instance.observed in Instance.RESTING
    policy = policy_of(profile.policy)
    asked_mtp = profile.settings.get("speculation") == "mtp"
    unloaded = upkeep.unloaded(instance, policy)
    return {
        "instance": instance,
        "profile": profile,
        "policy": policy,
        "word": _("unloaded") if unloaded else instance.word,
        "why_unloaded": upkeep.why_unloaded(instance, policy) if unloaded else "",
        "loop": upkeep.loop_of(instance, policy),
        "pinned": instance.pinned and policy.idle_min is not None,
        "facts": instance.facts,
        "asked_mtp": asked_mtp,
        "no_mtp": asked_mtp and instance.facts.get("mtp") is False and not at_rest,
        "outdated": not at_rest and instance.revision != profile.revision,
        "wait": waiting.get(str(instance.pk)),
        "at_rest": at_rest,
        "buttons": buttons_of(instance),
    }


def server_context(instance: Instance) -> dict[str, Any]:
    """One server's page."""
    run, row = instance.run, server_row(instance, waits_by_subject("instance"))
    edit = reverse("profile-edit", args=[instance.profile_id])
    runs = list(Run.objects.filter(subject_kind="instance", subject_id=str(instance.pk))[:PAST_RUNS])
    steps, preflight = steps_of(instance), upkeep.preflight_of(instance)
    diagnoses = _diagnoses(instance, row["no_mtp"])
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
        "steps": steps,
        "preflight": preflight,
        "broken": _broken(instance, steps, preflight, diagnoses),
        "failures": upkeep.failures_of(instance, runs) if row["loop"] else None,
        "policy_rows": upkeep.policy_rows(row["policy"]),
        "vram": upkeep.vram_of(instance),
        "draining": draining(instance),
        "diagnoses": diagnoses,
        "change_href": f"{edit}?change={run.pk if run else ''}",
        "reading": reading_of(run) if run else None,
        "command": shlex.join(run.argv) if run and run.argv else "",
        "runs": runs,
        "incidents": incidents_of(instance, LAST_INCIDENTS),
    }


def _diagnoses(instance: Instance, no_mtp: bool) -> list[dict[str, Any]]:
    """Return why the server failed, or why it runs without MTP, the best cause first."""
    run = instance.run
    if run is None or not (instance.observed in BROKEN or no_mtp):
        return []
    return [diagnosis_card(item) for item in run.diagnosis]


def _broken(
    instance: Instance, steps: list[Step], preflight: dict[str, Any] | None, diagnoses: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """Return the step at which the last start failed, with the cause and where the page tells more of it."""
    step = next((step for step in steps if step.status == "failed"), None)
    if step is None:
        return None
    if preflight and preflight["stops"]:
        return {"step": step, "cause": preflight["stops"], "anchor": f"preflight-{instance.profile_id}"}
    if diagnoses:
        return {"step": step, "cause": diagnoses[0]["title"], "anchor": f"why-{instance.profile_id}"}
    return None


def draining(instance: Instance) -> dict[str, int] | None:
    """Return {"busy"}, the requests that a stop waits for (0: not known), or None when none waits."""
    if instance.observed != Observed.STOPPING:
        return None
    stops = jobs_of(instance, STOP).filter(state__in=Job.ACTIVE)
    job = next((row for row in stops if waits(row)), None)
    return {"busy": int(job.progress.get("busy") or 0)} if job else None
