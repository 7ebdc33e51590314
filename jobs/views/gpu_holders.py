"""Who holds the memory of the cards of a host: the parts of the bar, and the same in words."""

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from jobs.domain.gpu import GpuProcess, Gpus, GpuSample
from jobs.domain.gpu_memory import Share, shares, subject_of
from jobs.registry import Subject, find_subjects
from jobs.views.measures import UNKNOWN, bar_of

SHADES = 5  # of the panel's own servers, in css/gpu.css


@dataclass(frozen=True)
class Holders:
    """The shade of each of the panel's own programs on a host, and the names of those that have one."""

    shades: dict[str, int]
    subjects: dict[str, Subject]

    def bar(self, card: GpuSample) -> dict[str, Any] | None:
        """Return the parts of a card's bar without what is free; None when the sizes are not known."""
        found = [(self._key(share), share.mib) for share in shares(card) if share.kind != "free"]
        if card.memory_used_mib is None or not card.memory_total_mib:
            return None
        return bar_of(found, card.memory_total_mib)

    def programs(self, card: GpuSample) -> list[dict[str, Any]] | None:
        """Return a card's programs; None when they are not known."""
        return None if card.processes is None else [self._program(item) for item in card.processes]

    def rest(self, card: GpuSample) -> list[dict[str, str]]:
        """Return what no program is known to hold."""
        words = {
            "rest": _("driver and unknown"),
            "reserved": _("reserved"),
            "free": _("free"),
        }
        return [
            {"key": share.kind, "name": words[share.kind], "memory": _mib(share.mib)}
            for share in shares(card)
            if share.kind in words
        ]

    def _key(self, share: Share) -> str:
        return f"own gpu-own-{self.shades[share.subject]}" if share.kind == "own" else share.kind

    def _program(self, process: GpuProcess) -> dict[str, Any]:
        subject = self.subjects.get(subject_of(process)) if process.ours else None
        key = "foreign" if process.ours is False else "rest"
        return {
            "pid": process.pid,
            "name": process.name or UNKNOWN,
            "user": process.user or "",
            "memory": UNKNOWN if process.memory_mib is None else _mib(process.memory_mib),
            "ours": process.ours,
            "subject": subject,
            "key": f"own gpu-own-{self.shades[subject_of(process)]}" if process.ours else key,
        }


def holders_of(gpus: Gpus, *, names: bool) -> Holders:
    """Return the panel's own programs on a host, whose shades are the same on all of its cards."""
    found = {subject_of(item) for card in gpus.gpus for item in card.processes or () if item.ours}
    pairs = {subject: tuple(subject.split(":", 1)) for subject in found if names}
    subjects = find_subjects((kind, key) for kind, key in pairs.values())
    return Holders(
        {subject: place % SHADES for place, subject in enumerate(sorted(found))},
        {subject: subjects[(kind, key)] for subject, (kind, key) in pairs.items() if (kind, key) in subjects},
    )


def _mib(number: int) -> str:
    return f"{number:,} MiB"
