"""Settings tried out on the memory estimate. Sizes in MiB."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controlpanel.llamacpp.gguf_header import GgufHeader, Tensor
from controlpanel.llamacpp.memory import estimate
from controlpanel.llamacpp.memory_layers import read_geometry
from controlpanel.llamacpp.memory_learn import SPLITS, Learned
from controlpanel.llamacpp.memory_places import layer_places
from controlpanel.llamacpp.memory_settings import Settings, read_settings
from controlpanel.llamacpp.memory_types import Device, DeviceFit, Dialect, Estimate, EstimateError, Verdict
from controlpanel.llamacpp.memory_work import GATE
from controlpanel.llamacpp.tradeoffs_types import RANK, applied

LIMIT = 250
"""How many estimates one list of trade-offs may take."""

_LAYER = re.compile(r"blk\.\d+\.")
_LEAST = 1.0  # MiB; less is not worth a change


@dataclass(frozen=True)
class Outcome:
    """What the estimate says of changed settings.

    `loads` are the known MiB of each card, `rooms` what each has left beside what has to stay free, `used`
    whether the server puts anything on it. `unknown` names the terms that are not known, with their cards.
    """

    verdict: Verdict
    loads: tuple[float, ...]
    rooms: tuple[float, ...]
    used: tuple[bool, ...]
    unknown: frozenset[tuple[int, str]]

    @property
    def rank(self) -> int:
        """Return the place of the verdict, 0 for the best."""
        return RANK[self.verdict]

    @property
    def room(self) -> float:
        """Return what the fullest card in use has left; below 0 what it has too many."""
        mine = [room for room, used in zip(self.rooms, self.used, strict=True) if used]
        return min(mine or self.rooms)

    def freed(self, before: Outcome) -> float | None:
        """Return how much more room the fullest card has, None when one side only is known in full."""
        return self.room - before.room if self.unknown == before.unknown else None

    def better(self, before: Outcome) -> bool:
        """Tell whether the verdict is better, or as good and the fullest card has more room."""
        if self.rank != before.rank:
            return self.rank < before.rank
        return self.room - before.room >= _LEAST


class Trial:
    """Estimates of one profile with changed settings; each is made once, and LIMIT of them at most.

    Raises EstimateError when the settings as they are have no estimate.
    """

    def __init__(
        self,
        parts: Sequence[GgufHeader],
        mmproj: GgufHeader | None,
        settings: Mapping[str, object],
        dialect: Dialect,
        devices: Sequence[Device],
        learned: Learned | None = None,
    ) -> None:
        self.header = parts[0]
        self.parts = tuple(_compact(part, parts[0].mtp_tensor) for part in parts)
        self.mmproj = mmproj
        self.settings = settings
        self.dialect = dialect
        self.devices = tuple(devices)
        self.learned = learned
        self.geometry = read_geometry(self.header)
        self.has_experts = any("_exps" in name for part in parts for name in part.tensor_names)
        self.spent = 0
        self.splits: dict[tuple[int, ...], str] = {}
        self._known: dict[tuple[tuple[str, str], ...], Outcome | None] = {}
        self.base = _outcome(self._estimate({}))
        self.used = self.settings_with({})

    def outcome(self, changes: Mapping[str, object]) -> Outcome | None:
        """Return what changes lead to, None when no server can be made of them or LIMIT is reached."""
        key = tuple(sorted((name, repr(value)) for name, value in changes.items()))
        if key not in self._known and self.spent < LIMIT:
            try:
                self._known[key] = _outcome(self._estimate(changes))
            except EstimateError:
                self._known[key] = None
        return self._known.get(key)

    def reaches(self, changes: Mapping[str, object], rank: int) -> bool:
        """Tell whether the verdict of changes is as good as a rank."""
        found = self.outcome(changes)
        return found is not None and found.rank <= rank

    def settings_with(self, changes: Mapping[str, object]) -> Settings:
        """Return the changed settings with the server's defaults."""
        return read_settings(applied(self.settings, changes), self.dialect, self.header.context_length)

    def places(self, changes: Mapping[str, object]) -> tuple[int, ...]:
        """Return the place of each layer and of the output with the changes, empty when not known."""
        if self.geometry is None or self.used.split_mode not in SPLITS:
            return ()
        return layer_places(self.geometry, self.settings_with(changes), self.devices)

    def _estimate(self, changes: Mapping[str, object]) -> Estimate:
        self.spent += 1
        settings = applied(self.settings, changes)
        return estimate(self.parts, self.mmproj, settings, self.dialect, self.devices, self.learned)


def _compact(part: GgufHeader, mtp_tensor: str) -> GgufHeader:
    """Return the header with one tensor for all of a layer that go the same way, which is much faster."""
    groups: dict[str, list[Tensor]] = {}
    for tensor in part.tensors:
        block = _LAYER.match(tensor.name)
        # Experts may be placed apart; MTP heads and gates are known by one name.
        alone = block is None or "exp" in tensor.name or tensor.name in (mtp_tensor, GATE)
        groups.setdefault(tensor.name if alone or block is None else block[0], []).append(tensor)
    return replace(part, tensors=tuple(_sum(group) for group in groups.values()))


def _sum(group: Sequence[Tensor]) -> Tensor:
    sizes = [tensor.size for tensor in group if tensor.size is not None]
    return group[0]._replace(size=sum(sizes) if len(sizes) == len(group) else None)


def _outcome(found: Estimate) -> Outcome:
    loads = tuple(map(_load, found.devices))
    rooms = tuple(
        fit.capacity * (1 - fit.safety) - load for fit, load in zip(found.devices, loads, strict=True)
    )
    used = (any(value != 0 for key, value in fit.terms.items() if key != "others") for fit in found.devices)
    unknown = (
        (index, key)
        for index, fit in enumerate(found.devices)
        for key, value in fit.terms.items()
        if value is None
    )
    return Outcome(found.verdict, loads, rooms, tuple(used), frozenset(unknown))


def _load(fit: DeviceFit) -> float:
    if fit.total is not None:
        return fit.total
    return sum(value for value in fit.terms.values() if value is not None)
