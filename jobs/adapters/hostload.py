"""Reads how busy this host is, from the kernel's own files; nothing is asked of other programs."""

from __future__ import annotations

import os
from pathlib import Path

from jobs.domain.gpu import MIB
from jobs.domain.hostload import (
    CpuTimes,
    GroupFiles,
    HostLoad,
    cores,
    cpu_percent,
    cpu_times,
    load_averages,
    memory_groups,
    number,
    with_limit,
    with_memory,
)

LIMIT = 256 * 1024  # bytes of a file: hosts with hundreds of cores have a long /proc/stat


class HostReader:
    """Reads below `root`; the use of the processor is that since the read before, so the first has none."""

    def __init__(self, folder: Path, root: Path = Path("/")) -> None:
        self._folder = folder
        self._root = root
        self._times: CpuTimes | None = None
        # A process stays below the groups it started in, and hosts with containers have long lists of mounts.
        own, mounts = (self._text(f"proc/self/{name}") for name in ("cgroup", "mountinfo"))
        self._groups = memory_groups(own, mounts)

    def read(self) -> HostLoad:
        """Return the load now; what cannot be read is unknown. Never raises."""
        stat = self._text("proc/stat")
        before, self._times = self._times, cpu_times(stat)
        load_1m, load_5m, load_15m = load_averages(self._text("proc/loadavg"))
        total, free = _disk(self._folder)
        load = HostLoad(
            cpu=cpu_percent(before, self._times),
            cores=cores(stat),
            disk_total_mib=total,
            disk_free_mib=free,
            load_1m=load_1m,
            load_5m=load_5m,
            load_15m=load_15m,
        )
        return self._limited(with_memory(load, self._text("proc/meminfo")))

    def _limited(self, load: HostLoad) -> HostLoad:
        if self._groups is None:
            return load
        files, folders = self._groups
        limits = [(limit, folder) for folder in folders if (limit := self._limit(folder, files)) is not None]
        if not limits:
            return load
        limit, folder = min(limits)
        if load.memory_total_mib is None or limit // MIB >= load.memory_total_mib:
            return load
        used = number(self._text(f"{folder}/{files.used}"))
        return with_limit(load, limit, used, self._text(f"{folder}/memory.stat"), files)

    def _limit(self, folder: str, files: GroupFiles) -> int | None:
        return number(self._text(f"{folder}/{files.limit}"))

    def _text(self, path: str) -> str:
        try:
            with (self._root / path.lstrip("/")).open("rb", buffering=0) as file:
                return _all(file.fileno()).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""


def _all(descriptor: int) -> bytes:
    """Read to the end or to LIMIT."""
    found = b""
    while len(found) < LIMIT and (part := os.read(descriptor, LIMIT - len(found))):
        found += part
    return found


def _disk(folder: Path) -> tuple[int | None, int | None]:
    """Return the size of a folder's disk and what is free for the panel, in MiB."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize // MIB, found.f_bavail * found.f_frsize // MIB
