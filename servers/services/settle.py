"""Settle instances whose process or job has ended: at once through the run's hook, and again by the agent.

The second way is for what a process killed between two rows left behind.
"""

from jobs.models import Run
from jobs.services import runs
from jobs.services.watch import with_database
from servers.models import Instance
from servers.services import instances
from servers.services.diagnosing import why_it_failed
from servers.services.instances import LAUNCH, STOP, Observed, has_active_job, jobs_of
from servers.services.launch import NOT_SPAWNED

ENDED_RUN = (Run.State.EXITED, Run.State.LOST)


def server_ended(run: Run) -> None:
    """Called once when a server's process has ended: settle the instance that ran it."""
    instance = Instance.objects.select_related("profile__build__host", "run").filter(run=run).first()
    if instance is None:
        return
    if run.stop_requested or instance.desired == Instance.Desired.STOPPED:
        instances.move(instance, *Instance.ALIVE, Observed.STOPPING, to=Observed.STOPPED)
        return
    if instances.retry_on_next_port(instance, run):
        return
    found = why_it_failed(instance, run)
    error = instances.why_it_ended(run, found[0].title if found else None)
    instances.move(instance, *Instance.ALIVE, to=Observed.FAILED, error=error)


@with_database
def settle_instances() -> None:
    """Find instances that wait for something that has ended, and move them on."""
    rows = Instance.objects.select_related("run").filter(observed__in=(*Instance.ALIVE, Observed.STOPPING))
    for instance in rows:
        ended = instance.run is not None and instance.run.state in ENDED_RUN
        created = instance.run is None or instance.run.state == Run.State.CREATED
        waits = instance.observed == Observed.STOPPING or (instance.observed == Observed.STARTING and created)
        if (ended or waits) and not has_active_job(instance, LAUNCH, STOP):
            _settle(instance, ended)


def _settle(instance: Instance, ended: bool) -> None:
    if ended and instance.run is not None:
        server_ended(instance.run)
    elif instance.observed == Observed.STOPPING:
        to = Observed.UNRESPONSIVE if instance.run else Observed.STOPPED
        instances.move(instance, Observed.STOPPING, to=to, error=_last_error(instance, STOP))
    elif not _spawned(instance):
        error = _last_error(instance, LAUNCH)
        instances.move(instance, Observed.STARTING, to=Observed.FAILED, error=error)


def _spawned(instance: Instance) -> bool:
    if instance.run is None:
        return False
    if runs.observe(instance.run).status != "missing":
        return True
    runs.abandon(instance.run, NOT_SPAWNED)
    return False


def _last_error(instance: Instance, kind: str) -> str:
    return jobs_of(instance, kind).values_list("error", flat=True).first() or ""
