"""Control groups of runs: memory limits that the kernel keeps, where systemd leaves the panel its group.

A unit says so with PANEL_RUN_GROUPS=yes (see deploy/llamacpp-panel.service): it delegates its group, and runs
this module as its ExecStopPost. A group whose subtree_control names a controller may hold no process itself.
So the panel's own processes move to the child `panel`; and the runs that outlive a panel would keep the next
one from starting, because systemd puts its first process into the unit's own group. As a program this module
therefore takes the controller back. The next panel gives it out again and writes the limits anew.

`root` stands for the root of the file system.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

logger = logging.getLogger(__name__)

ASKED = "PANEL_RUN_GROUPS"
ROOT = Path("/")
PANEL = "panel"
STOP_POST = ".control"  # where systemd puts the commands of a unit whose group is delegated
CONTROLLER = "memory"
TRIES = 10  # a process may start between the move of all others and the next step
MIB = 1 << 20


@cache
def home(root: Path = ROOT) -> Path | None:
    """Return the group that holds those of the runs, prepared; None where there is none, told once."""
    if os.environ.get(ASKED) != "yes":
        return None
    try:
        return _prepared(root)
    except (OSError, ValueError) as error:
        logger.warning("runs get no control groups, their memory is only watched: %s", error)
        return None


def create(run_id: str, limit: int, root: Path = ROOT) -> Path | None:
    """Make the group of a run with a limit in bytes; None where the kernel keeps no limits for us."""
    base = home(root)
    if base is None:
        return None
    group = _group(base, run_id)
    try:
        group.mkdir(exist_ok=True)
        _write(group / "memory.max", str(limit))
        # All of a server or nothing: what is left of it could serve nobody.
        _write(group / "memory.oom.group", "1")
    except OSError as error:
        logger.warning("the run %s gets no control group, its memory is only watched: %s", run_id, error)
        remove(run_id, root)
        return None
    return group


def change(run_id: str, limit: int | None, root: Path = ROOT) -> None:
    """Set the limit of a run's group in bytes, None for no limit; nothing happens where there is no group."""
    base = home(root)
    if base is None or not _group(base, run_id).is_dir():
        return
    try:
        _write(_group(base, run_id) / "memory.max", "max" if limit is None else str(limit))
    except OSError as error:
        logger.warning("the memory limit of the run %s cannot be changed: %s", run_id, error)


def killed(run_id: str, root: Path = ROOT) -> bool:
    """Tell whether the kernel killed the run for the limit of its group."""
    base = home(root)
    if base is None:
        return False
    try:
        words = (_group(base, run_id) / "memory.events").read_text().split()
        events = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    except (OSError, ValueError):
        return False
    # A kill alone may be for the memory of the whole host.
    return bool(events.get("oom_kill", 0) and events.get("oom", 0))


def remove(run_id: str, root: Path = ROOT) -> None:
    """Remove a run's group; one that still holds a process stays, and goes with the unit's."""
    base = home(root)
    if base is not None:
        with suppress(OSError):
            _group(base, run_id).rmdir()


def release(root: Path = ROOT) -> None:
    """Take the controller from the runs' groups, so that a process may be put into the unit's own again."""
    base = _base(root)
    if CONTROLLER in _words(base / "cgroup.subtree_control"):
        _write(base / "cgroup.subtree_control", f"-{CONTROLLER}")


def _prepared(root: Path) -> Path:
    base = _base(root)
    switch = base / "cgroup.subtree_control"
    if CONTROLLER not in _words(base / "cgroup.controllers"):
        raise ValueError(f"{base} has no controller for memory")
    for path in (base, switch, base / "cgroup.procs"):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "not delegated to this user", str(path))
    inner = base / PANEL
    inner.mkdir(exist_ok=True)
    for left in reversed(range(TRIES)):
        if CONTROLLER in _words(switch):
            break
        for pid in _words(base / "cgroup.procs"):
            with suppress(ProcessLookupError):
                _write(inner / "cgroup.procs", pid)
        try:
            _write(switch, f"+{CONTROLLER}")
            break
        except OSError as error:
            if error.errno != errno.EBUSY or not left:
                raise
    return base


def _base(root: Path) -> Path:
    """Return the unit's group, whichever of its children this process is in."""
    lines = (root / "proc/self/cgroup").read_text().splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), "/")
    if path == "/" or ".." in path:
        raise ValueError("this process is in no control group (v2) of its own")
    own = _mounted(root, path)
    return own.parent if own.name in (PANEL, STOP_POST) else own


def _mounted(root: Path, path: str) -> Path:
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        words, _, kind = line.partition(" - ")
        top, point = words.split()[3:5]
        if kind.startswith("cgroup2 ") and Path(path).is_relative_to(top):
            return root / point.lstrip("/") / Path(path).relative_to(top)
    raise ValueError("no control groups (v2) are mounted")


def _group(base: Path, run_id: str) -> Path:
    return base / f"run-{run_id}"


def _words(path: Path) -> list[str]:
    return path.read_text().split()


def _write(path: Path, text: str) -> None:
    path.write_text(text)


if __name__ == "__main__":
    try:
        release()
    except (OSError, ValueError) as failure:
        sys.exit(f"the controller is not taken back: {failure}")
