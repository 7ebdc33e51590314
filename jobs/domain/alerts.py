"""Alerts as values: what a rule finds, and when that is worth telling somebody."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from controlpanel.lib.text import N_, Message

UNKNOWN = Message(N_("not known"))  # the value of what is not known
# Seconds until a notice that could not be sent is tried again, by the number of tries so far.
WAITS = (10, 30, 120, 600, 1800, 3600, 7200, 14_400)
MAX_WAIT = 14_400  # seconds that a service may ask to wait, as far as it is believed


@dataclass(frozen=True)
class Parameter:
    """The limit of a kind of rule: its unit, its default, and what may be entered."""

    unit: str
    default: float
    low: float
    high: float


@dataclass(frozen=True)
class Finding:
    """One subject that a rule looks at; `firing` is None when its state is not known.

    `key` stays the same for as long as the subject is there, `label` is how people know it.
    """

    key: str
    label: str
    firing: bool | None
    value: Message


@dataclass(frozen=True)
class Found:
    """All subjects of a rule; unless it is `whole`, one that is missing may still be there."""

    findings: tuple[Finding, ...]
    whole: bool = True


@dataclass(frozen=True)
class Event:
    """Something that happened once; `key` is its own and no other's."""

    key: str
    label: str
    value: Message
    at: datetime


@dataclass(frozen=True)
class Standing:
    """What is known of a subject before a look; times in seconds.

    `met_since` is when the condition was first seen, without a break since; `told` says whether the open
    alert was announced, `told_at` when any alert of the same rule and subject last was.
    """

    met_since: float | None = None
    is_open: bool = False
    told: bool = False
    told_at: float | None = None


@dataclass(frozen=True)
class Decision:
    """What follows from a look: open or close the alert, tell of it, and the new `met_since`."""

    met_since: float | None
    act: Literal["", "open", "close"] = ""
    tell: bool = False


def decide(standing: Standing, firing: bool | None, now: float, hold: float, cooldown: float) -> Decision:
    """Say what follows when a subject's condition is met (or not, or unknown) at `now`.

    A condition opens an alert once it has held for `hold` seconds; an alert is announced at most once, and
    not within `cooldown` seconds after the last announcement of the same subject; its end is told only where
    its beginning was. What is not known changes nothing.
    """
    if firing is None:
        return Decision(standing.met_since)
    if not firing:
        return Decision(None, "close", standing.told) if standing.is_open else Decision(None)
    since = now if standing.met_since is None else standing.met_since
    if not standing.is_open and now - since < hold:
        return Decision(since)
    cooling = standing.told_at is not None and now - standing.told_at < cooldown
    return Decision(since, "" if standing.is_open else "open", not standing.told and not cooling)


def wait_after(attempts: int, asked: float | None) -> float | None:
    """Return how many seconds to wait after so many failed tries; None when it was tried often enough.

    `asked` is for how long the service wants to be left alone.
    """
    if attempts > len(WAITS):
        return None
    return max(WAITS[attempts - 1], min(asked or 0.0, MAX_WAIT))
