"""Numbers over time as values: blocks of equally spaced points, how they are stored and thinned.

None stands for "not known" everywhere, stored as NaN; a zero is a measured zero.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# What is kept of each kind of subject. Stored rows know the fields by their place: only ever append.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "gpu": (
        "utilization",
        "memory_utilization",
        "memory_used_mib",
        "temperature",
        "power_w",
        "clock_mhz",
        "memory_clock_mhz",
        "fan",
        "pcie_rx_mib_s",
        "pcie_tx_mib_s",
    ),
    "host": ("cpu", "memory_used_mib", "swap_used_mib", "disk_free_mib", "load_1m"),
    "server": ("predicted_tps", "prompt_tps", "busy", "waiting", "context_used", "acceptance"),
}

STEPS = (1, 10, 300)  # seconds between the points of each level
SPANS = (10, 600, 3600)  # seconds that a row of each level covers
KEPT = (900, 86_400, 30 * 86_400)  # seconds that rows of each level are kept at least
MOST_POINTS = 1500  # of a chart, give or take one

VERSION = 1
_HEAD = struct.Struct("<BBHIq")  # version, numbers for each field (1 or 3), points, step, start
_LARGEST = 3.4e38  # of a float32
_NAN = float("nan")
_DIGITS = 3  # after the point; a float32 of 0.1 would else be told as 0.10000000149

Column = list[float | None]


@dataclass(frozen=True)
class Block:
    """Points from `start` on (seconds since 1970), `step` seconds apart, by field.

    A point stands for the seconds until the next one: their mean, lowest and highest known value. Without
    low and high, which is so at a step of 1, each is the mean.
    """

    start: int
    step: int
    mean: dict[str, Column]
    low: dict[str, Column] | None = None
    high: dict[str, Column] | None = None


def kind_of(subject: str) -> str:
    """Return the kind of a subject, a key of FIELDS; ValueError when there is none of that name."""
    kind = subject.partition(":")[0]
    if kind not in FIELDS:
        raise ValueError(f"unknown kind of subject: {subject!r}")
    return kind


def known(value: float | None) -> float | None:
    """Return a value that can be stored; None for what is no finite number."""
    return None if value is None or not abs(value) < _LARGEST else value


def told(column: Column) -> Column:
    """Return the column with as many digits as a reader may want."""
    return [None if value is None else round(value, _DIGITS) for value in column]


def pack(kind: str, block: Block) -> bytes:
    """Write a block as a row's data: a head, then point after point the float32 of each field.

    Numbers lie in the machine's order: every processor that drives a card is little-endian. They are not
    compressed: all rows of a large host are some 30 MB, and reading them takes half the time.
    """
    parts = [part for part in (block.mean, block.low, block.high) if part is not None]
    columns = [part[name] for part in parts for name in FIELDS[kind]]
    numbers = _unknown(len(columns[0]) * len(columns))
    for place, column in enumerate(columns):
        numbers[place :: len(columns)] = array("f", [_NAN if value is None else value for value in column])
    return _HEAD.pack(VERSION, len(parts), len(columns[0]), block.step, block.start) + numbers.tobytes()


def unpack(kind: str, data: bytes) -> Block:
    """Read what pack wrote, here or in a version with other fields at the end; ValueError: it is no block."""
    row = _row(kind, data)
    fields = len(FIELDS[kind])
    parts = [
        _named(kind, [row.numbers[place :: row.parts * fields] for place in range(first, first + fields)])
        for first in range(0, row.parts * fields, fields)
    ]
    return Block(row.start, row.step, *parts)


def thinned(kind: str, rows: Iterable[bytes], step: int, start: int, count: int) -> Block:
    """Return `count` points of `step` seconds from `start` on, made of packed blocks with smaller steps.

    All blocks have one step, of which `step` is a multiple. Unknown points count for nothing; a new point
    without any known one is unknown, and so is what lies in a row that cannot be read. Where blocks overlap,
    the later one in the order counts.
    """
    read = [row for data in rows if (row := _readable(kind, data)) is not None]
    fine = read[0].step if read else step
    if step % fine or any(row.step != fine for row in read):
        raise ValueError("blocks of these steps do not fit together")
    ratio = step // fine
    fields, parts = len(FIELDS[kind]), max((row.parts for row in read), default=1)
    numbers = _laid_out(read, start, count * ratio, fields, parts)
    width = parts * fields
    if ratio == 1:
        found = [numbers[place::width] for place in range(width)]
        return Block(start, step, *(_named(kind, found[p : p + fields]) for p in range(0, width, fields)))
    kept: tuple[list[Sequence[float]], ...] = ([], [], [])  # means, lows, highs
    for place in range(fields):
        mean, low, high = (
            [numbers[n * width + part * fields + place :: ratio * width] for n in range(ratio)]
            for part in ((0, 1, 2) if parts == 3 else (0, 0, 0))
        )
        for columns, column in zip(kept, _thin(mean, low, high), strict=True):
            columns.append(column)
    return Block(start, step, *(_named(kind, columns) for columns in kept))


def raised(kind: str, rows: Iterable[bytes], level: int, start: int) -> Block:
    """Return the block of a level's row that begins at `start`, made of rows of the level below."""
    return thinned(kind, rows, STEPS[level], start, SPANS[level] // STEPS[level])


def merged(old: Block, new: Block) -> Block:
    """Return what either of two blocks of the same points knows; where both do, the new one counts."""

    def both(before: dict[str, Column] | None, after: dict[str, Column] | None) -> dict[str, Column] | None:
        if before is None or after is None:
            return after
        return {
            name: [was if value is None else value for was, value in zip(before[name], column, strict=True)]
            for name, column in after.items()
        }

    return Block(
        new.start, new.step, both(old.mean, new.mean) or {}, both(old.low, new.low), both(old.high, new.high)
    )


@dataclass(frozen=True)
class _Row:
    """A packed block whose numbers still lie point after point."""

    start: int
    step: int
    parts: int  # 1: means only, 3: means, lows, highs
    numbers: array[float]


def _readable(kind: str, data: bytes) -> _Row | None:
    try:
        return _row(kind, data)
    except ValueError:
        return None


def _row(kind: str, data: bytes) -> _Row:
    numbers = array("f")
    try:
        version, parts, count, step, start = _HEAD.unpack_from(data)
        numbers.frombytes(data[_HEAD.size :])
        stored, rest = divmod(len(numbers), parts * count)
    except (struct.error, ZeroDivisionError) as error:
        raise ValueError("this is no block") from error
    if version != VERSION or parts not in (1, 3) or not step or not stored or rest:
        raise ValueError("this is no block")
    fields = len(FIELDS[kind])
    if stored != fields:
        numbers = _refitted(numbers, parts, stored, fields)
    return _Row(start, step, parts, numbers)


def _refitted(numbers: array[float], parts: int, stored: int, fields: int) -> array[float]:
    """Return the numbers of `stored` fields with place for `fields`."""
    new = _unknown(len(numbers) // stored * fields)
    for part in range(parts):
        for field in range(min(stored, fields)):
            column = numbers[part * stored + field :: parts * stored]
            new[part * fields + field :: parts * fields] = column
    return new


def _laid_out(rows: Sequence[_Row], start: int, count: int, fields: int, parts: int) -> array[float]:
    """Return the numbers of all points from `start` on, unknown where no row is."""
    width = parts * fields
    numbers = _unknown(count * width)
    for row in rows:
        if row.parts == parts:
            found = row.numbers
        else:
            found = array("f")
            for place in range(0, len(row.numbers), fields):
                found += row.numbers[place : place + fields] * parts
        first = (row.start - start) // row.step
        skipped, end = max(0, -first), min(count, first + len(found) // width)
        if first + skipped < end:
            numbers[(first + skipped) * width : end * width] = found[skipped * width : (end - first) * width]
    return numbers


def _thin(
    mean: list[array[float]], low: list[array[float]], high: list[array[float]]
) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """Return mean, lowest and highest of each point; the n-th of the arrays holds the n-th part of all."""
    parts = len(mean)
    means = [sum(values) / parts for values in zip(*mean, strict=True)]
    lows = list(map(min, *low))
    highs = list(map(max, *high))
    # What is true of most points is quick; a sum is NaN where one of its parts is.
    for place in [place for place, value in enumerate(means) if value != value]:
        known_parts = [n for n in range(parts) if mean[n][place] == mean[n][place]]
        if known_parts:
            means[place] = sum(mean[n][place] for n in known_parts) / len(known_parts)
            lows[place] = min(low[n][place] for n in known_parts)
            highs[place] = max(high[n][place] for n in known_parts)
        else:
            lows[place] = highs[place] = _NAN
    return means, lows, highs


def _unknown(count: int) -> array[float]:
    return array("f", [_NAN]) * count


def _named(kind: str, columns: Sequence[Sequence[float]]) -> dict[str, Column]:
    return {
        name: [None if value != value else value for value in column]
        for name, column in zip(FIELDS[kind], columns, strict=True)
    }
