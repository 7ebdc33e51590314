"""The agent's duty of the servers app: ask each running server how it is, and read facts back."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from controlpanel.llamacpp.memory_log import MAX_TEXT
from controlpanel.llamacpp.serverlog import milestone
from jobs.adapters import runs as folders
from jobs.adapters.hostlink import Endpoint, Reply, link
from jobs.adapters.loopback import ServerUnreachable
from jobs.services.gpus import sample_here
from jobs.services.watch import running_ids
from servers.domain.facts import busy_slots, is_sleeping, read_facts, use_mark
from servers.domain.policy import policy_of
from servers.domain.scrape import read_json
from servers.models import Instance
from servers.services import instances, keeping
from servers.services.diagnosing import note_missing_mtp
from servers.services.instances import Observed
from servers.services.metering_duty import last_slots
from servers.services.readings import take_reading

logger = logging.getLogger(__name__)
TIMEOUT = 3.0  # seconds for one answer
FAILURES = 5  # failed polls in a row after which a ready server counts as unresponsive
LOG_STEP = 1024 * 1024  # bytes of a starting server's log looked through per poll
QUIET = 2.5  # seconds for which a server that is well is not asked; that it ended is noticed without
USE_EVERY = 6  # the same for a server that is unloaded when nobody uses it
FACTS_EVERY = 20  # polls


@dataclass
class Watch:
    """What the agent remembers of one run between polls; all of it can be read again after a restart."""

    failures: int = 0
    polls: int = 0
    due: float = 0.0  # monotonic time of the next poll
    silent_since: float = 0.0  # monotonic time of the first failure in a row
    mark: str = ""  # what /slots told of its requests
    log_offset: int = 0
    log_rest: bytes = field(default=b"")


_watches: dict[str, Watch] = {}


async def poll_instances() -> None:
    """Poll all servers of this host that are due at once, each bounded by its own time-out.

    Without a new run and a server that is due nothing is asked, the database neither.
    """
    if not running_ids() - _watches.keys() and not any(_is_due(watch) for watch in _watches.values()):
        return
    rows = await _database(_polled)
    known = {row.run.pk for row in rows if row.run}
    for gone in _watches.keys() - known:
        del _watches[gone]
    due = [row for row in rows if row.run and _is_due(_watches.setdefault(row.run.pk, Watch()))]
    results = await asyncio.gather(*(_poll(row) for row in due), return_exceptions=True)
    for row, result in zip(due, results, strict=True):
        if isinstance(result, Exception):
            logger.warning("poll of %s: %r", row.profile.name, result)


def _polled() -> list[Instance]:
    rows = Instance.objects.select_related("run__host", "profile").filter(
        observed__in=Instance.POLLED, run__state="running", run__host__slug=settings.PANEL_HOST
    )
    return list(rows)


def _is_due(watch: Watch) -> bool:
    return time.monotonic() >= watch.due


async def _poll(instance: Instance) -> None:
    assert instance.run is not None
    watch = _watches[instance.run.pk]
    watch.polls += 1
    if instance.observed in {Observed.STARTING, Observed.LOADING}:
        await _note_milestones(instance, watch)
    endpoint = instances.endpoint_of(instance)
    if endpoint is None:
        return
    try:
        code = (await _get(endpoint, "/health")).status
    except ServerUnreachable:
        await _note_silence(instance, watch)
        return
    watch.failures = 0
    if code == 200:
        await _note_ready(instance, endpoint, watch)
    elif code == 503:
        await _database(instances.move, instance, Observed.STARTING, to=Observed.LOADING)


async def _note_milestones(instance: Instance, watch: Watch) -> None:
    assert instance.run is not None
    for key in await asyncio.to_thread(_new_milestones, instance.run.pk, watch):
        await _database(instances.note_step, instance, key)


async def _note_silence(instance: Instance, watch: Watch) -> None:
    watch.failures += 1
    if watch.failures == 1:
        watch.silent_since = time.monotonic()
    # Before its socket is bound a starting server refuses connections; that is no failure.
    if instance.observed == Observed.READY and watch.failures >= FAILURES:
        await _database(instances.move, instance, Observed.READY, to=Observed.UNRESPONSIVE)
    elif instance.observed == Observed.UNRESPONSIVE:
        limit = policy_of(instance.profile.policy).hang_s
        silent = time.monotonic() - watch.silent_since
        if limit and silent >= limit:
            await _database(keeping.restart_hung, instance, silent)


async def _note_ready(instance: Instance, endpoint: Endpoint, watch: Watch) -> None:
    every = FACTS_EVERY if policy_of(instance.profile.policy).idle_min is None else USE_EVERY
    if instance.observed != Observed.READY or watch.polls % every == 0:
        props, slots = await _ask(endpoint, "/props"), last_slots(endpoint.run_id)
        if slots is None and instance.observed == Observed.READY and is_sleeping(props):
            watch.due = time.monotonic() + QUIET
            return  # /slots would wake it, and what it said of itself holds
        if slots is None:  # the meter asks only servers that are ready
            slots = await _ask(endpoint, "/slots")
        told = await _database(_note_facts, instance, watch, props, slots)
        if not told and instance.observed in {Observed.STARTING, Observed.LOADING}:
            return  # another program may have taken the port: it knows neither the key nor these answers
    if instance.observed == Observed.READY:
        watch.due = time.monotonic() + QUIET
    elif instance.observed == Observed.UNRESPONSIVE and instance.ready_at is not None:
        await _database(instances.move, instance, Observed.UNRESPONSIVE, to=Observed.READY, error="")
    else:
        await _note_milestones(instance, watch)  # what the log told until it answered
        await _database(instances.note_step, instance, "ready")
        before = (Observed.STARTING, Observed.LOADING, Observed.UNRESPONSIVE)
        if await _database(instances.move, instance, *before, to=Observed.READY, ready_at=timezone.now()):
            await _database(take_reading, instance, await asyncio.to_thread(_first_log, endpoint.run_id))


def _note_facts(instance: Instance, watch: Watch, props: Any, slots: Any) -> bool:
    """Keep what the server tells of itself; False when it tells nothing."""
    facts = read_facts(props, slots)
    if facts:
        instances.note_facts(instance, {**facts, "vram": _vram(instance)})
        if facts["mtp"] is False and instance.profile.settings.get("speculation") == "mtp":
            note_missing_mtp(instance)
    before, watch.mark = watch.mark, use_mark(slots)
    if busy_slots(slots) or (before and watch.mark != before):
        instances.note_use(instance)
    return bool(facts)


def _vram(instance: Instance) -> list[list[int | None]]:
    """Return [number of the card, MiB] for each card on which the server's process has memory."""
    sample = sample_here()
    pid = instance.run.pid if instance.run else None
    if sample is None or pid is None:
        return []
    return [
        [card.index, process.memory_mib]
        for card in sample.gpus.gpus
        for process in card.processes or ()
        if process.pid == pid
    ]


async def _ask(endpoint: Endpoint, path: str) -> Any:
    """Return a JSON answer, None when there is none."""
    try:
        reply = await _get(endpoint, path)
        return read_json(reply.body) if reply.status == 200 else None
    except ServerUnreachable:
        return None


async def _get(endpoint: Endpoint, path: str) -> Reply:
    return await link(endpoint.host).ask_server(endpoint, path, TIMEOUT)


def _first_log(run_id: str) -> str:
    """Return the beginning of a log, in which a start tells what it took."""
    try:
        with folders.log_path(run_id).open("rb") as file:
            return file.read(MAX_TEXT).decode("utf-8", "replace")
    except OSError:
        return ""


def _new_milestones(run_id: str, watch: Watch) -> list[str]:
    try:
        with folders.log_path(run_id).open("rb") as file:
            file.seek(watch.log_offset)
            data = file.read(LOG_STEP)
    except OSError:
        return []
    watch.log_offset += len(data)
    *lines, watch.log_rest = (watch.log_rest + data).split(b"\n")
    watch.log_rest = watch.log_rest[-65536:]
    found = (milestone(line.decode("utf-8", "replace")) for line in lines)
    return [key for key in found if key and key != "listening"]


async def _database(function: Any, *args: Any, **kwargs: Any) -> Any:
    def call() -> Any:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return await sync_to_async(call, thread_sensitive=False)()
