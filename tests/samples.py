"""History as the agent leaves it: stored rows of a host, and the seconds that are only live."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from controlpanel.lib.redis import sync_client
from jobs.domain.series import FIELDS, SPANS, STEPS, Block, kind_of, pack
from jobs.models import Host, SampleBlock

ValueAt = Callable[[int, str], float | None]  # (second, field)


def store(host: Host, subject: str, level: int, start: int, rows: int, value: ValueAt) -> None:
    """Store rows of a level from `start` on, which is cut to a whole row; low and high are 10 % off."""
    kind, step, span = kind_of(subject), STEPS[level], SPANS[level]
    begin = start // span * span
    for first in range(begin, begin + rows * span, span):
        seconds = range(first, first + span, step)
        mean = {field: [value(at, field) for at in seconds] for field in FIELDS[kind]}
        low, high = (_times(mean, factor) if level else None for factor in (0.9, 1.1))
        data = pack(kind, Block(first, step, mean, low, high))
        SampleBlock.objects.create(host=host, subject=subject, level=level, start=first, data=data)


def say_second(host: Host, time: float, values: Mapping[str, Mapping[str, float | None]]) -> None:
    """Publish one second of the subjects of a host."""
    entry = {"time": str(int(time)), "data": json.dumps(values)}
    sync_client().xadd(f"series:{host.slug}", entry, maxlen=60)  # type: ignore[arg-type]


def _times(mean: Mapping[str, Sequence[float | None]], factor: float) -> dict[str, list[float | None]]:
    return {
        field: [None if value is None else value * factor for value in values]
        for field, values in mean.items()
    }
