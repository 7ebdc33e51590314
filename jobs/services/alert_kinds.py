"""Registry of what an alert rule can watch: states of subjects, and things that happen once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext

from controlpanel.lib.text import Message
from jobs.domain.alerts import Event, Found, Parameter

# Called with the rule's limit (0.0 where the kind has none); None when nothing is known at all.
FindStates = Callable[[float], Found | None]
FindEvents = Callable[[datetime], list[Event]]


@dataclass(frozen=True)
class AlertKind:
    """A kind of rule: exactly one of `find` (states) and `events` (what ended after a moment) is given.

    `title` names it in a list, `says` is the sentence of a rule with %(limit)s in it, `what` explains it. A
    new rule begins with `hold_s`.
    """

    name: str
    title: str
    says: str
    what: str
    parameter: Parameter | None = None
    find: FindStates | None = None
    events: FindEvents | None = None
    hold_s: int = 60

    @property
    def title_text(self) -> str:
        """Its name in the reader's language."""
        return gettext(self.title)

    @property
    def what_text(self) -> str:
        """What it explains in the reader's language."""
        return gettext(self.what)

    def rule_title(self, threshold: float | None) -> Message:
        """Return what a rule of this kind with this limit says."""
        if self.parameter is None:
            return Message(self.says)
        limit = self.parameter.default if threshold is None else threshold
        return Message(self.says, {"limit": f"{limit:g}"})


_kinds: dict[str, AlertKind] = {}


def register_alert_kind(kind: AlertKind) -> None:
    """Make a kind of rule known; called from AppConfig.ready()."""
    _kinds[kind.name] = kind


def alert_kind(name: str) -> AlertKind | None:
    """Return the registered kind, or None when no app knows it (any more)."""
    return _kinds.get(name)


def alert_kinds() -> list[AlertKind]:
    """Return all kinds in the order in which they were registered."""
    return list(_kinds.values())
