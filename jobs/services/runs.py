"""Runs: create the row, spawn under a shim, notice the end. Only this module changes Run.state."""

import logging
from collections.abc import Callable
from contextlib import suppress

from django.utils import timezone

from controlpanel.lib.streams import publish
from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import stored
from jobs.adapters import cgroups
from jobs.adapters import runs as folders
from jobs.adapters.runlog import log_end
from jobs.adapters.runs import RunSpec, RunStatus, StartedBefore
from jobs.adapters.trim import free_head
from jobs.models import Host, Run

logger = logging.getLogger(__name__)
TAIL = 64 * 1024  # bytes of the log kept on the row

ORPHANED = N_("Its shim was killed; the panel watches the process itself.")
LOST = N_("Its shim was gone when the process ended: the exit code is not known.")
REBOOTED = N_("The host was restarted while the process ran.")

OnEnd = Callable[[Run], None]
_on_end: dict[str, OnEnd] = {}


def register_run_kind(kind: str, on_end: OnEnd) -> None:
    """Name the function that is called (on the run's host) once a run of this kind has ended."""
    _on_end[kind] = on_end


def create_run(host: Host, kind: str, subject_kind: str, subject_id: object) -> Run:
    """Create the row of a run; the process comes with spawn()."""
    return Run.objects.create(host=host, kind=kind, subject_kind=subject_kind, subject_id=str(subject_id))


def spawn(run: Run, spec: RunSpec) -> None:
    """Start the run's process under its shim unless it was started already; raise SpawnError with words."""
    if folders.inspect(run.pk).status == "missing":
        run.memory_mib = spec.memory_mib
        Run.objects.filter(pk=run.pk).update(argv=spec.argv, memory_mib=spec.memory_mib)
        # A worker killed right here has started it already: then the folder tells how it stands.
        with suppress(StartedBefore):
            folders.spawn(run.pk, spec)
    observe(run)


def observe(run: Run) -> RunStatus:
    """Read the run's folder and bring the row up to it; calls the kind's on_end at the end."""
    status = folders.inspect(run.pk)
    if status.status in {"running", "orphaned"}:
        note = "" if status.status == "running" else stored(Message(ORPHANED))
        changed = Run.objects.filter(pk=run.pk, state=Run.State.CREATED).update(
            state=Run.State.RUNNING, started_at=timezone.now(), pid=status.child.pid if status.child else None
        )
        changed += Run.objects.filter(pk=run.pk, state=Run.State.RUNNING).exclude(note=note).update(note=note)
        if changed:
            publish("run", run.pk)
    elif status.status in {"exited", "lost"} or run.state == Run.State.RUNNING:
        _end(run, status)
    return status


def abandon(run: Run, why: Message) -> None:
    """End a run whose process was never spawned."""
    cgroups.remove(run.pk)
    if Run.objects.filter(pk=run.pk, state=Run.State.CREATED).update(
        state=Run.State.LOST, note=stored(why), ended_at=timezone.now()
    ):
        publish("run", run.pk)


def limit_memory(run: Run, mib: int | None) -> None:
    """Change the main memory that a run may take; the agent's next look at the host's memory goes by it."""
    Run.objects.filter(pk=run.pk, state__in=Run.ACTIVE).update(memory_mib=mib)


def end_over_memory(run: Run, limit_mib: int, used_mib: int) -> None:
    """Kill a run that took more main memory than it may; for all others that is a failure, no stop."""
    over = {"limit_mib": limit_mib, "used_mib": used_mib}
    if Run.objects.filter(pk=run.pk, state=Run.State.RUNNING, over_memory={}).update(over_memory=over):
        logger.warning("run %s took %d MiB of main memory, its limit is %d MiB", run.pk, used_mib, limit_mib)
        publish("run", run.pk)
    folders.kill(run.pk, asked=False)


def active_runs(host_slug: str) -> list[Run]:
    """Return the runs of a host that have not ended, oldest first."""
    return list(
        Run.objects.select_related("host")
        .filter(host__slug=host_slug, state__in=Run.ACTIVE)
        .order_by("created_at")
    )


def trim_log(run: Run, limit: int) -> None:
    """Free the head of the run's log once its text is longer than `limit` bytes; three quarters are kept."""
    path = folders.log_path(run.pk)
    try:
        if path.stat().st_size - run.log_start <= limit:
            return
        start = free_head(path, run.log_start, limit * 3 // 4)
    except OSError as error:
        logger.warning("the log of run %s cannot be shortened: %s", run.pk, error)
        return
    Run.objects.filter(pk=run.pk, log_start__lt=start).update(log_start=start)
    publish("run", run.pk)


def _end(run: Run, status: RunStatus) -> None:
    note = status.error
    # What the folder says of a lost run is meant for logs: it has one language.
    if status.status == "lost" or (not note and status.exit_code is None):
        note = stored(Message(REBOOTED if status.rebooted else LOST))
    won = Run.objects.filter(pk=run.pk, state__in=Run.ACTIVE).update(
        state=Run.State.EXITED if status.status == "exited" else Run.State.LOST,
        exit_code=status.exit_code,
        stop_requested=status.stop_requested,
        note=note,
        log_tail=log_end(run.pk, TAIL)[1].decode("utf-8", "replace").replace("\0", ""),
        ended_at=timezone.now(),
        **_over_memory(run),
    )
    cgroups.remove(run.pk)
    if not won:
        return
    run.refresh_from_db()
    publish("run", run.pk)
    hook = _on_end.get(run.kind)
    if hook is not None:
        hook(run)


def _over_memory(run: Run) -> dict[str, dict[str, int]]:
    """Return the column that tells that the kernel ended the run for its limit, nothing when it did not."""
    if run.memory_mib is None or not cgroups.killed(run.pk):
        return {}
    # The group's own limit has room for mapped files too: what the run itself held is known to reach its own.
    return {"over_memory": {"limit_mib": run.memory_mib, "used_mib": run.memory_mib}}
