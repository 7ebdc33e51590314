"""What the pages of builds show, read from the rows: for first renders and for live updates."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, QuerySet, Sum
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlpanel.lib.words import translate
from controlpanel.llamacpp.rule_types import Diagnosis
from jobs.domain.buildcheck import differences
from jobs.domain.buildspec import BuildInputs
from jobs.models import Build, Job, Repository, Run
from jobs.services.building import MAKE
from jobs.services.builds import capabilities_of
from jobs.views.work import Wait, waits_by_subject

STEPS = {
    "fetch": gettext_lazy("fetch"),
    "checkout": gettext_lazy("checkout"),
    "configure": gettext_lazy("configure"),
    "compile": gettext_lazy("compile"),
    "install": gettext_lazy("install"),
    "probe": gettext_lazy("probe"),
}
FIELDS = {
    "repository": gettext_lazy("Repository"),
    "local": gettext_lazy("Folder of this host"),
    "ref": gettext_lazy("Branch, tag or commit"),
    "backend": gettext_lazy("Backend"),
    "architectures": gettext_lazy("CUDA architectures"),
    "nvcc": gettext_lazy("CUDA compiler"),
    "host_compiler": gettext_lazy("Host compiler"),
    "jobs": gettext_lazy("Parallel jobs"),
    "targets": gettext_lazy("Programs"),
    "fa_quants": gettext_lazy("Flash attention quants"),
    "native": gettext_lazy("This machine's own processor"),
    "ccache": gettext_lazy("Compiler cache"),
    "definitions": gettext_lazy("CMake definitions"),
}


@dataclass(frozen=True)
class Step:
    """One step of a build; `run` is the key of its log, "" without one, `done` of `total` how far it is."""

    name: str
    word: Any
    status: str  # done, now, failed, stopped, ahead
    seconds: float | None = None
    since: str = ""
    run: str = ""
    done: int = 0
    total: int = 0
    text: str = ""


def builds() -> QuerySet[Build]:
    """Return all builds with what a page shows of them."""
    rows = Build.objects.select_related("host", "config__repository", "created_by")
    return rows.prefetch_related("profiles", "known_good_revisions__profile")


def topic_arg(build: Build, step: str) -> str:
    """Return what a page of one build follows: the build, or the build with the step whose log is shown."""
    return f"{build.pk}-{step}" if step else str(build.pk)


def build_of_topic(arg: str) -> tuple[Build | None, str]:
    """Return the build and the step that topic_arg() wrote."""
    pk, _dash, step = arg.partition("-")
    return builds().filter(pk=int(pk)).first(), step


def build_rows(found: list[Build], capabilities: dict[int, Any]) -> list[dict[str, Any]]:
    """Builds with their jobs, waits and sources, read once for all of them."""
    jobs, waiting, names = make_jobs(found), waits_by_subject("build"), repository_names()
    return [
        build_row(build, jobs.get(build.pk), waiting, names) | {"capabilities": capabilities.get(build.pk)}
        for build in found
    ]


def config_rows(configs: list[Any]) -> list[dict[str, Any]]:
    """Build configs with the last build of each, read once for all of them."""
    lasts = Build.objects.only("pk", "name", "state").in_bulk([row.last_pk for row in configs if row.last_pk])
    return [
        {"config": config, "last": lasts.get(config.last_pk), "chips": chips_of(config.inputs())}
        for config in configs
    ]


def build_row(
    build: Build, job: Job | None, waiting: dict[str, Wait], names: dict[str, str]
) -> dict[str, Any]:
    """One build with what its row and its page have in common."""
    inputs = BuildInputs.from_dict(build.inputs) if build.made_here else None
    working = build.state in Build.WORKING
    profiles = list(build.profiles.all())
    ended = job is not None and job.started_at is not None and job.ended_at is not None
    running = job is not None and job.state in Job.OWNED and job.started_at is not None
    return {
        "build": build,
        "inputs": inputs,
        "source": source_of(build, inputs, names) if inputs else None,
        "chips": chips_of(inputs) if inputs else [],
        "profiles": profiles,
        "job": job,
        "working": working,
        "wait": waiting.get(str(build.pk)),
        "step": current_step(job) if working else None,
        "since": f"{job.started_at.timestamp():.3f}" if job and job.started_at and running else "",
        "seconds": (job.ended_at - job.started_at).total_seconds() if ended else None,  # type: ignore[union-attr, operator]
        "keeps": why_kept(build, profiles),
        "stuck": "" if build.config else _("Its build config was deleted."),
    }


def make_jobs(builds: list[Build]) -> dict[int, Job]:
    """Return the job that makes or made each of the builds, by the build's key."""
    keys = [str(build.pk) for build in builds if build.made_here]
    rows = Job.objects.filter(kind=MAKE, subject_kind="build", subject_id__in=keys).order_by("pk")
    return {int(job.subject_id): job for job in rows.select_related("actor")}


def repository_names() -> dict[str, str]:
    """Return how the registered repositories are called, by their addresses."""
    return dict(Repository.objects.values_list("url", "name"))


def source_of(build: Build, inputs: BuildInputs, names: dict[str, str]) -> dict[str, str]:
    """Return what a build is made of: repository, ref and commit."""
    return {
        "name": names.get(inputs.repository) or short_name(inputs.repository),
        "url": inputs.repository,
        "ref": inputs.ref,
        "commit": build.source_commit,
    }


def short_name(url: str) -> str:
    """Return the last part of an address or a path."""
    return url.rstrip("/").rpartition("/")[2].removesuffix(".git") or url


def chips_of(inputs: BuildInputs) -> list[str]:
    """Return the options of a build in brief: backend, architectures, what differs from the usual."""
    names = {"cuda": "CUDA", "cpu": "CPU", "vulkan": "Vulkan", "hip": "HIP"}
    chips = [names.get(inputs.backend, inputs.backend)]
    if inputs.backend == "cuda" and inputs.architectures:
        chips.append(_("for %(list)s") % {"list": ", ".join(inputs.architectures)})
    if inputs.fa_quants:
        chips.append(_("FA %(quants)s") % {"quants": inputs.fa_quants})
    if not inputs.native:
        chips.append(_("portable"))
    return [*chips, *(f"{key}={value}" for key, value in inputs.definitions)]


def why_kept(build: Build, profiles: list[Any]) -> str:
    """Return why a build cannot be deleted now, "" when it can."""
    if profiles:
        names = ", ".join(profile.name for profile in profiles)
        return _("Profiles use this build: %(names)s.") % {"names": names}
    kept = build.known_good_revisions.all()
    if kept:
        names = ", ".join(str(revision) for revision in kept)
        return _("These known-good revisions use it: %(names)s.") % {"names": names}
    if build.state in Build.WORKING:
        return _("Work on this build goes on: it is %(state)s.") % {"state": build.word}
    return ""


def current_step(job: Job | None) -> Step | None:
    """Return the step at which a job stands, None before it was begun."""
    if job is None:
        return None
    return next((step for step in steps_of(job, {}) if step.status == "now"), None)


def steps_of(job: Job, runs: dict[str, str]) -> list[Step]:
    """Return all steps of a build's job, those that lie ahead too; `runs` are the keys of their logs."""
    taken = {step["name"]: step for step in job.steps}
    found = []
    for name, word in STEPS.items():
        entry = taken.get(name)
        if entry is None:
            found.append(Step(name, word, "ahead"))
            continue
        begun, ended = entry["started_at"], entry["ended_at"]
        status, since = "done", ""
        if name == job.step and job.is_active:
            status, since = "now", f"{begun:.3f}"
        elif name == job.step and job.state != Job.State.SUCCEEDED:
            status = "stopped" if job.state == Job.State.CANCELED else "failed"
        progress = job.progress if name == job.step else {}
        found.append(
            Step(
                name,
                word,
                status,
                seconds=ended - begun if ended is not None else None,
                since=since,
                run=runs.get(name, ""),
                done=int(progress.get("done") or 0),
                total=int(progress.get("total") or 0),
                text=str(progress.get("text") or ""),
            )
        )
    return found


def build_context(build: Build, step: str = "") -> dict[str, Any]:
    """One build's page; `step` names the step whose log is shown, "" follows the work."""
    job = make_jobs([build]).get(build.pk)
    row = build_row(build, job, waits_by_subject("build"), repository_names())
    runs: dict[str, str] = (job.params.get("runs") or {}) if job else {}
    asked = runs.get(step, "")
    key = asked or (last_run(job, runs) if job else "")
    diagnoses = [diagnosis_card(item) for item in build.diagnosis]
    shown = Run.objects.filter(pk=key).first() if key else None
    word = next((STEPS[name] for name, run in runs.items() if run == key and name in STEPS), "")
    return {
        **row,
        "self": row,
        "part": f"build-{build.pk}",
        "more_part": f"build-more-{build.pk}",
        "step_word": word,
        "capabilities": capabilities_of(build) if build.capabilities else None,
        "steps": steps_of(job, runs) if job else [],
        "step_shown": step if asked else "",
        "run": shown,
        "diagnoses": diagnoses,
        "change_href": change_href(build),
        "input_rows": input_rows(row["inputs"]) if row["inputs"] else [],
        "changed": config_changes(build, row["inputs"]) if row["inputs"] else [],
    }


def change_href(build: Build) -> str:
    """Return the address of the form that shows the build's inputs with what its diagnosis changes."""
    if build.config is None:
        return f"{reverse('config-new')}?change={build.pk}"
    return f"{reverse('config-edit', args=[build.config.pk])}?change={build.pk}"


def last_run(job: Job, runs: dict[str, str]) -> str:
    """Return the log that a page follows: that of the current step, else of the last one that has a log."""
    return runs.get(job.step) or next((runs[name] for name in reversed(STEPS) if name in runs), "")


def diagnosis_card(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored diagnosis in the reader's language."""
    found = Diagnosis.from_json(stored)
    log = reverse("run-log", args=[stored["run"]])
    return {
        "title": translate(found.title),
        "remedy": translate(found.remedy),
        "evidence": [(item, f"{log}?at={item.offset}") for item in found.evidence],
        "change": found.change,
    }


def input_rows(inputs: BuildInputs) -> list[tuple[Any, str]]:
    """Return what a build is made from, as words; what was left to the defaults is left out."""
    found = []
    for key, value in inputs.to_dict().items():
        if isinstance(value, bool):
            if key != "local" and not value:
                found.append((FIELDS[key], _("no")))
        elif value not in ("", 0, ()):
            found.append((FIELDS[key], written(key, value)))
    return found


def written(key: str, value: Any) -> str:
    """Return an input as one text."""
    if key == "definitions":
        return " ".join(f"{name}={text}" for name, text in value)
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def config_changes(build: Build, inputs: BuildInputs) -> list[dict[str, Any]]:
    """Return in what the build's config of now differs from what the build was made from."""
    if build.config is None:
        return []
    return [
        {"field": FIELDS.get(field, field), "before": before, "after": after}
        for field, before, after in differences(inputs, build.config.inputs())
    ]


def disk_context() -> dict[str, Any]:
    """How many builds lie on the disk, and how much room they take; in bytes."""
    made = Build.objects.filter(size__isnull=False)
    return {"disk": made.aggregate(number=Count("pk"), size=Sum("size"))}
