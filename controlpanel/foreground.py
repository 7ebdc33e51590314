"""What `up` becomes: a small process that starts supervisord, says where the panel is, and ends it all.

Standard library only, so that it costs a few MiB. Run as `python -m controlpanel.foreground PLAN`; PLAN is a
JSON file: {"supervisord": argv, "mark": [name, value], "url", "probe": address of the web process or null,
"user", "password", "runs": folder, "logs": folder, "then": argv or null, "lock": path}.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType
from typing import Any

from jobs.runtime.procs import Proc, alive, find_by_environ, signal_proc, this_process

STOP_SECONDS = 5.5  # Ctrl-C ends everything within 6 s
START_SECONDS = 60.0


def main() -> int:
    """Run the plan; the exit code is 0 after Ctrl-C or SIGTERM, 1 when the panel ended by itself."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # Held open for the life of this process: a second `up` on the same data folder is refused.
    lock = os.open(plan["lock"], os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        complain("Another panel runs on this data folder already.")
        return 1
    name, mark = plan["mark"]
    end_leftovers(name, mark)
    stop = StopSignal()
    supervisord = subprocess.Popen(
        plan["supervisord"],
        env={**os.environ, name: mark, "PANEL_ROLE": "supervisord"},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        if wait_for_web(plan, supervisord, stop):
            seed(plan, stop)
            if not stop.asked:
                say(banner(plan))
        while not stop.asked and supervisord.poll() is None:
            time.sleep(0.2)
    finally:
        asked = stop.asked
        end_panel(supervisord, name, mark)
    if not asked:
        complain(
            f"The panel's supervisor has ended unexpectedly. Start it again; its log is in {plan['logs']}."
        )
    say(farewell(Path(plan["runs"])))
    return 0 if asked else 1


class StopSignal:
    """Notes the first SIGINT or SIGTERM; nothing else happens in the handler."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True


def end_leftovers(name: str, mark: str) -> None:
    """End what a killed supervisord or `up` left behind of this panel; llama-servers carry no mark."""
    me = this_process()
    left = [proc for proc in find_by_environ(name, mark) if proc != me]
    for number, seconds in ((signal.SIGTERM, 4.0), (signal.SIGKILL, 4.0)):
        for proc in left:
            signal_proc(proc, number)
        deadline = time.monotonic() + seconds
        while left and time.monotonic() < deadline:
            left = [proc for proc in left if alive(proc)]
            time.sleep(0.05)


def wait_for_web(plan: dict[str, Any], supervisord: "subprocess.Popen[bytes]", stop: StopSignal) -> bool:
    """Wait until the web process answers; True at once when this host runs none."""
    if not plan["probe"]:
        return True
    deadline = time.monotonic() + START_SECONDS
    while not stop.asked and supervisord.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(plan["probe"], timeout=5):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            time.sleep(0.1)
    if supervisord.poll() is None and not stop.asked:
        complain(f"The web process does not answer; its log is in {plan['logs']}.")
    return False


def seed(plan: dict[str, Any], stop: StopSignal) -> None:
    """Run the plan's follow-up command (the demo's data), ended early by Ctrl-C."""
    if not plan["then"]:
        return
    child = subprocess.Popen(plan["then"], stdin=subprocess.DEVNULL, start_new_session=True)
    while child.poll() is None:
        if stop.asked:
            child.terminate()
            child.wait()
            return
        time.sleep(0.1)


def end_panel(supervisord: "subprocess.Popen[bytes]", name: str, mark: str) -> None:
    """Stop supervisord and whatever of the panel is left, within STOP_SECONDS."""
    deadline = time.monotonic() + STOP_SECONDS
    if supervisord.poll() is None:
        supervisord.send_signal(signal.SIGTERM)
        try:
            supervisord.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            supervisord.kill()
            supervisord.wait()
    me = this_process()
    for proc in find_by_environ(name, mark):
        if proc != me:
            signal_proc(proc, signal.SIGKILL)


def banner(plan: dict[str, Any]) -> str:
    """Return the lines that say where the panel is and how to sign in."""
    lines = ["", f"  Panel:     {plan['url']}"]
    if plan["password"]:
        lines += [f"  User:      {plan['user']}", f"  Password:  {plan['password']}"]
    return "\n".join([*lines, "", "  Ctrl-C stops the panel and leaves llama-servers running.", ""])


def farewell(runs: Path) -> str:
    """Say that the panel ended and which processes go on."""
    going = 0
    for path in runs.glob("*/state.json"):
        try:
            child = json.loads(path.read_text(encoding="utf-8"))["child"]
            going += alive(Proc(child["pid"], child["start"], child["boot"]))
        except (OSError, ValueError, TypeError, KeyError):
            continue
    if not going:
        return "The panel is stopped."
    noun = "llama-server goes" if going == 1 else "llama-servers go"
    return f"The panel is stopped. {going} {noun} on running: `make down` stops, `make up` finds them again."


def say(text: str) -> None:
    """Write to standard output at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Write to standard error."""
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
