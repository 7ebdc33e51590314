"""How much main memory the processes of a session hold for themselves."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from jobs.runtime.shim import stat_of

# What is mapped from a file (RssFile), such as a model, is left out: the kernel can drop it at any time.
OWN = ("RssAnon:", "RssShmem:", "VmSwap:")


def session_memory(leaders: Collection[int]) -> dict[int, int]:
    """Return the KiB that the sessions of these leaders hold, in memory or swapped out.

    What several processes of a session share counts for each of them.
    """
    found = dict.fromkeys(leaders, 0)
    for folder in Path("/proc").iterdir():
        stat = stat_of(int(folder.name)) if folder.name.isdigit() else None
        if stat is not None and stat[2] in found:
            found[stat[2]] += _own(folder)
    return found


def _own(folder: Path) -> int:
    try:
        lines = (folder / "status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(OWN))
