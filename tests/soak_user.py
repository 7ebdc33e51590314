"""What a person does meanwhile: stops, starts and asks servers; and one server crashes now and then."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from jobs.runtime.procs import signal_proc
from tests.e2e.whole import ROOT, Panel
from tests.soak_report import Report
from tests.soak_watch import Watch

PAUSE = (3.0, 12.0)  # seconds between two actions
PATIENCE = 60  # seconds that a command waits for a state
# Codes of an error that say how the server stands after the wish was accepted.
ACCEPTED = ("timeout", "stopped", "exited", "backoff", "failed")


def command(panel: Panel, *words: str, seconds: float = PATIENCE + 60) -> dict[str, Any]:
    """Run a management command; {"error", "detail"} also when it gave no answer in words ("no_answer")."""
    argv = [sys.executable, "manage.py", *words, "--json"]
    try:
        done = subprocess.run(
            argv, cwd=ROOT, env=panel.environ, capture_output=True, text=True, timeout=seconds, check=False
        )
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found
    except subprocess.TimeoutExpired:
        return {"error": "no_answer", "detail": f"no answer within {seconds:.0f} s"}
    except ValueError:
        return {"error": "no_answer", "detail": done.stderr[-1500:] or done.stdout[-500:]}


class User(threading.Thread):
    """One action after the other until told to leave; `crashing` is the server that may crash."""

    def __init__(self, panel: Panel, watch: Watch, crashing: str, seed: int, report: Report) -> None:
        super().__init__(name="user", daemon=True)
        self._panel, self._watch, self._crashing, self._report = panel, watch, crashing, report
        self._random = random.Random(seed)
        self._left = threading.Event()

    def run(self) -> None:
        while not self._left.wait(self._random.uniform(*PAUSE)):
            what = self._random.choices((self.toggle, self.crash, self.ask), (4, 2, 4))[0]
            what()

    def leave(self) -> None:
        """End the thread after the action under way."""
        self._left.set()
        if self.is_alive():
            self.join(PATIENCE * 4)

    def toggle(self) -> None:
        """Start a server that is stopped, else stop one and mostly start it again."""
        stopped = [slug for slug, profile in self._watch.profiles.items() if profile.wish == "stopped"]
        if stopped:
            self.start_server(self._random.choice(stopped))
            return
        slug = self._random.choice(list(self._watch.profiles))
        if self.stop_server(slug) and self._random.random() < 0.7:
            self._left.wait(self._random.uniform(0, 5))
            self.start_server(slug)

    def stop_server(self, slug: str) -> bool:
        """Ask for the end of a server; False when that was refused."""
        self._watch.expect(slug, end=True)
        return self._asked("stop", slug, "stopped")

    def start_server(self, slug: str) -> bool:
        """Ask for the start of a server; False when that was refused."""
        self._watch.expect(slug, start=True)
        return self._asked("start", slug, "running")

    def _asked(self, action: str, slug: str, wish: str) -> bool:
        began = time.monotonic()
        found = command(self._panel, action, slug, "--timeout", str(PATIENCE))
        error = found.get("error")
        words = found["observed"] if error is None else f"{error}: {found['detail']}"
        self._report.say(f"{action} {slug}: {words} ({time.monotonic() - began:.1f} s)")
        self._report.counts[f"{action}: " + ("done" if error is None else str(error))] += 1
        if error == "no_answer":
            self._report.violation(f"{action} {slug}: no answer in words: {found['detail']}")
            self._watch.wish(slug, None)
        elif error is None or error in ACCEPTED:
            self._watch.wish(slug, wish, done=error is None)
        else:
            self._watch.withdraw(slug, action)
            return False
        return True

    def crash(self) -> None:
        """SIGSEGV from outside."""
        if self._watch.crash(self._crashing, lambda proc: signal_proc(proc, signal.SIGSEGV)):
            self._report.say(f"{self._crashing}: crashed by SIGSEGV")
            self._report.counts["crashes"] += 1

    def ask(self) -> None:
        """One question to a real server; it may fail only while the server restarts."""
        real = [slug for slug in self._watch.profiles if slug != self._crashing]
        slug = self._random.choice(real)
        before = self._watch.settled(slug)
        began = time.monotonic()
        found = command(self._panel, "ask", slug, "Say hello.", "--max-tokens", "8")
        after = self._watch.settled(slug)
        seconds = time.monotonic() - began
        if found.get("answer"):
            self._report.counts["questions answered"] += 1
            self._report.say(f"ask {slug}: answered ({seconds:.1f} s)")
            return
        words = str(found.get("detail", found))
        self._report.say(f"ask {slug}: {words} ({seconds:.1f} s)")
        self._report.counts["questions refused while a server was not ready"] += 1
        if found.get("error") == "no_answer" or (before is not None and before == after):
            self._report.violation(f"ask {slug}: a running server gave no answer: {words}")
