"""Settle instances whose process or job has ended: at once through the run's hook, and again by the agent.

The second way is for what a process killed between two rows left behind.
"""

from django.db.models import Q

from jobs.models import Run
from jobs.services import runs
from jobs.services.watch import with_database
from servers.models import Instance
from servers.services import instances
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
    instances.move(instance, *Instance.ALIVE, to=Observed.FAILED, error=instances.why_it_ended(run))


@with_database
def settle_instances() -> None:
    """Find instances that wait for something that has ended, and move them on."""
    rows = Instance.objects.select_related("run")
    for instance in rows.filter(observed__in=(*Instance.ALIVE, Observed.STOPPING), run__state__in=ENDED_RUN):
        if instance.run is not None and not has_active_job(instance, LAUNCH, STOP):
            server_ended(instance.run)
    for instance in rows.filter(Q(run=None) | Q(run__state=Run.State.CREATED), observed=Observed.STARTING):
        if not has_active_job(instance, LAUNCH, STOP) and not _spawned(instance):
            error = _last_error(instance, LAUNCH)
            instances.move(instance, Observed.STARTING, to=Observed.FAILED, error=error)
    for instance in rows.filter(observed=Observed.STOPPING).exclude(run__state__in=ENDED_RUN):
        if not has_active_job(instance, LAUNCH, STOP):
            to = Observed.UNRESPONSIVE if instance.run else Observed.STOPPED
            instances.move(instance, Observed.STOPPING, to=to, error=_last_error(instance, STOP))


def _spawned(instance: Instance) -> bool:
    if instance.run is None:
        return False
    if runs.observe(instance.run).status != "missing":
        return True
    runs.abandon(instance.run, NOT_SPAWNED)
    return False


def _last_error(instance: Instance, kind: str) -> str:
    return jobs_of(instance, kind).values_list("error", flat=True).first() or ""
