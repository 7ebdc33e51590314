"""History of numbers: what the agent records, stores and thins; reading it is in history_read."""

import logging
import threading
import time as clock
from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby

from django.db import transaction
from django.db.models import F

from jobs.domain.series import (
    FIELDS,
    KEPT,
    SPANS,
    STEPS,
    Block,
    kind_of,
    known,
    merged,
    pack,
    raised,
    unpack,
)
from jobs.models import Host, SampleBlock
from jobs.services import history_live
from jobs.services.history_live import live_since
from jobs.services.history_read import SLACK, Chart, read
from jobs.services.hosts import local_host
from jobs.services.watch import with_database

__all__ = ["Chart", "live_since", "read", "record", "thin_history", "write_history"]
logger = logging.getLogger(__name__)

UNWRITTEN = 300  # seconds of each subject that wait for a database which does not answer
COVERED = 1.5  # seconds after the last reading for which a new one stands at most
LATE = 30  # seconds that a second may take until it is stored
BATCH = 60  # rows made by one call for each level
FORGOTTEN = 1000  # rows that one call removes at most

Point = tuple[float | None, ...]

_lock = threading.Lock()
_pending: dict[str, dict[int, Point]] = {}  # by subject and second
_last: dict[str, float] = {}  # time of each subject's last reading


def record(subject: str, time: float, values: Mapping[str, float | None]) -> None:
    """Note what was measured of a subject at `time` (seconds since 1970); only in the agent, from any thread.

    Only the fields of its kind are kept (jobs.domain.series.FIELDS); one that is not there is unknown.
    """
    names = FIELDS[kind_of(subject)]
    point = tuple(known(values.get(name)) for name in names)
    if all(value is None for value in point):
        return
    second = int(time)
    seconds = [second]
    with _lock:
        last = _last.get(subject)
        _last[subject] = time
        # A reading may come a little late: then a second between two readings is no hole.
        if last is not None and second - int(last) == 2 and time - last < COVERED:
            seconds.insert(0, second - 1)
        waiting = _pending.setdefault(subject, {})
        for second in seconds:
            waiting[second] = point
        while len(waiting) > UNWRITTEN:
            del waiting[next(iter(waiting))]
    history_live.note(subject, seconds, dict(zip(names, point, strict=True)))


@with_database
def write_history() -> None:
    """Store what was recorded since the last call."""
    write(local_host())


def write(host: Host) -> None:
    """Store what was recorded, all subjects in one transaction; what fails is kept for the next call."""
    global _pending
    with _lock:
        taken, _pending = _pending, {}
    try:
        _put(host, 0, _blocks(taken))
    except BaseException:
        with _lock:
            for subject, seconds in taken.items():
                _pending[subject] = {**seconds, **_pending.get(subject, {})}
        raise


def _blocks(taken: Mapping[str, Mapping[int, Point]]) -> dict[tuple[int, str], Block]:
    """Return the blocks of level 0 that hold these seconds, by start and subject."""
    blocks = {}
    for subject, seconds in taken.items():
        names = FIELDS[kind_of(subject)]
        for start in {second - second % SPANS[0] for second in seconds}:
            points = [seconds.get(start + n) or (None,) * len(names) for n in range(SPANS[0])]
            columns = map(list, zip(*points, strict=True))
            blocks[start, subject] = Block(start, STEPS[0], dict(zip(names, columns, strict=True)))
    return blocks


def _put(host: Host, level: int, blocks: Mapping[tuple[int, str], Block]) -> None:
    """Store the blocks; what is stored of the same times stays where they know nothing."""
    if not blocks:
        return
    starts, subjects = ({key[n] for key in blocks} for n in (0, 1))
    with transaction.atomic():
        there = SampleBlock.objects.filter(host=host, level=level, start__in=starts, subject__in=subjects)
        stored = {(row.start, row.subject): bytes(row.data) for row in there}
        SampleBlock.objects.bulk_create(
            [
                SampleBlock(
                    host=host,
                    subject=subject,
                    level=level,
                    start=start,
                    data=_packed(kind_of(subject), stored.get((start, subject)), block),
                )
                for (start, subject), block in blocks.items()
            ],
            update_conflicts=True,
            unique_fields=["host", "level", "start", "subject"],
            update_fields=["data"],
        )


def _packed(kind: str, stored: bytes | None, block: Block) -> bytes:
    if stored is not None:
        try:
            block = merged(unpack(kind, stored), block)
        except ValueError:
            logger.warning("a row of samples cannot be read and is written anew")
    return pack(kind, block)


@with_database
def thin_history() -> None:
    """Make the rows of the coarser levels and remove what is too old."""
    thin(local_host(), int(clock.time()))


def thin(host: Host, now: int) -> None:
    """Make rows of complete stretches from the level below, and remove old rows; a bounded part of it.

    Before rows are removed the row above is made once more: some may have come after it.
    """
    if _raise(host, 1, now):
        _raise(host, 2, now)
    old = SampleBlock.objects.filter(host=host, level=2, start__lt=now - KEPT[2] - SPANS[2])
    removed = list(old.values_list("pk", flat=True)[:FORGOTTEN])
    SampleBlock.objects.filter(pk__in=removed).delete()


def _raise(host: Host, level: int, now: int) -> bool:
    """Make rows of a level, the oldest first; False when some are left for the next call."""
    span = SPANS[level]
    rows = SampleBlock.objects.filter(host=host)
    below = rows.filter(level=level - 1, start__lt=now - LATE)
    there = set(
        below.annotate(begin=F("start") - F("start") % span).values_list("begin", "subject").distinct()
    )
    if not there:
        return True
    made = set(rows.filter(level=level, start__gte=min(there)[0]).values_list("start", "subject"))
    due = sorted(
        (begin, subject)
        for begin, subject in there
        if begin + span <= now - LATE and ((begin, subject) not in made or _old(begin, level, now))
    )
    for begin, keys in groupby(due[:BATCH], key=lambda key: key[0]):
        _raise_block(host, level, begin, {subject for _begin, subject in keys}, _old(begin, level, now))
    return len(due) <= BATCH


def _old(begin: int, level: int, now: int) -> bool:
    """Say whether nobody asks any more for the rows below this one."""
    return begin + SPANS[level] <= now - KEPT[level - 1] - SLACK


def _raise_block(host: Host, level: int, begin: int, subjects: set[str], old: bool) -> None:
    """Make the rows of one time; with `old` remove those that they are made of."""
    with transaction.atomic():
        below = SampleBlock.objects.filter(
            host=host,
            level=level - 1,
            start__gte=begin,
            start__lt=begin + SPANS[level],
            subject__in=subjects,
        )
        rows = defaultdict(list)
        pks = []
        for pk, subject, data in below.select_for_update().values_list("pk", "subject", "data"):
            rows[subject].append(bytes(data))
            pks.append(pk)
        _put(
            host,
            level,
            {
                (begin, subject): raised(kind_of(subject), found, level, begin)
                for subject, found in rows.items()
            },
        )
        if old:
            SampleBlock.objects.filter(pk__in=pks).delete()
