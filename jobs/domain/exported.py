"""Metrics for a monitoring system, as values: families with the series that are known.

Names follow Prometheus: base units (bytes, seconds, ratios from 0 to 1, hertz), and what is counted ends with
"_total". What is not known has no series at all; a zero is a measured zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PREFIX = "llamacpp_panel_"

Kind = Literal["gauge", "counter", "info"]
Labels = Mapping[str, str]


@dataclass
class Family:
    """All series of one metric; each has the labels named in `labels`, in this order.

    The name of an info ends with "_info", that of a counter with "_total"; both are part of `name`.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Kind = "gauge"
    series: dict[tuple[str, ...], float] = field(default_factory=dict)


class Families:
    """Collects series; one that comes twice keeps its last value."""

    def __init__(self) -> None:
        self._found: dict[str, Family] = {}

    def add(self, name: str, help: str, labels: Labels, value: float | None, *, kind: Kind = "gauge") -> None:
        """Add one series to the family `name` (without PREFIX); None and what is no number add nothing."""
        if value is None or not math.isfinite(value):
            return
        full = PREFIX + name
        family = self._found.get(full)
        if family is None:
            family = self._found[full] = Family(full, help, tuple(labels), kind)
        if tuple(labels) != family.labels:
            raise ValueError(f"{full} has the labels {family.labels}")
        family.series[tuple(labels.values())] = float(value)

    def gauge(self, name: str, help: str, labels: Labels, value: float | None) -> None:
        """Add what goes up and down."""
        self.add(name, help, labels, value)

    def counter(self, name: str, help: str, labels: Labels, value: float | None) -> None:
        """Add what only grows, but for a new beginning at zero; its name ends with "_total"."""
        self.add(name, help, labels, value, kind="counter")

    def info(self, name: str, help: str, labels: Labels) -> None:
        """Add what is said in labels; its name ends with "_info"."""
        self.add(name, help, labels, 1, kind="info")

    def found(self) -> list[Family]:
        """Return the families that have a series."""
        return list(self._found.values())


def scaled(value: float | None, factor: float) -> float | None:
    """Return a value in another unit."""
    return None if value is None else value * factor


def truth(value: bool | None) -> float | None:
    """Return 1 for yes and 0 for no."""
    return None if value is None else float(value)
