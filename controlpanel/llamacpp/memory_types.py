"""The words of the memory estimate: graphics cards, what each is to hold, and the verdict. Sizes in MiB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from controlpanel.lib.text import Message, Worded

MIB = 1024 * 1024
HOST = -1
"""The place of what no graphics card holds."""

Dialect = Literal["upstream", "fork"]
Verdict = Literal["fits", "tight", "does not fit", "unknown"]

# Terms that are upper bounds unless a start has corrected them; all others are exact when they are known.
BOUNDS = frozenset({"compute", "mtp_compute", "mmproj_compute", "margin"})


class EstimateError(Worded):
    """Settings or files of which no server can be made; str() says why."""


@dataclass(frozen=True)
class Device:
    """One graphics card; `used` is what others hold of its `total`."""

    name: str
    total: float
    used: float = 0.0


@dataclass(frozen=True)
class DeviceFit:
    """What one card is to hold, by term; None is a term that the file does not tell.

    `total` is None while a term is. `capacity` is the card's own size; the term "others" counts against it.
    `bounds` are the terms that are upper bounds, `floors` what some of them are at least; the part `safety`
    of the card has to stay free.
    """

    name: str
    terms: Mapping[str, float | None]
    total: float | None
    capacity: float
    bounds: frozenset[str] = BOUNDS
    safety: float = 0.0
    floors: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def certain(self) -> float:
        """Return what the card has to hold for sure: the terms that are no upper bounds, and the floors."""
        exact = (value for key, value in self.terms.items() if key not in self.bounds)
        floors = (value for key, value in self.floors.items() if key in self.bounds)
        return sum(value for value in (*exact, *floors) if value is not None)

    @property
    def holds(self) -> bool:
        """Tell whether the card holds all of it and what has to stay free."""
        return self.total is not None and self.total <= self.capacity * (1 - self.safety)


@dataclass(frozen=True)
class Estimate:
    """What a server will take. `host` is main memory by term; `why` says what the verdict rests on.

    `bounds` are the terms that are upper bounds, `floors` what those of main memory are at least.
    """

    devices: tuple[DeviceFit, ...]
    host: Mapping[str, float | None]
    verdict: Verdict
    why: tuple[Message, ...]
    bounds: frozenset[str] = BOUNDS
    floors: Mapping[str, float | None] = field(default_factory=dict)


class Ledger:
    """Bytes by place and term while they are collected; once unknown, a term stays unknown."""

    def __init__(self) -> None:
        self._bytes: dict[int, dict[str, int | None]] = {}

    def add(self, place: int, term: str, size: int | None) -> None:
        """Add bytes to a term of a place; None makes it unknown."""
        terms = self._bytes.setdefault(place, {})
        before = terms.get(term, 0)
        terms[term] = None if size is None or before is None else before + size

    def mib(self, place: int) -> dict[str, float | None]:
        """Return the terms of a place in MiB."""
        terms = self._bytes.get(place, {})
        return {term: None if size is None else size / MIB for term, size in terms.items()}
