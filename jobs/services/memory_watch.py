"""The agent's duty that ends runs which took more main memory than they may."""

from django.conf import settings

from jobs.adapters import runs as folders
from jobs.adapters.rss import session_memory
from jobs.models import Run
from jobs.services import runs, watch

EVERY = 2.0  # seconds
KIB = 1024

_kept: dict[str, int] = {}  # limits in MiB that were given to the kernel, by run


@watch.with_database
def watch_memory() -> None:
    """End this host's runs that hold more than their limit; without a running run nothing is asked.

    What counts is what the processes of a run hold for themselves, in memory or swapped out; a model that is
    mapped from its file does not. Where a run has a control group, that ends what grows between two looks.
    """
    if not watch.running_ids() and not _kept:
        return
    limited = Run.objects.filter(
        host__slug=settings.PANEL_HOST, state=Run.State.RUNNING, memory_mib__isnull=False
    )
    limits = {run: run.memory_mib for run in limited.only("memory_mib") if run.memory_mib is not None}
    _keep({run.pk: limit for run, limit in limits.items()})
    leaders = {run: child.pid for run in limits if (child := folders.inspect(run.pk).child) is not None}
    if not leaders:
        return
    held = session_memory(set(leaders.values()))
    for run, pid in leaders.items():
        used = held[pid] // KIB
        if used > limits[run]:
            runs.end_over_memory(run, limits[run], used)


def _keep(limits: dict[str, int]) -> None:
    """Write the limits that are new to this process: they were changed, or the agent was started again."""
    for pk, limit in limits.items():
        if _kept.get(pk) != limit:
            folders.limit_memory(pk, limit)
    for pk in _kept.keys() - limits.keys():
        folders.limit_memory(pk, None)
    _kept.clear()
    _kept.update(limits)
