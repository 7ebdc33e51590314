"""What is wrong with a policy, and what in it has another effect than somebody may think."""

from __future__ import annotations

from collections.abc import Mapping

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.meaning_kinds import shown
from controlpanel.llamacpp.problems import Problem, error, warning
from servers.domain.policy import FIELDS, LIMITS, NEVER, RESTARTS, policy_of, possible

PREFIX = "policy_"
"""What the keys of the form have before the name of a field of the policy."""

_RESTARTING = ("limit", "stable_s", "hang_s", "order")


def problems_of(stored: Mapping[str, object], sleep_idle: object = None) -> list[Problem]:
    """Return what is wrong with the stored values; `sleep_idle` is the server's own setting of that name."""
    wrong = [_wrong(name, value) for name, value in stored.items() if not _right(name, value)]
    told = {problem.field for problem in wrong}
    return [*wrong, *(problem for problem in _doubtful(stored, sleep_idle) if problem.field not in told)]


def _right(name: str, value: object) -> bool:
    return name in FIELDS and possible(name, value)


def _wrong(name: str, value: object) -> Problem:
    key = f"{PREFIX}{shown(name)}"
    if name in LIMITS:
        low, high = LIMITS[name]
        text = N_("Give a whole number from %(low)s to %(high)s, not %(value)s.")
        return error(key, text, low=low, high=high, value=shown(value))
    if name == "restart":
        text = N_("The panel restarts never, on-failure or always, not %(value)s.")
        return error(key, text, value=shown(value))
    if name == "on_demand":
        return error(key, N_("Start on demand is yes or no, not %(value)s."), value=shown(value))
    return error(key, N_("There is nothing called %(name)s that keeps a server running."), name=shown(name))


def _doubtful(stored: Mapping[str, object], sleep_idle: object) -> list[Problem]:
    policy = policy_of(stored)
    found = []
    if policy.restart == NEVER:
        text = N_("This has no effect as long as the field Restart says: %(never)s.")
        never = Message(RESTARTS[NEVER])
        found += [warning(f"{PREFIX}{name}", text, never=never) for name in _RESTARTING if name in stored]
    if policy.idle_min is None:
        return found
    if not policy.on_demand:
        text = N_("Without Start on demand it stays unloaded until somebody starts it.")
        found.append(warning(f"{PREFIX}idle_min", text))
    if sleep_idle is not None:
        text = N_(
            "Sleep when idle is set too. It frees the model and keeps the process, which loads it again by "
            "itself; this ends the process. What has the shorter time comes first."
        )
        found.append(warning(f"{PREFIX}idle_min", text))
    return found
