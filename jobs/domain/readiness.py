"""Whether a host is ready to serve models: everything that was read of it, judged in words.

Nothing here changes a host: a finding names the commands, and a person runs them.
"""

from __future__ import annotations

from collections.abc import Callable

from controlpanel.lib.text import N_, Message
from jobs.domain.readiness_facts import Facts, Finding, State
from jobs.domain.readiness_gpu import judge_gpu
from jobs.domain.readiness_host import judge_containers, judge_disk, judge_wsl
from jobs.domain.readiness_memory import judge_memory

__all__ = ["GROUPS", "STATE_WORDS", "Facts", "Finding", "State", "grouped", "judge"]

# Group: its name, what judges it, and what the page says when there is nothing to judge
GROUPS: dict[str, tuple[Message, Callable[[Facts], list[Finding]], Message]] = {
    "gpu": (Message(N_("GPU and driver")), judge_gpu, Message("")),
    "memory": (Message(N_("Memory and limits")), judge_memory, Message("")),
    "disk": (Message(N_("Disk")), judge_disk, Message("")),
    "containers": (Message(N_("Containers")), judge_containers, Message("")),
    "wsl": (
        Message("WSL2"),
        judge_wsl,
        Message(N_("This host does not run under Windows (WSL2): there is nothing to look at.")),
    ),
}
STATE_WORDS: dict[State, str] = {
    "good": N_("fine"),
    "look": N_("take a look"),
    "bad": N_("mend this"),
    "unknown": N_("not known"),
}


def grouped(facts: Facts) -> dict[str, list[Finding]]:
    """Return the findings of each of GROUPS, in their order."""
    return {group: judges(facts) for group, (_name, judges, _empty) in GROUPS.items()}


def judge(facts: Facts) -> list[Finding]:
    """Return all findings, group by group."""
    return [finding for findings in grouped(facts).values() for finding in findings]
