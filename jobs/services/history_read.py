"""What charts read of the history."""

import math
import time as clock
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from jobs.domain.series import (
    FIELDS,
    KEPT,
    MOST_POINTS,
    SPANS,
    STEPS,
    Block,
    Column,
    kind_of,
    known,
    pack,
    raised,
    thinned,
    told,
    unpack,
)
from jobs.models import Host, SampleBlock
from jobs.services.history_live import LENGTH, live_since

SLACK = 60  # seconds that a range may begin, and rows are kept, before the last 15 minutes or 24 hours

Rows = dict[str, list[tuple[int, bytes]]]  # start and packed block, by subject
Bands = dict[str, Column | None]


@dataclass(frozen=True)
class Chart:
    """Points that begin at `times` and stand for `step` seconds each; None is unknown.

    series[subject][field] has the lists "mean", "low" and "high", as long as times. At a step of 1 low and
    high are None. A subject without any number has its fields with unknown points.
    """

    step: int
    times: list[int]
    series: dict[str, dict[str, Bands]]


def read(host: Host, subjects: Sequence[str], start: int, end: int, *, now: float | None = None) -> Chart:
    """Return the points from `start` until before `end` (seconds since 1970), at most some 1,500.

    ValueError for a subject of no known kind. What is not thinned yet comes from the finer levels and, of the
    last seconds, from what the agent published.
    """
    moment = clock.time() if now is None else now
    level = level_for(start, end, moment)
    step = STEPS[level] * max(1, math.ceil((end - start) / (STEPS[level] * MOST_POINTS)))
    first = start - start % step
    count = max(1, math.ceil((end - first) / step))
    kinds = {subject: kind_of(subject) for subject in subjects}
    stored = _stored(host, list(kinds), level, first, end)
    if end > moment - LENGTH:
        _add_live(host, kinds, stored[0], max(first - 1, int(moment) - LENGTH))
    series = {
        subject: _bands(thinned(kind, _joined(kind, subject, stored), step, first, count))
        for subject, kind in kinds.items()
    }
    return Chart(step, list(range(first, first + count * step, step)), series)


def level_for(start: int, end: int, now: float) -> int:
    """Return the finest level that is fine enough for the range and still kept of its beginning."""
    for level in (0, 1):
        if end - start <= KEPT[level] and start >= now - KEPT[level] - SLACK:
            return level
    return 2


def _stored(host: Host, subjects: list[str], level: int, start: int, end: int) -> list[Rows]:
    """Return the rows of the range: all of `level`, and of those below what no row above is made of."""
    found: list[Rows] = [defaultdict(list) for _ in range(level + 1)]
    made: dict[int, set[tuple[str, int]]] = {}
    for here in range(level, -1, -1):
        rows = SampleBlock.objects.filter(
            host=host, level=here, start__gt=start - SPANS[here], start__lt=end, subject__in=subjects
        )
        if here < level:
            places = list(rows.values_list("pk", "subject", "start"))
            made[here] = {(subject, begin) for _pk, subject, begin in places}
            missing = [
                pk
                for pk, subject, begin in places
                if not any(
                    (subject, begin - begin % SPANS[up]) in made[up] for up in range(here + 1, level + 1)
                )
            ]
            rows = SampleBlock.objects.filter(pk__in=missing)
        for subject, begin, data in rows.values_list("subject", "start", "data"):
            found[here][subject].append((begin, bytes(data)))
        if here == level:
            made[here] = {
                (subject, begin) for subject, rows_ in found[here].items() for begin, _data in rows_
            }
    return found


def _add_live(host: Host, kinds: dict[str, str], rows: Rows, since: int) -> None:
    """Add the seconds that are published and come after the last one stored."""
    stored = {subject: _last_known(kind, rows.get(subject, []), since) for subject, kind in kinds.items()}
    for second, values in live_since(host, min(stored.values(), default=since)):
        for subject, fields in values.items():
            if subject in kinds and second > stored[subject]:
                names = FIELDS[kinds[subject]]
                block = Block(second, STEPS[0], {name: [known(fields.get(name))] for name in names})
                rows[subject].append((second, pack(kinds[subject], block)))


def _last_known(kind: str, rows: list[tuple[int, bytes]], since: int) -> int:
    """Return the last second of which something is stored, or `since`."""
    begin, data = max(rows, default=(since, b""))
    try:
        columns = unpack(kind, data).mean.values()
    except ValueError:
        return since
    known_places = [
        n for n, values in enumerate(zip(*columns, strict=True)) if values.count(None) < len(values)
    ]
    return begin + known_places[-1] if known_places else since


def _joined(kind: str, subject: str, stored: list[Rows]) -> list[bytes]:
    """Return a subject's rows of the highest level; what is missing there is made of those below."""
    rows: list[tuple[int, bytes]] = []
    for level, found in enumerate(stored):
        if level:
            rows.sort()
            rows = [
                (begin, pack(kind, raised(kind, [data for _begin, data in parts], level, begin)))
                for begin, parts in groupby(rows, key=lambda row: row[0] - row[0] % SPANS[level])
            ]
        rows += found.get(subject, [])
    return [data for _begin, data in rows]


def _bands(block: Block) -> dict[str, Bands]:
    return {
        name: {
            "mean": told(column),
            "low": None if block.low is None else told(block.low[name]),
            "high": None if block.high is None else told(block.high[name]),
        }
        for name, column in block.mean.items()
    }
