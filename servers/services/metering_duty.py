"""The agent's duty that measures running servers: the only one that asks for /metrics, and mostly for /slots.

A server that is idle is asked every two minutes, because a question writes a line into its log; that work
begins is seen in the log itself.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError, close_old_connections

from controlpanel.lib.streams import publish_last
from jobs.adapters.hostlink import Endpoint, link
from jobs.adapters.loopback import ServerUnreachable
from jobs.adapters.runlog import log_part, log_size
from jobs.services import history
from jobs.services.gpus import tell_with_samples
from jobs.services.watch import running_ids
from servers.domain.facts import is_sleeping
from servers.domain.meter import ServerMeter, dumped
from servers.domain.meter_log import LogReader
from servers.domain.meter_state import MeterState
from servers.domain.scrape import Metrics, SlotWork, read_json, read_metrics, read_slots
from servers.models import Instance
from servers.services import instances
from servers.services.metering import EVENT, stream_of

logger = logging.getLogger(__name__)
TIMEOUT = 5.0  # seconds for one answer: a server that reads a long prompt answers between its batches
ROWS_EVERY = 2.5  # seconds for which the list of ready servers holds
FIRST = 16 * 1024 * 1024  # bytes of a log that are read at first
STEP = 1024 * 1024  # bytes of a log that are read at a time
MOST = 4 * STEP  # of new text at one look; what is older is passed over
SLEEPS = "--sleep-idle-seconds"
SHARED, OWN = {"--kv-unified", "-kvu"}, {"--no-kv-unified", "-no-kvu"}
COUNTED = {"--parallel", "-np"}  # slots that nobody counted share their cache


class _Failed(Exception):
    """The server answered neither with what was asked nor that it does not have it."""


@dataclass
class Watch:
    """What the agent remembers of one run; all but what was of late comes again after a restart."""

    profile: int
    endpoint: Endpoint
    log_start: int
    state: MeterState
    reader: LogReader = field(default_factory=LogReader)
    offset: int | None = None  # byte of the log up to which it was read
    without: set[str] = field(default_factory=set)  # paths that this server does not have
    slots: Any = None  # what /slots answered last, if those were slots
    task: asyncio.Task[None] | None = None


_watches: dict[str, Watch] = {}
_rows_at = 0.0
_rows_ids: set[str] = set()
_shown: dict[int, Any] | None = None


def last_slots(run_id: str) -> Any:
    """Return what a run's server answered to /slots last, None when this duty has not asked it."""
    watch = _watches.get(run_id)
    return None if watch is None else watch.slots


async def measure_servers() -> None:
    """Measure all ready servers of this host; one that does not answer delays no other."""
    await _follow_rows()
    if not _watches and not _shown:
        return
    await asyncio.to_thread(_read_logs, list(_watches.values()), time.time())
    now = time.time()
    for watch in _watches.values():
        if watch.task is not None and not watch.task.done():
            continue
        if watch.state.due(now):
            watch.state.note_asked(now)
            watch.task = asyncio.create_task(_ask(watch))
        else:
            watch.state.rest(now)
    # An answer takes a few milliseconds: what it tells belongs to this second.
    asked = [watch.task for watch in _watches.values() if watch.task is not None and not watch.task.done()]
    if asked:
        await asyncio.wait(asked, timeout=0.25)
    now = time.time()
    meters = {watch.profile: watch.state.meter(now) for watch in _watches.values()}
    await asyncio.to_thread(_tell, meters)


async def _follow_rows() -> None:
    global _rows_at, _rows_ids
    ids = running_ids()
    if ids == _rows_ids and (not ids or time.monotonic() - _rows_at < ROWS_EVERY):
        return
    try:
        found = await sync_to_async(_ready, thread_sensitive=False)() if ids else {}
    except DatabaseError:  # other duties say so; those that are known are measured on
        return
    _rows_at, _rows_ids = time.monotonic(), set(ids)
    for gone in _watches.keys() - found.keys():
        if task := _watches.pop(gone).task:
            task.cancel()
    for run_id, watch in found.items():
        _watches.setdefault(run_id, watch)


def _ready() -> dict[str, Watch]:
    close_old_connections()
    try:
        rows = Instance.objects.select_related("run__host").filter(
            observed=Instance.Observed.READY, run__state="running", run__host__slug=settings.PANEL_HOST
        )
        return {row.run.pk: watch for row in rows if row.run and (watch := _watch(row))}
    finally:
        close_old_connections()


def _watch(instance: Instance) -> Watch | None:
    run = instance.run
    assert run is not None
    if run.pk in _watches:
        return _watches[run.pk]
    endpoint = instances.endpoint_of(instance)
    if endpoint is None:
        return None
    flags = set(run.argv)
    shared = bool(flags & SHARED) or not flags & (OWN | COUNTED)
    state = MeterState(sleeper=SLEEPS in flags, shared=shared)
    return Watch(instance.profile_id, endpoint, run.log_start, state)


def _read_logs(watches: list[Watch], now: float) -> None:
    for watch in watches:
        run_id, first = watch.endpoint.run_id, watch.offset is None
        size = log_size(run_id)
        if watch.offset is None:
            watch.offset = max(watch.log_start, size - FIRST, 0)
            watch.state.whole_log = watch.offset == 0
        elif size - watch.offset > MOST:
            watch.offset, watch.reader, watch.state.whole_log = size - STEP, LogReader(), False
        while watch.offset < size:
            text = log_part(run_id, watch.offset, min(STEP, size - watch.offset))
            if not text:
                break
            watch.offset += len(text)
            watch.state.note_log(watch.reader.read(text), now, old=first)


async def _ask(watch: Watch) -> None:
    try:
        async with asyncio.timeout(TIMEOUT):
            if watch.state.may_sleep and await _sleeps(watch):
                watch.state.note_asleep(time.time())
                return
            body = await _get(watch, "/metrics")
            metrics: Metrics | None = None if body is None else read_metrics(body)
            body = await _get(watch, "/slots")
            found = None if body is None else read_json(body)
            slots: tuple[SlotWork, ...] | None = read_slots(found)
    except (ServerUnreachable, TimeoutError, _Failed):
        watch.state.note_failed(time.time())
        return
    except Exception:
        logger.exception("measuring the server of run %s", watch.endpoint.run_id)
        watch.state.note_failed(time.time())
        return
    watch.slots = None if slots is None else found
    watch.state.note_reading(time.time(), metrics, slots)


async def _sleeps(watch: Watch) -> bool:
    return is_sleeping(read_json(await _get(watch, "/props") or b""))


async def _get(watch: Watch, path: str) -> bytes | None:
    """Return an answer, None when this server has none to give."""
    if path in watch.without:
        return None
    reply = await link(watch.endpoint.host).ask_server(watch.endpoint, path, TIMEOUT)
    if reply.status in (404, 501):
        watch.without.add(path)
        return None
    if reply.status != 200:
        raise _Failed
    return reply.body


def _tell(meters: dict[int, ServerMeter]) -> None:
    """Record and publish the meters; pages are told only when they show something new."""
    global _shown
    for pk, meter in meters.items():
        values = {
            "predicted_tps": meter.predicted_tps,
            "prompt_tps": meter.prompt_tps,
            "busy": meter.busy,
            "waiting": meter.waiting,
            "context_used": meter.context_used,
            "acceptance": meter.acceptance,
        }
        history.record(f"server:{pk}", meter.time, values)
    if not publish_last(stream_of(settings.PANEL_HOST), time.time(), dumped(meters)):
        _shown = None
        return
    shown = {pk: _visible(meter) for pk, meter in meters.items()}
    if shown != _shown:
        _shown = shown
        tell_with_samples(EVENT, settings.PANEL_HOST)


def _visible(meter: ServerMeter) -> Any:
    """Return what pages show of a meter, as exactly as they do."""

    def short(value: float | None) -> float | None:
        return None if value is None else round(value, 1)

    def share(value: float | None) -> float | None:
        return None if value is None else round(value, 2)

    return (
        short(meter.predicted_tps),
        short(meter.prompt_tps),
        meter.busy,
        meter.waiting,
        meter.slots,
        share(meter.acceptance),
        tuple(map(share, meter.per_position or ())),
        share(meter.mean_length),
        short(meter.last_predicted_tps),
        short(meter.last_prompt_tps),
        {name: round(value, 1) for name, value in meter.totals.items()},
    )
