"""Jobs: create, enqueue, claim, step, finish, cancel, reconcile. Only this module changes Job.state."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from celery import current_app
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish, publish_on_commit
from controlpanel.lib.text import N_
from controlpanel.lib.words import stored
from jobs.models import Host, Job
from jobs.registry import Canceled, Interrupted, JobKind, WorkFailed, WorkLost, kind_of
from jobs.runtime.procs import Proc, alive, this_process
from jobs.services.audit import Actor, record

logger = logging.getLogger(__name__)
REQUEUE_AFTER = timedelta(seconds=10)
ASK_EVERY = 0.5  # seconds between two looks of stop_reason() at the row
shutting_down = threading.Event()  # set when this worker got SIGTERM

State = Job.State


def create_job(
    actor: Actor, kind: str, host: Host, subject_kind: str, subject_id: object, params: dict[str, Any]
) -> Job:
    """Create a queued job and wake a worker once the transaction is committed."""
    job = Job.objects.create(
        kind=kind,
        host=host,
        subject_kind=subject_kind,
        subject_id=str(subject_id),
        params=params,
        actor=actor.user,
    )
    transaction.on_commit(lambda: enqueue(job))
    publish_on_commit("job", job.pk)
    return job


def enqueue(job: Job) -> bool:
    """Send the wake-up; False when the broker is away (reconcile sends it again later)."""
    kind = kind_of(job.kind)
    if kind is None:
        return False
    try:
        current_app.send_task(
            "jobs.tasks.run_job", (job.pk,), queue=f"host.{job.host.slug}.{kind.queue}", retry=False
        )
    except Exception as error:  # kombu raises many kinds; the row stays queued whatever it was
        logger.warning("job %s waits for the queue: %s", job.pk, error)
        return False
    # Not once a worker has taken it meanwhile: the column says that a wake-up waits to be taken.
    same = {"state": job.state, "owner_pid": job.owner_pid, "owner_start": job.owner_start}
    Job.objects.filter(pk=job.pk, **same).update(enqueued_at=timezone.now())
    return True


class Claimed:
    """A job owned by this worker; the runner's view of it."""

    def __init__(self, job: Job) -> None:
        self.row = job
        self.params: dict[str, Any] = job.params
        self._asked = 0.0
        self._reason: str | None = None

    @property
    def cursor(self) -> str:
        """The step at which the job stands ("" at its beginning)."""
        return self.row.step

    def remember(self, **values: Any) -> None:
        """Store parameters (JSON) before acting on them, so that a recovery finds them."""
        self.params.update(values)
        Job.objects.filter(pk=self.row.pk).update(params=self.params)

    def step(self, name: str) -> None:
        """Move the cursor to the step `name`, after looking whether the job should go on at all."""
        self.check()
        now = time.time()
        steps = self.row.steps
        if self.row.step != name:
            if steps and steps[-1]["ended_at"] is None:
                steps[-1]["ended_at"] = now
            steps.append({"name": name, "started_at": now, "ended_at": None})
            self.row.step, self.row.progress = name, {}
            Job.objects.filter(pk=self.row.pk).update(step=name, steps=steps, progress={})
            publish("job", self.row.pk)

    def progress(self, done: int, total: int, text: str, **more: float | None) -> None:
        """Store how far the step is, for pages; the same values again cost nothing."""
        found = {"done": done, "total": total, "text": text[:200], **more}
        if self.row.progress != found:
            self.row.progress = found
            Job.objects.filter(pk=self.row.pk).update(progress=found)
            publish("job", self.row.pk)

    def check(self) -> None:
        """Raise Interrupted when the worker shuts down, Canceled when a cancel was requested."""
        if shutting_down.is_set():
            raise Interrupted
        if Job.objects.filter(pk=self.row.pk, state=State.CANCELING).exists():
            raise Canceled

    def stop_reason(self) -> str | None:
        """Say why work that cannot raise is to end, None to go on; may be asked many times a second."""
        if shutting_down.is_set():
            return "shutdown"
        now = time.monotonic()
        if now - self._asked >= ASK_EVERY:
            self._asked = now
            state = Job.objects.filter(pk=self.row.pk).values_list("state", flat=True).first()
            self._reason = None if state == State.RUNNING else "canceled"
        return self._reason

    def wait(self, ready: Callable[[], bool], seconds: float, every: float = 0.1) -> bool:
        """Poll `ready` until it is true (True) or the seconds are over (False), checking at each turn."""
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                return False
            self.check()
            time.sleep(every)
        return True


def claim(job_id: int) -> Claimed | None:
    """Take a queued job, or one whose owner is dead; None when somebody else has it or it ended."""
    job = Job.objects.select_related("host").filter(pk=job_id, state__in=Job.ACTIVE).first()
    if job is None:
        return None
    me = this_process()
    mine = {"owner_boot": me.boot, "owner_pid": me.pid, "owner_start": me.start, "enqueued_at": None}
    if job.state == State.QUEUED:
        won = _take_queued(job, mine)
    else:
        owner = _owner(job)
        if owner is not None and alive(owner):
            return None
        won = Job.objects.filter(
            pk=job_id,
            state=job.state,
            owner_pid=job.owner_pid,
            owner_start=job.owner_start,
            owner_boot=job.owner_boot,
        ).update(**mine)
    if not won:
        return None
    job.refresh_from_db()
    publish("job", job.pk)
    return Claimed(job)


def _take_queued(job: Job, mine: dict[str, Any]) -> int:
    kind = kind_of(job.kind)
    with transaction.atomic():
        if kind is not None and kind.limit:
            # The lock makes counting and taking one step; SQLite's transactions are exclusive anyway.
            Host.objects.select_for_update().get(pk=job.host_id)
            same = Job.objects.filter(kind=job.kind, host=job.host)
            if same.filter(state__in=Job.OWNED).count() >= kind.limit:
                # Its wake-up is used up; the end of one of those that run sends the next.
                same.filter(pk=job.pk, state=State.QUEUED).update(enqueued_at=timezone.now())
                return 0
        return Job.objects.filter(pk=job.pk, state=State.QUEUED).update(
            state=State.RUNNING, started_at=timezone.now(), **mine
        )


def _wake_next(job: Job) -> None:
    kind = kind_of(job.kind)
    if kind is None or not kind.limit:
        return
    waiting = Job.objects.filter(kind=job.kind, host=job.host, state=State.QUEUED).order_by("pk").first()
    if waiting is not None:
        enqueue(waiting)


def execute(job_id: int) -> None:
    """Run a job to its end in this worker; any exception ends it as errored, never the worker."""
    claimed = claim(job_id)
    if claimed is None:
        return
    _run(claimed, kind_of(claimed.row.kind))
    _wake_next(claimed.row)


def _run(claimed: Claimed, kind: JobKind | None) -> None:
    job_id = claimed.row.pk
    try:
        if kind is None:
            raise WorkFailed(
                N_("This panel has no runner for jobs of the kind %(kind)s."), kind=claimed.row.kind
            )
        claimed.check()
        kind.runner.run(claimed)
    except Interrupted:
        logger.info("job %s is left for the next worker", job_id)
    except Canceled:
        if kind is not None:
            kind.runner.cancel(claimed)
        finish(claimed.row, State.CANCELED)
    except WorkFailed as error:
        finish(claimed.row, State.FAILED, stored(error.message))
    except WorkLost as error:
        finish(claimed.row, State.LOST, stored(error.message))
    except Exception as error:
        logger.exception("job %s", job_id)
        finish(claimed.row, State.ERRORED, f"{type(error).__name__}: {error}")
    else:
        finish(claimed.row, State.SUCCEEDED)


def finish(job: Job, state: str, error: str = "") -> bool:
    """End an active job; False when it had ended already."""
    steps = Job.objects.filter(pk=job.pk).values_list("steps", flat=True).first() or []
    if steps and steps[-1]["ended_at"] is None:
        steps[-1]["ended_at"] = time.time()
    won = Job.objects.filter(pk=job.pk, state__in=Job.ACTIVE).update(
        state=state, error=error, ended_at=timezone.now(), steps=steps
    )
    publish("job", job.pk)
    return bool(won)


def request_cancel(job: Job) -> None:
    """Ask a job to end: a queued one at once, a running one at its next check."""
    with transaction.atomic():
        if Job.objects.filter(pk=job.pk, state=State.QUEUED).update(
            state=State.CANCELED, ended_at=timezone.now()
        ):
            kind = kind_of(job.kind)
            if kind is not None:
                kind.runner.dropped(job)
            publish_on_commit("job", job.pk)
            return
    Job.objects.filter(pk=job.pk, state=State.RUNNING).update(state=State.CANCELING)
    publish_on_commit("job", job.pk)


def cancel_job(actor: Actor, job: Job) -> None:
    """Cancel a job as a person asks for it; Refused when it has ended or cannot be taken back."""
    kind = kind_of(job.kind)
    if not job.is_active:
        raise Refused(_("The job has ended already: it is %(state)s.") % {"state": job.get_state_display()})
    if kind is not None and kind.runner.keeps:
        raise Refused(_(kind.runner.keeps))
    with transaction.atomic():
        record(actor, "job.cancel", job, before={"state": job.state})
        if kind is None or not kind.runner.take_back(actor, job):
            request_cancel(job)


def reconcile(host: Host) -> int:
    """Wake workers for jobs that nobody works on; returns how many were enqueued."""
    stale = timezone.now() - REQUEUE_AFTER
    queued = Q(state=State.QUEUED, created_at__lt=stale) & (
        Q(enqueued_at__isnull=True) | Q(enqueued_at__lt=stale)
    )
    count = 0
    for job in Job.objects.select_related("host").filter(queued, host=host):
        count += enqueue(job)
    for job in Job.objects.select_related("host").filter(state__in=Job.OWNED, host=host):
        owner = _owner(job)
        if owner is None or not alive(owner):
            count += enqueue(job)
    return count


def _owner(job: Job) -> Proc | None:
    if job.owner_pid is None or job.owner_start is None:
        return None
    return Proc(job.owner_pid, job.owner_start, job.owner_boot)
