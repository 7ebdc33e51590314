"""What a rule about a command may look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.facts import HostFacts, ModelFacts
from controlpanel.llamacpp.helptext import normalise
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.problems import Problem

# Slots of a server that is left to choose; they share one cache.
AUTO_SLOTS = 4
# Cache types that are not quantised: V needs no flash attention with them.
PLAIN_TYPES = ("f32", "f16", "bf16")
_DEVICES = ("-dev", "--device")


@dataclass(frozen=True)
class Case:
    """Everything a rule may look at; `model` and `mmproj` are None when nothing is known of them."""

    caps: Capabilities
    settings: Mapping[str, object]
    extra: tuple[str, ...]
    model: ModelFacts | None
    mmproj: ModelFacts | None
    environment: Mapping[str, str] = field(default_factory=dict)
    host: HostFacts = HostFacts()

    @property
    def mtp(self) -> bool:
        """Tell whether MTP is asked for and the build has it."""
        return self.settings.get("speculation") == "mtp" and self.caps.mtp_value is not None

    @property
    def older_mtp(self) -> bool:
        """Tell whether MTP is asked for and the build has it in the older dialect."""
        return self.mtp and self.caps.mtp_value == "mtp"

    @property
    def native(self) -> int | None:
        """Return the tokens that the model was trained for."""
        return self.model.context_length if self.model else None

    @property
    def slots(self) -> int:
        """Return how many conversations the server holds at once."""
        parallel = self.number("parallel")
        return AUTO_SLOTS if parallel is None or parallel < 1 else parallel

    @property
    def per_slot(self) -> int | None:
        """Return the tokens that one conversation can have, None when neither setting nor file says it.

        Slots share the context; left alone, their number is automatic and each may use all of it.
        """
        size = self.number("ctx_size") or self.native
        if size is None or self.on("kv_unified") or self.number("parallel") is None:
            return size
        return size // self.slots

    @property
    def devices(self) -> int | None:
        """Return how many GPUs the server sees, None when unknown or chosen by the extra arguments."""
        if self.in_extra(_DEVICES):
            return None
        visible = self.environment.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            return _visible(visible)
        return self.host.gpus or len(self.caps.devices) or None

    def number(self, key: str) -> int | None:
        """Return a field as a whole number, None when it is empty or something else."""
        return whole(self.settings.get(key))

    def decimal(self, key: str) -> float | None:
        """Return a field as a finite number, None when it is empty or something else."""
        value = self.settings.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None

    def on(self, key: str) -> bool:
        """Tell whether a switch is set to on."""
        return self.settings.get(key) == "on"

    def quantised(self, key: str) -> bool:
        """Tell whether a field holds a quantised cache type."""
        kind = self.settings.get(key)
        return kind is not None and kind not in PLAIN_TYPES

    def default(self, name: str) -> int | None:
        """Return the build's own default of a flag as a whole number."""
        flag = self.caps.find(name)
        return whole(flag.default) if flag else None

    def in_extra(self, names: tuple[str, ...]) -> bool:
        """Tell whether one of the flags is among the extra arguments."""
        return any(normalise(word) in names for word in self.extra)


Rule = Callable[[Case], Problem | None]


def _visible(value: str) -> int:
    """Return how many devices CUDA takes from the variable: it stops at the first that is none."""
    count = 0
    for entry in value.split(","):
        name = entry.strip()
        if not name or name.startswith("-") or name == "NoDevFiles":
            break
        count += 1
    return count
