"""History as the agent leaves it: stored rows of a host, and the seconds that are only live."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pytest

from controlpanel.lib.redis import sync_client
from jobs.domain.series import FIELDS, SPANS, STEPS, Block, kind_of, pack
from jobs.models import Host, SampleBlock
from jobs.services import history, history_live

T = 1_800_000_000  # a full hour
DAY = 86_400
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


def new_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the memory of an agent that was killed is gone."""
    monkeypatch.setattr(history, "_pending", {})
    monkeypatch.setattr(history, "_last", {})
    monkeypatch.setattr(history_live, "_recent", {})


def record(begin: int, end: int, value: float | None = None, subject: str = "host") -> None:
    """Record each second; without a value each has its own second of the day."""
    for second in range(begin, end):
        history.record(subject, second + 0.4, {"cpu": second % DAY if value is None else value})


def cpu(host: Host, begin: int, end: int, now: int) -> dict[int, float | None]:
    """The mean of each point."""
    chart = history.read(host, ["host"], begin, end, now=now)
    column = chart.series["host"]["cpu"]["mean"]
    assert column is not None
    return dict(zip(chart.times, column, strict=True))


def levels(host: Host) -> list[int]:
    """How many rows each level has."""
    return [SampleBlock.objects.filter(host=host, level=level).count() for level in range(3)]


def _times(mean: Mapping[str, Sequence[float | None]], factor: float) -> dict[str, list[float | None]]:
    return {
        field: [None if value is None else value * factor for value in values]
        for field, values in mean.items()
    }
