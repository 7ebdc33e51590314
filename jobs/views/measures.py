"""Measured numbers as pages write them: with their unit, and a dash for what is not known."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.utils import timezone

UNKNOWN = "–"
BAR = 1000  # width of a full bar in the drawing's own units


def gib(mib: int | None) -> str:
    """Write MiB as GiB with one digit."""
    return UNKNOWN if mib is None else f"{mib / 1024:.1f}"


def whole(number: float | None) -> str:
    """Write a number without its fraction."""
    return UNKNOWN if number is None else f"{number:.0f}"


def unit(number: float | None, name: str) -> str:
    """Write a whole number with its unit."""
    return UNKNOWN if number is None else f"{number:.0f} {name}"


def pair(first: str, second: str, name: str) -> str:
    """Write two numbers with their unit; one dash when neither is known."""
    return UNKNOWN if first == second == UNKNOWN else f"{first} / {second} {name}"


def bar(used: int | None, total: int | None) -> dict[str, Any] | None:
    """Return a bar with one part, for what is used."""
    if not total or used is None:
        return None
    return bar_of([("rest", max(min(used, total), 0))], total)


def bar_of(parts: Iterable[tuple[str, int]], total: int) -> dict[str, Any]:
    """Return the parts of a bar, from the left and in BAR units, by kind and size in units of `total`."""
    drawn, at = [], 0
    for kind, size in parts:
        start, at = at * BAR // total, at + size
        drawn.append({"kind": kind, "x": start, "width": at * BAR // total - start})
    return {"full": BAR, "parts": drawn}


def moment(seconds: float) -> datetime:
    """Return a time since 1970 in the panel's time zone."""
    return datetime.fromtimestamp(seconds, timezone.get_current_timezone())
