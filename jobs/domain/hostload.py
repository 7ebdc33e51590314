"""How busy a host is, as values: what the kernel's files say, and a sample as pages and charts get it.

None stands for "not known" everywhere; a zero is a measured zero. Memory and disk are in MiB.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import PurePosixPath
from typing import Any

from jobs.domain.gpu import MIB, STALE_AFTER

KIB_PER_MIB = 1024
FINE = 10  # MiB; less is not worth a message to pages
_IDLE = slice(3, 5)  # of the times in /proc/stat: idle, and waiting for a disk
_TIMES = 8  # those after them, of guests, are part of the first two


@dataclass(frozen=True)
class HostLoad:
    """A host at one moment: `cpu` in percent of all cores since the sample before, `disk` of the data folder.

    In a container whose memory is limited below that of the machine, memory is the container's.
    """

    cpu: float | None = None
    cores: int | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    swap_total_mib: int | None = None
    swap_used_mib: int | None = None
    disk_total_mib: int | None = None
    disk_free_mib: int | None = None
    load_1m: float | None = None
    load_5m: float | None = None
    load_15m: float | None = None

    def rounded(self) -> HostLoad:
        """Return what pages show of it: what differs in less is no news."""
        sizes = {name: value // FINE * FINE for name, value in asdict(self).items() if _moves(name, value)}
        return replace(self, cpu=None if self.cpu is None else round(self.cpu), **sizes)


@dataclass(frozen=True)
class LoadSample:
    """A host's load as read at `time` (seconds since 1970)."""

    time: float
    load: HostLoad

    def stale_since(self, now: float) -> float | None:
        """Return since when the numbers are old, or None when they are not."""
        return self.time if now - self.time > STALE_AFTER else None


@dataclass(frozen=True)
class CpuTimes:
    """What all cores together have done since the start of the host, in ticks."""

    busy: int
    total: int


@dataclass(frozen=True)
class GroupFiles:
    """How one version of control groups names what it says about memory."""

    limit: str
    used: str
    files: tuple[str, str, str]  # keys of memory.stat: what the kernel can drop at any time


GROUPS_V2 = GroupFiles("memory.max", "memory.current", ("active_file", "inactive_file", "slab_reclaimable"))
# What may be dropped of its own structures, version 1 does not tell.
GROUPS_V1 = GroupFiles(
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file", "")
)


def number(text: str) -> int | None:
    """Return a count as the kernel writes it."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def cpu_times(stat: str) -> CpuTimes | None:
    """Read the first line of /proc/stat."""
    name, *words = stat.partition("\n")[0].split() or [""]
    times = [number(word) for word in words[:_TIMES]]
    known = [time for time in times if time is not None]
    if name != "cpu" or len(known) < _IDLE.stop or len(known) < len(times):
        return None
    total = sum(known)
    return CpuTimes(total - sum(known[_IDLE]), total)


def cpu_percent(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Return the busy share between two reads; None when the counters did not move or went back."""
    if before is None or after is None or after.total <= before.total:
        return None
    # The kernel's time without work may go back by a little.
    return min(max(100.0 * (after.busy - before.busy) / (after.total - before.total), 0.0), 100.0)


def cores(stat: str) -> int | None:
    """Return how many cores /proc/stat lists."""
    return sum(line.startswith("cpu") and line[3:4].isdigit() for line in stat.splitlines()) or None


def load_averages(text: str) -> tuple[float | None, float | None, float | None]:
    """Read /proc/loadavg: of the last minute, five and fifteen."""
    one, five, fifteen = ([_positive(word) for word in text.split()[:3]] + [None] * 3)[:3]
    return one, five, fifteen


def with_memory(load: HostLoad, meminfo: str) -> HostLoad:
    """Fill in main memory and swap from /proc/meminfo; used is what programs could not get."""
    found = _table(meminfo)
    total, swap = (found.get(name) for name in ("MemTotal", "SwapTotal"))
    return replace(
        load,
        memory_total_mib=_mib(total),
        memory_used_mib=_mib(_less(total, found.get("MemAvailable"))),
        swap_total_mib=_mib(swap),
        swap_used_mib=_mib(_less(swap, found.get("SwapFree"))),
    )


def with_limit(load: HostLoad, limit: int, used: int | None, stat: str, files: GroupFiles) -> HostLoad:
    """Make memory that of a control group with a limit (bytes) below the machine's memory.

    `used` is what the group holds in bytes, `stat` its memory.stat. As on a whole machine, what the kernel
    keeps of files does not count: a model that is mapped from its file can be dropped and read again.
    """
    found = _table(stat)
    cached = [found.get(key) for key in files.files[:2]]
    held = None if used is None or None in cached else used - sum(found.get(key, 0) for key in files.files)
    used_mib = None if held is None else min(max(held, 0), limit) // MIB
    return replace(load, memory_total_mib=limit // MIB, memory_used_mib=used_mib)


def memory_groups(own: str, mounts: str) -> tuple[GroupFiles, list[str]] | None:
    """Return the folders of this process's memory group and of those above it, from the innermost.

    `own` is /proc/self/cgroup, `mounts` /proc/self/mountinfo. A container may see its own group only, as the
    top of what is mounted. Where both versions are mounted, the one that controls memory counts.
    """
    groups = [parts for line in own.splitlines() if len(parts := line.split(":", 2)) == 3]
    first = next((path for _, names, path in groups if "memory" in names.split(",")), None)
    if first is not None:
        return _folders(first, mounts, lambda kind, words: kind == "cgroup" and "memory" in words, GROUPS_V1)
    second = next((path for number, names, path in groups if (number, names) == ("0", "")), None)
    if second is not None:
        return _folders(second, mounts, lambda kind, _words: kind == "cgroup2", GROUPS_V2)
    return None


def _folders(
    path: str, mounts: str, fits: Callable[[str, list[str]], bool], files: GroupFiles
) -> tuple[GroupFiles, list[str]] | None:
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if len(place) < 5 or len(kind) < 3 or not fits(kind[0], kind[2].split(",")):
            continue
        top, point = PurePosixPath(place[3]), PurePosixPath(place[4].replace("\\040", " "))
        inner = PurePosixPath(path)
        below = inner.relative_to(top) if inner.is_relative_to(top) else PurePosixPath()
        if ".." in below.parts:  # a group outside of what this process may see
            below = PurePosixPath()
        return files, [str(point / part) for part in (below, *below.parents)]
    return None


def to_json(sample: LoadSample) -> str:
    """Return the sample as one JSON object."""
    return json.dumps(asdict(sample), separators=(",", ":"))


def from_json(text: str | bytes) -> LoadSample:
    """Read what to_json wrote, by this or another version of the panel; ValueError when it is no sample."""
    try:
        found = json.loads(text)
        values: Mapping[str, Any] = found["load"]
        known = {field.name: _measured(values.get(field.name)) for field in fields(HostLoad)}
        return LoadSample(float(_measured(found["time"])), HostLoad(**known))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError("this is no sample") from error


def _measured(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise TypeError(value)
    if value is not None and not math.isfinite(value):
        raise TypeError(value)
    return value


def _moves(name: str, value: object) -> bool:
    return name.endswith(("_used_mib", "_free_mib")) and value is not None


def _positive(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _table(text: str) -> dict[str, int]:
    """Return the first number of each line by the word before it."""
    return dict(_pairs(text.splitlines()))


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, int]]:
    for line in lines:
        words = line.split(None, 2)
        value = number(words[1]) if len(words) > 1 else None
        if value is not None:
            yield words[0].removesuffix(":"), value


def _less(total: int | None, free: int | None) -> int | None:
    return None if total is None or free is None else max(total - free, 0)


def _mib(kib: int | None) -> int | None:
    return None if kib is None else kib // KIB_PER_MIB
