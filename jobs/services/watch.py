"""The agent's duties of the jobs app: heartbeat, reconcile, and watching runs."""

import logging
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TypeVar

from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from jobs.adapters import runs as folders
from jobs.adapters.hostlink import link
from jobs.models import Host, Run
from jobs.services import jobs, runs
from jobs.services.hosts import local_host

T = TypeVar("T")
logger = logging.getLogger(__name__)

LOG_LIMIT = 256 * 1024 * 1024  # bytes of one log
DISK_SHORT = 0.05  # share of the disk that is free


def with_database(function: Callable[[], None]) -> Callable[[], None]:
    """Close stale database connections around a duty that runs in a thread of its own."""

    @wraps(function)
    def call() -> None:
        close_old_connections()
        try:
            function()
        finally:
            close_old_connections()

    return call


def each(rows: Iterable[T], call: Callable[[T], object]) -> None:
    """Call for every row; one that fails is logged and keeps no other from its turn."""
    for row in rows:
        try:
            call(row)
        except Exception:
            logger.exception("%s of %s", call.__name__, row)


@with_database
def beat() -> None:
    """Note that this host's agent is alive."""
    if not Host.objects.filter(slug=settings.PANEL_HOST).update(agent_seen_at=timezone.now()):
        local_host()


@with_database
def reconcile_jobs() -> None:
    """Wake workers for jobs that nobody works on."""
    jobs.reconcile(local_host())


_running: set[str] = set()


@with_database
def watch_runs() -> None:
    """Bring the rows of this host's active runs up to their folders."""
    global _running
    # A created run belongs to the job that is about to spawn it.
    rows = Run.objects.filter(host__slug=settings.PANEL_HOST, state=Run.State.RUNNING)
    notes = dict(rows.values_list("pk", "note"))
    _running = set(notes)
    # Most stand as their rows say, without a note: for these one short query is all.
    changed = [pk for pk, note in notes.items() if note or folders.inspect(pk).status != "running"]
    if changed:
        each(rows.select_related("host").filter(pk__in=changed), runs.observe)


@with_database
def trim_logs() -> None:
    """Free the heads of logs that passed the limit; sooner where the disk is nearly full."""
    disk = link(settings.PANEL_HOST).data_disk()
    short = disk is not None and disk.free <= disk.total * DISK_SHORT
    limit = LOG_LIMIT // 8 if short else LOG_LIMIT
    for run in runs.active_runs(settings.PANEL_HOST):
        runs.trim_log(run, limit)


def running_ids() -> set[str]:
    """Return the runs whose logs are to be shipped, as the last watch saw them (no database call)."""
    return _running
