"""Who holds the memory of a card: the parts of its bar, which add up to the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jobs.domain.gpu import GpuProcess, GpuSample

Kind = Literal["own", "foreign", "rest", "reserved", "free"]


@dataclass(frozen=True)
class Share:
    """A part of a card's memory in MiB: one of the panel's own runs, or all of another kind together.

    `rest` is in use, but by whom is not known: the driver itself, and programs whose memory it does not tell.
    """

    kind: Kind
    mib: int
    subject: str = ""


def subject_of(process: GpuProcess) -> str:
    """Return what tells one own program from another: its run's subject, else its pid."""
    return process.subject or f"pid:{process.pid}"


def shares(card: GpuSample) -> tuple[Share, ...]:
    """Return the parts from left to right without empty ones; nothing when the sizes are not known."""
    total, used = card.memory_total_mib, card.memory_used_mib
    if not total or used is None:
        return ()
    own: dict[str, int] = {}
    foreign = 0
    for process in card.processes or ():
        if process.ours:
            own[subject_of(process)] = own.get(subject_of(process), 0) + (process.memory_mib or 0)
        elif process.ours is False:
            foreign += process.memory_mib or 0
    left, found = min(max(used, 0), total), []
    # The driver's numbers are not of one moment: what programs hold beyond what is in use is not drawn.
    for share in (
        *(Share("own", own[subject], subject) for subject in sorted(own)),
        Share("foreign", foreign),
    ):
        part = min(share.mib, left)
        left -= part
        found.append(Share(share.kind, part, share.subject))
    free = total - min(max(used, 0), total)
    reserved = min(card.memory_reserved_mib or 0, free)
    found += [Share("rest", left), Share("reserved", reserved), Share("free", free - reserved)]
    return tuple(share for share in found if share.mib > 0)
