"""Settle instances whose process or job has ended: at once through the run's hook, and again by the agent.

The second way is for what a process killed between two rows left behind.
"""

from controlpanel.lib.words import message_in
from jobs.models import Run
from jobs.services import runs
from jobs.services.watch import each, with_database
from servers.models import Instance
from servers.services import instances, keeping
from servers.services.instances import LAUNCH, STOP, Observed, has_active_job, jobs_of
from servers.services.launch import NOT_SPAWNED

ENDED_RUN = (Run.State.EXITED, Run.State.LOST)


def server_ended(run: Run) -> None:
    """Called once when a server's process has ended: settle the instance that ran it.

    A stop that nobody of the panel asked for counts as a failure: a host that shuts down sends one too.
    """
    instance = Instance.objects.select_related("profile__build__host", "run").filter(run=run).first()
    if instance is None:
        return
    stopping = instance.observed == Observed.STOPPING and has_active_job(instance, STOP)
    if stopping or instance.desired == Instance.Desired.STOPPED:
        instances.move(instance, *Instance.ALIVE, Observed.STOPPING, to=Observed.STOPPED)
    elif not instances.retry_on_next_port(instance, run):
        keeping.server_failed(instance, run)


@with_database
def settle_instances() -> None:
    """Find instances that wait for something that has ended, and move them on."""
    rows = Instance.objects.select_related("profile", "run")
    each(rows.filter(observed__in=(*Instance.ALIVE, Observed.STOPPING)), _look)


def _look(instance: Instance) -> None:
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
        again = bool((jobs_of(instance, LAUNCH).values_list("params", flat=True).first() or {}).get("again"))
        keeping.start_failed(instance, message_in(_last_error(instance, LAUNCH)), again=again)


def _spawned(instance: Instance) -> bool:
    if instance.run is None:
        return False
    if runs.observe(instance.run).status != "missing":
        return True
    runs.abandon(instance.run, NOT_SPAWNED)
    return False


def _last_error(instance: Instance, kind: str) -> str:
    return jobs_of(instance, kind).values_list("error", flat=True).first() or ""
