"""Marks on the charts of a host: moments that explain what the samples show, brought by the apps."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

Kind = Literal["start", "ready", "crash"]

MOST = 200  # marks of one chart; the newest are kept


@dataclass(frozen=True)
class Mark:
    """A moment in seconds since 1970, and what happened in the reader's language.

    `subject` is whose samples it explains ("server:<key>"), empty where that is deleted.
    """

    time: float
    kind: Kind
    label: str
    subject: str = ""


Subjects = Collection[str] | None  # None is all, the deleted ones too

FindMarks = Callable[[int, float, float, Subjects], list[Mark]]

_finders: list[FindMarks] = []


def register_marks(find: FindMarks) -> None:
    """Name a function that finds marks by (key of the host, start, end, subjects).

    Called from AppConfig.ready().
    """
    _finders.append(find)


def marks_between(host_pk: int, start: float, end: float, subjects: Subjects = None) -> list[Mark]:
    """Return the newest marks of some subjects of a host from start to end, the oldest first."""
    found = (mark for find in _finders for mark in find(host_pk, start, end, subjects))
    return sorted(found, key=lambda mark: mark.time)[-MOST:]
