"""What one measured start teaches about the memory of computations and of the driver, and of nothing else.

It holds for a build, an architecture and a kind of device, and only for the same way of attention, with flash
attention or without; what a start did not show, such as MTP, stays an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.memory_layers import read_geometry
from controlpanel.llamacpp.memory_log import Buffers
from controlpanel.llamacpp.memory_places import layer_places
from controlpanel.llamacpp.memory_projector import projector_work
from controlpanel.llamacpp.memory_settings import read_settings
from controlpanel.llamacpp.memory_types import HOST, MIB, Device, Dialect
from controlpanel.llamacpp.memory_work import DRIVER, Work, draft_work, target_work

VERSION = 1
SPLITS = ("layer", "none")
"""The ways to split a model whose places are known."""

# Parts of a bound that make sense, and MiB of a driver.
_LIMITS = {"work": 4.0, "draft": 4.0, "projector": 4.0, "driver": 65_536.0}


@dataclass(frozen=True)
class Learned:
    """Parts of the upper bounds, and MiB of the driver; None is what the start did not tell.

    `work` and `draft` are parts of a layer's width in the model's own and in the MTP context, `projector` is
    the part of the bound of a projector.
    """

    flash: bool
    work: float | None = None
    draft: float | None = None
    projector: float | None = None
    driver: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON keeps it."""
        return {"version": VERSION, **asdict(self)}

    def filled(self, older: Learned) -> Learned:
        """Return it with what it does not tell taken from an older one, as far as that holds for it."""
        same = older.flash == self.flash
        return Learned(
            flash=self.flash,
            work=older.work if self.work is None and same else self.work,
            draft=older.draft if self.draft is None and same else self.draft,
            projector=older.projector if self.projector is None else self.projector,
            driver=older.driver if self.driver is None else self.driver,
        )

    @classmethod
    def from_dict(cls, data: object) -> Learned | None:
        """Return what JSON kept, None for what is of another version or makes no sense."""
        if not isinstance(data, dict) or data.get("version") != VERSION:
            return None
        flash = data.get("flash")
        values = {name: _within(data.get(name), limit) for name, limit in _LIMITS.items()}
        if not isinstance(flash, bool) or all(value is None for value in values.values()):
            return None
        return cls(flash, **values)


class Taught:
    """Corrects upper bounds by what was learned; `terms` are those that were corrected."""

    def __init__(self, learned: Learned | None, flash: bool) -> None:
        self._learned = learned
        self._same = learned is not None and learned.flash == flash
        self.terms: set[str] = set()

    def work(self, term: str, work: Work | None) -> int | None:
        """Return the bytes of a context's work memory, None when they are not known."""
        learned = self._learned if self._same else None
        part = None if learned is None else learned.work if term == "compute" else learned.draft
        if work is None or part is None:
            return None if work is None else work.bound()
        self.terms.add(term)
        return work.corrected(part)

    def projector(self, bound: int | None) -> int | None:
        """Return the bytes of a projector's work memory, None when they are not known."""
        part = self._learned.projector if self._learned else None
        if bound is None or part is None:
            return bound
        self.terms.add("mmproj_compute")
        return round(part * bound)

    def driver(self) -> int:
        """Return the bytes that the driver takes of a card."""
        size = self._learned.driver if self._learned else None
        if size is None:
            return DRIVER
        self.terms.add("margin")
        return round(size * MIB)


def learn(
    parts: Sequence[GgufHeader],
    mmproj: GgufHeader | None,
    settings: Mapping[str, object],
    dialect: Dialect,
    devices: Sequence[Device],
    buffers: Buffers,
    held: Mapping[int, float] | None = None,
) -> Learned | None:
    """Return what a start with these settings teaches, None when it teaches nothing.

    `held` is what the server's process held of each card in MiB. Raises EstimateError as `estimate` does.
    """
    header = parts[0]
    used = read_settings(settings, dialect, header.context_length)
    geometry = read_geometry(header)
    if geometry is None or used.split_mode not in SPLITS:
        return None
    places = layer_places(geometry, used, devices)
    measured = buffers.by_place()
    draft = projector = None
    if used.mtp:
        draft = _part(draft_work(header, geometry, used, places, len(devices)), measured, "mtp_compute")
    if mmproj is not None:
        bound = projector_work(mmproj)
        size = measured.get(0 if devices and used.mmproj_offload else HOST, {}).get("mmproj_compute")
        projector = size * MIB / bound if size and bound else None
    found = {
        "work": _part(target_work(header, geometry, used, places, len(devices)), measured, "compute"),
        "draft": draft,
        "projector": projector,
        "driver": _driver(measured, held or {}, len(devices)),
    }
    return Learned.from_dict({"version": VERSION, "flash": used.flash_attn, **found})


def _part(
    works: Mapping[int, Work | None], measured: Mapping[int, Mapping[str, float]], term: str
) -> float | None:
    """Return the part of a layer's width, the most of all places."""
    parts = []
    for place, work in works.items():
        size = measured.get(place, {}).get(term)
        part = work.part(size * MIB) if work and size else None
        if part is not None:
            parts.append(part)
    return max(parts, default=None)


def _driver(
    measured: Mapping[int, Mapping[str, float]], held: Mapping[int, float], cards: int
) -> float | None:
    """Return what a process holds of a card beside its buffers in MiB, the most of all cards."""
    found = [
        held[place] - sum(terms.values())
        for place, terms in measured.items()
        if place in held and 0 <= place < cards
    ]
    return max((size for size in found if size >= 0), default=None)


def _within(value: object, limit: float) -> float | None:
    """Return a number above 0 and up to a limit, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 < value <= limit else None
