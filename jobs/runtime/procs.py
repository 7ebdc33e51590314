"""Processes named for good: a pid alone may pass to a stranger, pid + start time + boot id cannot."""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path

from jobs.runtime.shim import boot_id, kill_session, stat_of

__all__ = [
    "Proc",
    "alive",
    "boot_id",
    "end_session",
    "find_by_environ",
    "proc_of",
    "signal_group",
    "signal_proc",
    "this_process",
    "wait_exit",
]

ENVIRON_LIMIT = 4 << 20


@dataclass(frozen=True)
class Proc:
    """One process: pid, start time in clock ticks since boot, and the id of that boot."""

    pid: int
    start: int
    boot: str


def this_process() -> Proc:
    """The calling process."""
    found = proc_of(os.getpid())
    if found is None:
        raise OSError("/proc does not show this process; is it mounted?")
    return found


def proc_of(pid: int) -> Proc | None:
    """The process that has the pid now, a zombie too; None where there is none."""
    stat = stat_of(pid)
    return None if stat is None else Proc(pid, stat[3], boot_id())


def alive(proc: Proc) -> bool:
    """Whether this very process still runs; a zombie does not."""
    stat = _stat_of_same(proc)
    return stat is not None and stat[0] not in "ZX"


def signal_proc(proc: Proc, number: int) -> bool:
    """Sends a signal to this very process; False where it is gone or belongs to somebody else."""
    handle = _open(proc)
    if handle is None:
        return False
    try:
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def signal_group(proc: Proc, number: int) -> bool:
    """Sends a signal to the process group that `proc` leads; False where it does not lead one any more.

    A leader that has ended but is not yet reaped still holds its group's number.
    """
    if _stat_of_same(proc) is None:
        return False
    try:
        os.killpg(proc.pid, number)
    except OSError:
        return False
    return True


def end_session(proc: Proc) -> bool:
    """SIGKILL to the group and to the whole session that `proc` leads; False where it leads none any more."""
    stat = _stat_of_same(proc)
    if stat is None or stat[2] != proc.pid:
        return False
    signal_group(proc, signal.SIGKILL)
    kill_session(proc.pid)
    return True


def wait_exit(proc: Proc, seconds: float) -> bool:
    """Waits until the process has ended, at most `seconds`; True once it has."""
    handle = _open(proc)
    if handle is None:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(max(seconds, 0) * 1000))
    finally:
        os.close(handle)


def find_by_environ(name: str, value: str) -> list[Proc]:
    """Processes of this user that were started with NAME=value in their environment, the caller too."""
    wanted = os.fsencode(f"{name}={value}")
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if folder.stat().st_uid != os.getuid():
                continue
            with (folder / "environ").open("rb") as file:
                entries = file.read(ENVIRON_LIMIT).split(b"\0")
        except OSError:
            continue
        if wanted in entries and (proc := proc_of(int(folder.name))) is not None:
            found.append(proc)
    return found


def _stat_of_same(proc: Proc) -> tuple[str, int, int, int] | None:
    # A group or session number of 0 or 1 would mean our own group, or everybody.
    if proc.pid <= 1:
        return None
    stat = stat_of(proc.pid)
    return stat if stat is not None and stat[3] == proc.start and proc.boot == boot_id() else None


def _open(proc: Proc) -> int | None:
    """A pidfd of the living process. What it refers to cannot change, so the check comes after the open."""
    try:
        handle = os.pidfd_open(proc.pid)
    except (OSError, OverflowError):
        return None
    if alive(proc):
        return handle
    os.close(handle)
    return None
