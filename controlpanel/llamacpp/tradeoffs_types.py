"""The words of trade-offs: what a change of settings gives and costs, and what a build can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from controlpanel.lib.text import Message
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.memory_types import Verdict

RANK: dict[Verdict, int] = {"fits": 0, "tight": 1, "unknown": 2, "does not fit": 3}
"""The verdicts, the best one first."""


class Loss(IntEnum):
    """What a change costs, the least first; SLOW is a loss of speed that everybody feels."""

    NONE = 0
    SPEED = 1
    QUALITY = 2
    SLOW = 3
    ABILITY = 4
    LAST = 5


@dataclass(frozen=True)
class Part:
    """A change of settings that was not judged yet; None unsets a key."""

    key: str
    changes: Mapping[str, object]
    loss: Loss
    label: Message
    cost: Message


@dataclass(frozen=True)
class Tradeoff:
    """A change of settings with what the estimate says of it; None in `changes` unsets a key.

    `freed` is how many MiB more the fullest card has left, whichever card that is before and after; it is
    None when what the cards hold is not known in full on one side only. `worst_over` are the MiB that the
    fullest card has still too many, as far as they are known and with what has to stay free.
    """

    key: str
    changes: Mapping[str, object]
    label: Message
    cost: Message
    freed: float | None
    verdict: Verdict
    verdict_now: Verdict
    worst_over: float
    loss: Loss


@dataclass(frozen=True)
class Offered:
    """The fields that a build has a flag for, with the values that it lists; empty for a number or a text."""

    values: Mapping[str, tuple[str, ...]]

    def allows(self, key: str, value: object) -> bool:
        """Tell whether a field can have a value with the build; None, which unsets it, it always can."""
        if value is None:
            return True
        listed = self.values.get(key)
        return listed is not None and (not listed or value in listed or whole(value) is not None)

    def allows_all(self, changes: Mapping[str, object]) -> bool:
        """Tell whether the build can do all changes."""
        return all(self.allows(key, value) for key, value in changes.items())


def offered_by(caps: Capabilities) -> Offered:
    """Return what a build can do."""
    return Offered(
        {key: meaning.offered(caps) for key, meaning in MEANINGS.items() if caps.find(*meaning.names)}
    )


def applied(settings: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Return the settings after the changes."""
    return {key: value for key, value in {**settings, **changes}.items() if value is not None}
