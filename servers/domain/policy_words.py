"""How a person calls the fields of a policy and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from controlpanel.lib.text import N_, Message
from servers.domain.policy import RESTARTS, policy_of


@dataclass(frozen=True)
class Words:
    """A field's label, its help in one sentence, its unit, and what it means that there is no number."""

    label: str
    help: str
    unit: str = ""
    none: str = ""


SECONDS = N_("seconds")

# In the order of the form.
WORDS: Mapping[str, Words] = {
    "restart": Words(
        N_("Restart"), N_("Whether the panel starts the server again when it ended without being asked to.")
    ),
    "limit": Words(
        N_("Restarts in a row"),
        N_("So many starts follow a failure; after them the server rests until somebody starts it."),
    ),
    "stable_s": Words(
        N_("Stable after"),
        N_("Once it was ready for so long, restarts are counted from the beginning."),
        SECONDS,
    ),
    "hang_s": Words(
        N_("Restart when silent for"),
        N_("A ready server that gives no answer for so long is restarted; 0 leaves it alone."),
        SECONDS,
    ),
    "memory_mib": Words(
        N_("Memory limit"),
        N_("With more main memory than this the server is ended; a mapped model file does not count."),
        N_("MiB"),
        N_("no limit"),
    ),
    "order": Words(
        N_("Order after a reboot"),
        N_("Servers that share a graphics card start one after the other, the lowest number first."),
    ),
    "idle_min": Words(
        N_("Unload when unused for"),
        N_("After so long without a request the process is ended and its memory is free for others."),
        N_("minutes"),
        N_("never"),
    ),
    "on_demand": Words(
        N_("Start on demand"),
        N_("A request starts the server when it is not running, unless a person stopped it."),
    ),
}


def worded(name: str, value: object) -> Message:
    """Return a possible value of a field in words."""
    words = WORDS[name]
    if name == "restart":
        return Message(RESTARTS[str(value)])
    if isinstance(value, bool):
        return Message(N_("yes") if value else N_("no"))
    if value is None:
        return Message(words.none)
    if words.unit:
        return Message("%(number)s %(unit)s", {"number": value, "unit": Message(words.unit)})
    return Message("%(number)s", {"number": value})


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Message, Message]]:
    """Return what differs between two stored policies: label, value before, value after."""
    old, new = asdict(policy_of(before)), asdict(policy_of(after))
    return [
        (words.label, worded(name, old[name]), worded(name, new[name]))
        for name, words in WORDS.items()
        if old[name] != new[name]
    ]
