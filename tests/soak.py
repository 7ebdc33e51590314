"""A panel that loses a process every few seconds, for minutes: nothing may be lost, doubled or left behind.

`python -m tests.soak [--minutes 30] [--every 20] [--seed N] [--out FILE]`; exit code 1 when something went
against the rules. Three servers on a data folder of its own: two real ones with the tiny model, and a fake
one that writes numbered log lines all the time and crashes now and then.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from jobs.runtime.procs import Proc, signal_proc
from tests.benchmarks.figures import pss_mib
from tests.e2e.whole import ROOT, Panel
from tests.fakes import llama_flags
from tests.models import plain_model, tiny_models
from tests.soak_end import ROLES, settle
from tests.soak_report import Report
from tests.soak_user import User
from tests.soak_viewer import Viewer, check_numbers
from tests.soak_watch import Server, Watch, processes_of

REAL, FLOOD = ("real-one", "real-two"), "flood"
LINES_PER_SECOND = 200
ANSWER = 60.0  # seconds within which the panel answers again after a kill
SHIM = "shim"
KINDS = (*ROLES, SHIM)
SEED = """
from pathlib import Path
from jobs.models import Build
from jobs.services.artifacts import register_artifact
from jobs.services.audit import Actor
from jobs.services.builds import register_build
from jobs.services.hosts import local_host
from controlpanel.management.commands.demo import bundled_build, wait_for
from servers.services.profiles import ProfileData, save_profile
actor, folder = Actor.cli(), Path({folder!r})
real, fake = bundled_build(), register_build(actor, local_host(), "Fake", str(folder / "llama-server"))
wait_for(lambda: not Build.objects.filter(state=Build.State.PROBING).exists(), 120, "the probes")
mtp = {{"ctx_size": 4096, "parallel": 1, "speculation": "mtp", "draft_max": 3}}
crashing = {{"restart": "on-failure", "limit": 100, "stable_s": 10}}
for build, slug, settings, policy in (
    (real, "real-one", mtp, {{}}),
    (real, "real-two", {{"ctx_size": 4096}}, {{}}),
    (fake, "flood", {{}}, crashing),
):
    build.refresh_from_db()
    model = register_artifact(actor, local_host(), str(folder / f"{{slug}}.gguf"), slug)
    save_profile(actor, None, ProfileData(slug, build, model, settings=settings, policy=policy))
"""


class Soak:
    """One run on a folder: `files` holds what the panel is given, `data` is its own."""

    def __init__(self, folder: Path, seed: int, report: Report) -> None:
        self.report, self.panel = report, Panel(folder / "data")
        self.viewers: list[Viewer] = []
        self._files = folder / "files"
        self._random = random.Random(seed)
        models = {str(self._files / f"{slug}.gguf"): slug for slug in (*REAL, FLOOD)}
        self.watch = Watch(self.panel.data, models, report, self._started)
        self.user = User(self.panel, self.watch, FLOOD, seed + 1, report)
        self._web = httpx.Client(base_url=self.panel.url, timeout=5, trust_env=False)
        self._cookie = ""

    def begin(self) -> None:
        """Start the panel and its servers, and sign in."""
        self._files.mkdir()
        text, _projector = tiny_models(self._files)
        plain = plain_model(self._files)
        for slug, model in zip((*REAL, FLOOD), (text, plain, plain), strict=True):
            os.link(model, self._files / f"{slug}.gguf")
        llama_flags.install(self._files, flood_lines=10**9, flood_rate=LINES_PER_SECOND)
        self.report.say(f"the panel started in {self.panel.start():.1f} s at {self.panel.url}")
        self.panel.shell(SEED.format(folder=str(self._files)))
        with self.panel.client() as client:
            self._web.cookies = client.cookies
            self._cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        self.watch.start()
        for slug in self.watch.profiles:
            if not self.user.start_server(slug):
                raise RuntimeError(f"{slug} was not started")

    def _started(self, server: Server) -> None:
        if server.profile == FLOOD:
            log = self.panel.data / "runs" / server.run_id / "log"
            viewer = Viewer(self.panel.url, self._cookie, server, log, self.report)
            self.viewers.append(viewer)
            viewer.start()

    def memory(self) -> dict[str, float]:
        """MiB of the panel's processes by role."""
        return {role: sum(pss_mib(proc.pid) for proc in self.panel.processes(role)) for role in ROLES}

    def kill(self) -> None:
        """kill -9 of one of the panel's processes, and wait until the panel answers again."""
        kind = self._random.choice(KINDS)
        found = self._victims(kind)
        if not found:
            self.report.say(f"no {kind} to kill just now")
            return
        victim = self._random.choice(found)
        began = time.monotonic()
        signal_proc(victim, signal.SIGKILL)
        self.report.kills[kind] += 1
        self.report.say(f"kill -9 of {kind} {victim.pid}")
        if kind in ("supervisord", "up"):
            self._start_again(kind)
        while not self._back(kind, victim):
            if time.monotonic() - began > ANSWER:
                self.report.violation(f"no answer within {ANSWER:.0f} s after the kill of {kind}")
                return
            time.sleep(0.1)
        seconds = time.monotonic() - began
        self.report.took(kind, seconds)
        self.report.say(f"the panel answers, {seconds:.1f} s after the kill of {kind}")

    def _victims(self, kind: str) -> list[Proc]:
        if kind == SHIM:
            return [row.proc for row in processes_of(self.panel.data) if row.is_shim]
        return self.panel.processes(kind)

    def _start_again(self, kind: str) -> None:
        """Run `manage.py up` as a user does who sees that it has ended."""
        process = self.panel.process
        assert process is not None
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            self.report.violation("manage.py up does not end although its supervisord is gone")
        if kind == "up":
            if not self._answers():
                self.report.violation("the panel does not go on without its foreground process")
            time.sleep(self._random.uniform(0, 3))
        try:
            self.panel.start()
        except AssertionError as error:
            self.report.violation(f"manage.py up did not start after the kill of {kind}: {str(error)[:3000]}")

    def _back(self, kind: str, victim: Proc) -> bool:
        return self._answers() and (
            kind == SHIM or any(proc != victim for proc in self.panel.processes(kind))
        )

    def _answers(self) -> bool:
        try:
            reply = self._web.get("/servers/")
        except httpx.TransportError:
            return False
        if reply.is_redirect:
            self.report.violation("the session was lost: the page asks to sign in")
        return reply.status_code == 200

    def run(self, minutes: float, every: float) -> None:
        """Kill for so many minutes, a process every so many seconds; then look at what is left."""
        self.begin()
        before = self.memory()
        self.user.start()
        began = time.monotonic()
        for number in range(1, max(1, round(minutes * 60 / every)) + 1):
            time.sleep(max(0.0, began + number * every - time.monotonic()))
            self.kill()
        self.user.leave()
        settle(self.panel, self.watch, self.viewers, self.report)
        after = self.memory()
        self.watch.leave()
        for viewer in self.viewers:
            viewer.leave()
            check_numbers(viewer.log, self.report)
        self._down()
        self.report.summary((time.monotonic() - began) / 60, before, after)

    def _down(self) -> None:
        """`manage.py down` has to leave nothing."""
        argv = [sys.executable, "manage.py", "down"]
        done = subprocess.run(
            argv, cwd=ROOT, env=self.panel.environ, capture_output=True, text=True, timeout=180
        )
        self.report.say(f"manage.py down: {' '.join((done.stdout + done.stderr).split())}")
        for row in processes_of(self.panel.data):
            self.report.violation(f"after manage.py down: {row.proc.pid} lives: {row.command}")

    def leave(self) -> None:
        """End the threads."""
        self.user.leave()
        self.watch.leave()
        for viewer in self.viewers:
            viewer.leave()
        self._web.close()


def main() -> int:
    """Soak; the folder stays when something went against the rules."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=20, help="seconds between two kills (20)")
    parser.add_argument("--seed", type=int, help="for the same kills and actions again")
    parser.add_argument("--out", type=Path, help="a file that gets all that is printed, too")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    report = Report(options.out)
    folder = Path(tempfile.mkdtemp(prefix="panel-soak-"))
    report.say(f"seed {seed}, folder {folder}")
    soak = Soak(folder, seed, report)
    with soak.panel:
        try:
            soak.run(options.minutes, options.every)
        except KeyboardInterrupt:
            report.violation("interrupted")
        finally:
            soak.leave()
    if report.violations:
        report.write(f"The panel's data and logs are in {folder}.")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
