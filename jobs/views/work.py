"""What is being done: active jobs, how long they wait and for what, and the strip on top of each page."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from jobs.models import Host, Job
from jobs.registry import Subject, kind_of, subjects_of

WAITS_AFTER = timedelta(seconds=3)  # a queued job that nobody took within this time waits
UNSEEN_AFTER = timedelta(seconds=15)  # three heartbeats of an agent
FAILURE_STAYS = timedelta(minutes=10)  # in the strip, unless its subject was worked on again
FINISHED_STAYS = timedelta(seconds=4)
FAILED = (Job.State.FAILED, Job.State.ERRORED, Job.State.LOST)
STRIP_ROWS = 50


@dataclass(frozen=True)
class Wait:
    """Why a queued job is not taken: `behind` jobs come first, or (0) queue or worker are away."""

    behind: int


def silent_hosts() -> list[Host]:
    """Return the hosts whose agent has not been seen for some heartbeats."""
    limit = timezone.now() - UNSEEN_AFTER
    return [host for host in Host.objects.all() if host.agent_seen_at is None or host.agent_seen_at < limit]


def active_jobs() -> list[Job]:
    """Return the jobs that have not ended, oldest first."""
    rows = Job.objects.filter(state__in=Job.ACTIVE).select_related("host", "actor").order_by("pk")
    return list(rows.defer("params"))


def waits(active: Iterable[Job]) -> dict[int, Wait]:
    """Return why each of the active jobs (oldest first) waits that waits for long, by its key.

    A worker that does jobs of the same queue is only busy. A job for which a wake-up had to be sent although
    it has an owner has lost that worker; a queued one without a wake-up was never told to the broker.
    """
    late = timezone.now() - WAITS_AFTER
    busy: dict[tuple[int, str], int] = {}
    before: dict[tuple[int, str], int] = {}
    found: dict[int, Wait] = {}
    jobs = list(active)
    for job in jobs:
        if job.state in Job.OWNED and job.enqueued_at is None:
            busy[_queue(job)] = busy.get(_queue(job), 0) + 1
    for job in jobs:
        if job.state != Job.State.QUEUED:
            continue
        queue = _queue(job)
        if job.created_at < late:
            told = job.enqueued_at is not None and queue in busy
            found[job.pk] = Wait(busy[queue] + before.get(queue, 0) if told else 0)
        before[queue] = before.get(queue, 0) + 1
    return found


def waits_by_subject(kind: str) -> dict[str, Wait]:
    """Return the waits of subjects of one kind: those whose newest active job waits, by their key."""
    active = active_jobs()
    found = waits(active)
    newest = {job.subject_id: job.pk for job in active if job.subject_kind == kind}
    return {subject: found[pk] for subject, pk in newest.items() if pk in found}


def waiting_count() -> int:
    """Return how many jobs wait for the queue or the worker to be back."""
    return sum(1 for wait in waits(active_jobs()).values() if not wait.behind)


def title_of(job: Job) -> str:
    """Return in words what a job does."""
    kind = kind_of(job.kind)
    return _(kind.title) if kind else job.kind


def job_row(job: Job, subjects: dict[tuple[str, str], Subject], wait: Wait | None) -> dict[str, Any]:
    """One job as a page shows it; `seconds` is None while it runs, `since` the moment at which it began."""
    kind = kind_of(job.kind)
    running = job.state in Job.OWNED and job.started_at is not None
    ended = job.ended_at is not None and job.started_at is not None
    keeps = kind.runner.keeps if kind else ""
    return {
        "job": job,
        "title": title_of(job),
        "subject": subjects.get((job.subject_kind, job.subject_id)),
        "wait": wait,
        "since": f"{job.started_at.timestamp():.3f}" if running and job.started_at else "",
        "seconds": (job.ended_at - job.started_at).total_seconds() if ended else None,  # type: ignore[operator]
        "keeps": _(keeps) if keeps else "",
    }


def strip_context() -> dict[str, Any]:
    """What the strip says: the one operation that matters most, and how many more there are.

    A failure comes before what waits for the queue, that before what runs, that before what has just ended.
    """
    active = active_jobs()
    waiting = waits(active)
    recent = _recent()
    failed = [job for job in recent if job.state in FAILED]
    stuck = [job for job in active if job.pk in waiting and not waiting[job.pk].behind]
    running = sorted((job for job in active if job.state in Job.OWNED), key=_weight)
    others = [job for job in active if job.state == Job.State.QUEUED and job not in stuck]
    done = [job for job in recent if job.state == Job.State.SUCCEEDED]
    order = [*failed, *stuck, *running, *others, *done]
    context: dict[str, Any] = {"silent": silent_hosts(), "waiting": len(stuck), "more": len(order) - 1}
    if order:
        first = order[0]
        context |= job_row(first, subjects_of([first]), waiting.get(first.pk))
        context["tone"] = "failed" if failed else "stuck" if stuck else "done" if first in done else "active"
        if stuck and not failed:
            context["more"] = len(order) - len(stuck)
    return context


def _recent() -> list[Job]:
    """Return failures that nobody has answered by another try, and what has just ended well; newest first."""
    now = timezone.now()
    again = Job.objects.filter(
        subject_kind=OuterRef("subject_kind"), subject_id=OuterRef("subject_id"), pk__gt=OuterRef("pk")
    )
    failed = Q(state__in=FAILED, ended_at__gt=now - FAILURE_STAYS) & ~Q(Exists(again))
    done = Q(state=Job.State.SUCCEEDED, ended_at__gt=now - FINISHED_STAYS)
    rows = Job.objects.filter(failed | done).select_related("host", "actor").defer("params")
    return list(rows.order_by("-ended_at", "-pk")[:STRIP_ROWS])


def _queue(job: Job) -> tuple[int, str]:
    """Return what jobs wait for together: threads of a pool, or the end of others of a limited kind."""
    kind = kind_of(job.kind)
    return job.host_id, (job.kind if kind.limit else kind.queue) if kind else ""


def _weight(job: Job) -> tuple[bool, int]:
    """Sort long work (builds, downloads) before launches and stops, each oldest first."""
    kind = kind_of(job.kind)
    return (kind is None or kind.queue != "work", job.pk)
