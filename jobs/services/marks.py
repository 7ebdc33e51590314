"""Marks on the charts of a host: moments that explain what the samples show, brought by the apps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["start", "ready", "crash"]

MOST = 200  # marks of one chart; the newest are kept


@dataclass(frozen=True)
class Mark:
    """A moment in seconds since 1970, and what happened in the reader's language."""

    time: float
    kind: Kind
    label: str


FindMarks = Callable[[int, float, float], list[Mark]]

_finders: list[FindMarks] = []


def register_marks(find: FindMarks) -> None:
    """Name a function that finds marks by (key of the host, start, end); called from AppConfig.ready()."""
    _finders.append(find)


def marks_between(host_pk: int, start: float, end: float) -> list[Mark]:
    """Return the newest marks of a host from start to end, the oldest first."""
    found = (mark for find in _finders for mark in find(host_pk, start, end))
    return sorted(found, key=lambda mark: mark.time)[-MOST:]
