"""One step of a build as a run under its shim: started, followed, gone on with, ended."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controlpanel.lib.text import N_, Message
from jobs.adapters import buildtree, runlog
from jobs.adapters import runs as folders
from jobs.adapters.runs import RunSpec, RunStatus, SpawnError, inherited
from jobs.domain.buildspec import BuildInputs
from jobs.domain.mending import facts
from jobs.domain.mirror import ENVIRONMENT
from jobs.domain.progress import Progress
from jobs.models import Build, Run
from jobs.registry import WorkFailed, WorkLost
from jobs.runtime.procs import boot_id
from jobs.services import runs
from jobs.services.diagnosing import diagnose_run
from jobs.services.jobs import Claimed
from jobs.services.toolchains import toolchain_of

RUN_KIND = "build"
AREA = "build"
GRACE = 5.0  # seconds between SIGTERM and SIGKILL
ATTEMPTS = 5  # at a step whose end nobody could note
LOOK_EVERY = 0.5  # seconds
MEASURE_EVERY = 5.0  # seconds
SPARE = 256 * 1024**2  # bytes of disk that a build leaves free
MIRROR_LIMIT = 20 * 1024**3  # bytes

DISK_FULL = Message(
    N_("The disk is nearly full: the build was stopped. Free some space, or delete old builds.")
)
TOO_LARGE = Message(N_("The repository is larger than 20 GiB: this is no llama.cpp."))
TOO_LONG = Message(N_("The step took too long and was stopped."))
REBOOTED = N_("The host was restarted in the middle of the build. Build again.")
FOLDER_GONE = N_("The folder of the run %(run)s is gone. Build again.")
ENDS_UNKNOWN = N_("The step %(step)s was ended %(number)s times, and nobody could note how. Build again.")
NOT_STARTED = N_("The step %(step)s could not be started: %(why)s")
FAILED = N_("The step %(step)s failed with exit code %(code)s.")
KILLED = N_("The step %(step)s was ended by signal %(signal)s.")
DIAGNOSED_AS = N_("The step %(step)s failed: %(cause)s")


@dataclass(frozen=True)
class Step:
    """A command of a build. `prepare` clears away what an attempt left; `grows` is watched for its size."""

    name: str
    argv: list[str]
    prepare: Callable[[], None] | None
    seconds: float
    progress: Callable[[list[str]], Progress | None] | None = None
    grows: Path | None = None


def environment() -> dict[str, str]:
    """Return what commands of a build see: no settings of a person, English words, a shared ccache."""
    return inherited(os.environ, proxy=True) | _own()


def run_step(job: Claimed, build: Build, step: Step, cwd: Path) -> None:
    """Do a step unless it is done; WorkFailed with its diagnosis, WorkLost when its run cannot be found."""
    if _done(job, step):
        return
    job.step(step.name)
    for _attempt in range(ATTEMPTS):
        run = _run_of(job, build, step)
        status = _spawn(run, step, cwd)
        status = _follow(job, run, step, status)
        if status.exit_code == 0:
            return
        if status.status == "missing":
            run.refresh_from_db()
            runs.observe(run)  # by now its row says that it ran
            raise WorkLost(FOLDER_GONE, run=run.pk)
        if status.status == "lost" and status.shim is not None and status.shim.boot != boot_id():
            raise WorkLost(REBOOTED)
        if status.exit_code is not None or status.error and status.status == "exited":
            raise _failure(build, run, step, status)
        # Its shim was killed, so nobody knows how it ended: commands of a build can be given twice.
        _remember(job, step.name, None)
    raise WorkFailed(ENDS_UNKNOWN, step=Message(step.name), number=ATTEMPTS)


def end_runs(job: Claimed) -> None:
    """End whatever runs for the job, with all processes it started."""
    for run in Run.objects.filter(pk__in=job.params.get("runs", {}).values(), state__in=Run.ACTIVE):
        _end(run)


def _done(job: Claimed, step: Step) -> bool:
    known = job.params.get("runs", {}).get(step.name)
    return bool(known) and folders.inspect(known).exit_code == 0


def _run_of(job: Claimed, build: Build, step: Step) -> Run:
    known = job.params.get("runs", {}).get(step.name)
    run = Run.objects.select_related("host").filter(pk=known).first() if known else None
    if run is None:
        run = runs.create_run(build.host, RUN_KIND, "build", build.pk)
        _remember(job, step.name, run.pk)
    return run


def _remember(job: Claimed, step: str, run_id: str | None) -> None:
    known = {name: pk for name, pk in job.params.get("runs", {}).items() if name != step}
    job.remember(runs=known | ({step: run_id} if run_id else {}))


def _spawn(run: Run, step: Step, cwd: Path) -> RunStatus:
    status = folders.inspect(run.pk)
    if status.status != "missing":
        return status
    if run.state != Run.State.CREATED:
        raise WorkLost(FOLDER_GONE, run=run.pk)
    if step.prepare is not None:
        step.prepare()
    spec = RunSpec(argv=step.argv, cwd=str(cwd), env=_own(), grace=GRACE, proxy=True)
    try:
        runs.spawn(run, spec)
    except SpawnError as error:
        runs.abandon(run, Message(NOT_STARTED, {"step": Message(step.name), "why": error}))
        raise WorkFailed(NOT_STARTED, step=Message(step.name), why=error) from error
    return folders.inspect(run.pk)


def _own() -> dict[str, str]:
    return {**ENVIRONMENT, "CCACHE_DIR": str(buildtree.ccache_folder()), "TERM": "dumb"}


def _follow(job: Claimed, run: Run, step: Step, status: RunStatus) -> RunStatus:
    began = status.started_at or time.time()
    measured = 0.0
    while status.status in {"running", "orphaned"}:
        job.check()
        if step.progress is not None:
            found = step.progress(runlog.last_lines(run.pk))
            if found is not None:
                job.progress(found.done, found.total, found.text)
        if time.monotonic() - measured >= MEASURE_EVERY:
            measured = time.monotonic()
            reason = _reason_to_stop(step, time.time() - began)
            if reason is not None:
                _end(run)
                raise WorkFailed.of(reason)
        time.sleep(LOOK_EVERY)
        status = runs.observe(run)
    return runs.observe(run)


def _reason_to_stop(step: Step, seconds: float) -> Message | None:
    free = buildtree.free_bytes()
    if free is not None and free < SPARE:
        return DISK_FULL
    if step.grows is not None and buildtree.size_of(step.grows) > MIRROR_LIMIT:
        return TOO_LARGE
    return TOO_LONG if seconds > step.seconds else None


def _end(run: Run) -> None:
    folders.request_stop(run.pk)
    if folders.wait(run.pk, GRACE + 3).status in {"running", "orphaned"}:
        folders.kill(run.pk)
        folders.wait(run.pk, 10)
    if runs.observe(run).status == "missing":
        runs.abandon(run, Message(N_("The process was never started.")))


def _failure(build: Build, run: Run, step: Step, status: RunStatus) -> WorkFailed:
    """Return the error of a failed step, after its diagnosis was stored."""
    if status.exit_code is None:
        return WorkFailed(NOT_STARTED, step=Message(step.name), why=status.error)
    inputs = BuildInputs.from_dict(build.inputs)
    known = facts(inputs, toolchain_of(build.host))
    found = diagnose_run(run, (AREA,), status.exit_code, known, step.name)
    Build.objects.filter(pk=build.pk).update(diagnosis=run.diagnosis)
    if found:
        return WorkFailed(DIAGNOSED_AS, step=Message(step.name), cause=found[0].title)
    if status.exit_code < 0:
        return WorkFailed(KILLED, step=Message(step.name), signal=-status.exit_code)
    return WorkFailed(FAILED, step=Message(step.name), code=status.exit_code)
