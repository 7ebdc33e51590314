"""What really runs, from /proc and the run folders: never two servers of a profile, no unexplained end."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jobs.runtime.procs import Proc, alive, proc_of
from tests.soak_report import Report

EVERY = 1.0  # seconds between two looks
BACK = 180.0  # seconds after which a wanted server has a process, whatever was killed
SETTLED = 60.0  # seconds after which a server that lives has to answer questions
ROLE = re.compile(rb"(?:^|\0)PANEL_ROLE=([a-z-]+)")


@dataclass(frozen=True)
class Seen:
    """A process that names the data folder: `role` of the panel's own, `run_id` of a server or its shim."""

    proc: Proc
    role: str
    run_id: str
    is_shim: bool
    command: str


def processes_of(data: Path) -> list[Seen]:
    """Return this user's processes that name the folder in environment, command line or working folder."""
    name = os.fsencode(data)
    run = re.compile(re.escape(name) + rb"/runs/([A-Za-z0-9-]+)")
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            environ, command = (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
            cwd = os.fsencode((folder / "cwd").readlink())
        except OSError:
            continue
        if name not in environ + b"\0" + command + b"\0" + cwd:
            continue
        proc = proc_of(int(folder.name))
        role, mine = ROLE.search(environ), run.search(environ + b"\0" + command)
        if proc is not None and alive(proc):
            text = command.replace(b"\0", b" ").decode(errors="replace").strip()[:200]
            found.append(
                Seen(
                    proc,
                    role[1].decode() if role else "",
                    mine[1].decode() if mine and not role else "",
                    b"shim.py" in command,
                    text,
                )
            )
    return found


@dataclass(frozen=True)
class Server:
    """A living llama-server; `port` as its command line says."""

    profile: str
    run_id: str
    proc: Proc
    port: int


@dataclass
class Profile:
    """What the soak run expects of a profile's server; None as wish: nobody can tell."""

    wish: str | None = "running"
    may_end: bool = False
    may_start: bool = False
    crashed_at: float | None = None
    server: Server | None = None
    since: float = field(default_factory=time.monotonic)  # when `server` was first seen, or seen gone
    ready: bool = False  # a command said that this server was ready
    missed: bool = False


class Watch(threading.Thread):
    """Looks once a second; `appeared` is called for each server that appears."""

    def __init__(
        self, data: Path, models: dict[str, str], report: Report, appeared: Callable[[Server], None]
    ) -> None:
        """`models` gives the profile's slug for the path of its model."""
        super().__init__(name="watch", daemon=True)
        self.profiles = {slug: Profile() for slug in models.values()}
        self.lock = threading.RLock()
        self._data, self._models, self._report, self._appeared = data, models, report, appeared
        self._runs: dict[str, tuple[str, int] | None] = {}
        self._doubles: set[frozenset[Proc]] = set()
        self._left = threading.Event()

    def run(self) -> None:
        while not self._left.wait(EVERY):
            self.look()

    def leave(self) -> None:
        """End the thread."""
        self._left.set()
        if self.is_alive():
            self.join(30)

    def expect(self, slug: str, *, end: bool = False, start: bool = False) -> None:
        """Say that we are about to end or to start a server."""
        with self.lock:
            profile = self.profiles[slug]
            profile.may_end, profile.may_start = profile.may_end or end, profile.may_start or start

    def withdraw(self, slug: str, action: str) -> None:
        """Say that a stop or a start that was to come was refused."""
        with self.lock:
            profile = self.profiles[slug]
            if action == "stop":
                profile.may_end = False
            else:
                profile.may_start = profile.crashed_at is not None

    def wish(self, slug: str, wish: str | None, *, done: bool = False) -> None:
        """Note what was asked for last, and whether it was said to be so already."""
        self.look()
        with self.lock:
            profile = self.profiles[slug]
            profile.wish, profile.crashed_at, profile.ready = wish, None, done
            if done:
                profile.may_end = profile.may_start = False
            if profile.server is None:
                profile.since = time.monotonic()

    def crash(self, slug: str, signal_it: Callable[[Proc], bool]) -> bool:
        """End a wanted server by a signal; it is to come back. False when there is none."""
        self.look()
        with self.lock:
            profile = self.profiles[slug]
            if profile.server is None or profile.wish != "running" or not signal_it(profile.server.proc):
                return False
            profile.may_end = profile.may_start = True
            profile.crashed_at = time.monotonic()
            return True

    def settled(self, slug: str) -> Server | None:
        """Return the profile's server when it has to answer; None while it may be starting."""
        self.look()
        with self.lock:
            profile = self.profiles[slug]
            sure = profile.ready or time.monotonic() - profile.since > SETTLED
            return profile.server if sure and not profile.may_end else None

    def servers(self) -> list[Server]:
        """Return the living servers; their run folders and the processes have to agree."""
        seen = {row.proc: row.run_id for row in processes_of(self._data) if row.run_id and not row.is_shim}
        for folder in (self._data / "runs").glob("*/state.json"):
            try:
                child = json.loads(folder.read_text())["child"]
                proc = Proc(child["pid"], child["start"], child["boot"])
            except (OSError, ValueError, TypeError, KeyError):
                continue
            if alive(proc):
                seen.setdefault(proc, folder.parent.name)
        found = []
        for proc, run_id in seen.items():
            about = self._about(run_id)
            if about is not None:
                found.append(Server(about[0], run_id, proc, about[1]))
        return found

    def _about(self, run_id: str) -> tuple[str, int] | None:
        """Return the slug and the port of a run; None for one that runs no server."""
        if run_id not in self._runs:
            try:
                argv = json.loads((self._data / "runs" / run_id / "spec.json").read_text())["argv"]
                slug = next(self._models[word] for word in argv if word in self._models)
                self._runs[run_id] = (slug, int(argv[argv.index("--port") + 1]))
            except OSError:
                return None
            except (ValueError, KeyError, StopIteration):
                self._runs[run_id] = None
        return self._runs[run_id]

    def look(self) -> None:
        """Compare what runs with what was before."""
        with self.lock:
            servers = self.servers()
            self._report.counts["looks at the processes"] += 1
            for slug, profile in self.profiles.items():
                mine = [server for server in servers if server.profile == slug]
                if len(mine) > 1:
                    mine = self._doubled(slug, mine)
                self._compare(slug, profile, mine[-1] if mine else None)

    def _doubled(self, slug: str, mine: list[Server]) -> list[Server]:
        # One may have ended while the other was looked at.
        mine = sorted((one for one in mine if alive(one.proc)), key=lambda one: one.proc.start)
        pids = frozenset(one.proc for one in mine)
        if len(mine) > 1 and pids not in self._doubles:
            self._doubles.add(pids)
            words = ", ".join(f"pid {one.proc.pid} of run {one.run_id}" for one in mine)
            self._report.violation(f"{slug}: several servers live at once: {words}")
        return mine

    def _compare(self, slug: str, profile: Profile, now: Server | None) -> None:
        before, clock = profile.server, time.monotonic()
        if before is not None and (now is None or now.proc != before.proc):
            if not profile.may_end:
                self._report.violation(
                    f"{slug}: pid {before.proc.pid} ended, and nobody of us had asked for it"
                )
            self._report.say(f"{slug}: pid {before.proc.pid} has ended")
            profile.may_end, profile.ready, profile.server, profile.since = False, False, None, clock
            profile.missed = False
        if now is not None and profile.server is None:
            if not profile.may_start:
                self._report.violation(f"{slug}: pid {now.proc.pid} was started, and nobody had asked for it")
            self._report.say(f"{slug}: pid {now.proc.pid} runs (run {now.run_id}, port {now.port})")
            if profile.crashed_at is not None:
                self._report.took("crash", clock - profile.crashed_at)
                self._report.counts["restarts after a crash"] += 1
            profile.may_start, profile.crashed_at = False, None
            profile.server, profile.since = now, clock
            self._appeared(now)
        late = now is None and profile.wish == "running" and clock - profile.since > BACK
        if late and not profile.missed:
            profile.missed = True
            self._report.violation(f"{slug}: wanted, but without a process for {BACK:.0f} s")
