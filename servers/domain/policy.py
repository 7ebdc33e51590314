"""How a profile's server is kept alive: what somebody chose, and what follows when its process ends.

Times are in seconds, memory in MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from controlpanel.lib.text import N_, Message

BACK_OFF = (2.0, 10.0, 30.0)  # seconds before the first, the second and each further start
AFTER_BOOT = 5.0  # seconds in which all that ran before a reboot is known, so that the first can begin
NEVER, ON_FAILURE, ALWAYS = "never", "on-failure", "always"
RESTARTS = {NEVER: N_("never"), ON_FAILURE: N_("on failure"), ALWAYS: N_("always")}

# Lowest and highest number of each field; None stands for "off" where the default is None.
LIMITS: Mapping[str, tuple[int, int]] = {
    "limit": (1, 100),
    "stable_s": (10, 86_400),
    "hang_s": (0, 86_400),
    "memory_mib": (64, 16 * 1024 * 1024),
    "idle_min": (1, 7 * 24 * 60),
    "order": (1, 999),
}


@dataclass(frozen=True)
class Policy:
    """What the panel does by itself for one server.

    At most `limit` starts follow a failure until one of them is stable: ready for `stable_s` s. A ready
    server that gives no answer for `hang_s` s is restarted (0: left alone). Above `memory_mib` of main memory
    it is ended. After `idle_min` minutes without a request it is unloaded; `on_demand` starts it for a
    request. After a reboot servers that share cards start by their `order`, the lowest first.
    """

    restart: str = ON_FAILURE
    limit: int = 3
    stable_s: int = 300
    hang_s: int = 60
    memory_mib: int | None = None
    idle_min: int | None = None
    on_demand: bool = False
    order: int = 100


DEFAULT = Policy()
FIELDS = tuple(column.name for column in fields(Policy))


def policy_of(stored: Mapping[str, Any]) -> Policy:
    """Return the policy that stored values give; what is missing or no longer possible has its default."""
    return Policy(
        **{name: value for name, value in stored.items() if name in FIELDS and possible(name, value)}
    )


def values_of(policy: Policy) -> dict[str, Any]:
    """Return what is stored of a policy: the values that are not the default."""
    default = asdict(DEFAULT)
    return {name: value for name, value in asdict(policy).items() if value != default[name]}


def possible(name: str, value: object) -> bool:
    """Tell whether a field of the policy can have a value."""
    if name == "restart":
        return isinstance(value, str) and value in RESTARTS
    if name == "on_demand":
        return isinstance(value, bool)
    low, high = LIMITS[name]
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


@dataclass(frozen=True)
class End:
    """How a server's process ended without being asked to.

    `exit_code` is None where unknown; `ready_s` says for how long it was ready, None: it never was.
    `mendable` is false when another start can only end in the same way. `rebooted`: the host was restarted.
    """

    exit_code: int | None = None
    ready_s: float | None = None
    mendable: bool = True
    rebooted: bool = False


@dataclass(frozen=True)
class Decision:
    """What follows: rest, give up, or start again after `wait_s`.

    `attempts` are the starts by the panel itself since the server was stable.
    `why` says in words why it is not started again, None when it is or when nobody would expect it.
    """

    kind: Literal["rest", "give_up", "retry"]
    attempts: int
    wait_s: float = 0.0
    why: Message | None = None


def decide(policy: Policy, attempts: int, end: End) -> Decision:
    """Say what follows when a server ended that was to run, after `attempts` starts by the panel itself."""
    stable = end.ready_s is not None and end.ready_s >= policy.stable_s
    done = 0 if stable or end.rebooted else attempts
    if policy.restart == NEVER:
        return Decision("rest", done)
    if end.rebooted:
        return Decision("retry", 0, AFTER_BOOT)
    if policy.restart == ON_FAILURE and end.exit_code == 0:
        return Decision("rest", done)
    if not end.mendable:
        return Decision(
            "give_up", done, why=Message(N_("It is not started again: that would fail in the same way."))
        )
    if done >= policy.limit:
        text = N_("It is not started again: %(number)s starts in a row have failed.")
        return Decision("give_up", done, why=Message(text, {"number": done + 1}))
    return Decision("retry", done + 1, BACK_OFF[min(done, len(BACK_OFF) - 1)])
