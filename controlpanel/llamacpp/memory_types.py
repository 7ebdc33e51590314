"""The words of the memory estimate: graphics cards, what each is to hold, and the verdict. Sizes in MiB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from controlpanel.lib.text import Message, Worded

MIB = 1024 * 1024
HOST = -1
"""The place of what no graphics card holds."""

Dialect = Literal["upstream", "fork"]
Verdict = Literal["fits", "tight", "does not fit", "unknown"]

# Terms that are upper bounds; all others are exact when they are known.
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
    """

    name: str
    terms: Mapping[str, float | None]
    total: float | None
    capacity: float

    @property
    def certain(self) -> float:
        """Return the sum of the known terms that are no upper bounds."""
        return sum(value for key, value in self.terms.items() if value is not None and key not in BOUNDS)


@dataclass(frozen=True)
class Estimate:
    """What a server will take. `host` is main memory by term; `why` says what the verdict rests on."""

    devices: tuple[DeviceFit, ...]
    host: Mapping[str, float | None]
    verdict: Verdict
    why: tuple[Message, ...]


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
