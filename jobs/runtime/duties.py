"""Registry of what the host agent does again and again; apps add theirs in AppConfig.ready()."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Duty:
    """A function called every `every` seconds; a call that takes longer than `deadline` s is reported.

    A coroutine function runs in the agent's loop and must not block it; a plain one runs in a thread.
    `at_end` is called once when the agent is told to stop, in a thread, and has 1.5 s.
    """

    name: str
    every: float
    call: Callable[[], Awaitable[None] | None]
    deadline: float = 30.0
    at_end: Callable[[], None] | None = None


_duties: dict[str, Duty] = {}


def register_duty(duty: Duty) -> None:
    """Add a duty; a second one of the same name replaces the first."""
    _duties[duty.name] = duty


def duties() -> list[Duty]:
    """Return all registered duties."""
    return list(_duties.values())
