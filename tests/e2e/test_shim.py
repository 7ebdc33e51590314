"""The shim on its own: what it starts, keeps, stops and survives."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.runtime import procs, shim
from jobs.runtime.procs import Proc
from tests.waiting import wait_for

PYTHON = [sys.executable, "-S", "-E", "-c"]
COMMAND = [sys.executable, "-S", "-E", "-P", shim.__file__]
ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


class Run:
    """One run folder and the shim in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def write(self, argv: list[str], **changes: object) -> None:
        spec: dict[str, object] = {"argv": argv, "cwd": "/", "env": {}, "grace": 120}
        (self.folder / "spec.json").write_text(json.dumps(spec | changes))

    def launch(self, secrets: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, str(self.folder)],
            input=secrets,
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=60,
            **options,
        )

    def launch_held(self, argv: list[str]) -> Callable[[], subprocess.CompletedProcess[str]]:
        """Launches up to the state "starting"; the answer goes on to the end of the launch.

        A log that is a pipe keeps the shim waiting for a reader before it starts the program.
        """
        os.mkfifo(self.folder / "log")
        self.write(argv)
        answers: list[subprocess.CompletedProcess[str]] = []
        thread = threading.Thread(target=lambda: answers.append(self.launch()))
        thread.start()
        wait_for((self.folder / "state.json").exists, 30, "the first state")
        assert (self.state()["status"], self.state()["child"]) == ("starting", None)

        def release() -> subprocess.CompletedProcess[str]:
            reader = os.open(self.folder / "log", os.O_RDONLY | os.O_NONBLOCK)
            thread.join(60)
            os.close(reader)
            (self.folder / "log").unlink()
            return answers[0]

        return release

    def start(self, argv: list[str], **changes: object) -> None:
        self.write(argv, **changes)
        answer = self.launch()
        assert (answer.returncode, answer.stderr) == (0, "")

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return state

    def proc(self, which: str) -> Proc:
        return Proc(**self.state()[which])

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def said(self, word: str) -> None:
        wait_for(lambda: word in self.log(), 30, f"{word!r} in the log")

    def end(self, seconds: float = 60) -> dict[str, Any]:
        assert procs.wait_exit(self.proc("shim"), seconds), self.state()
        return self.state()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    one = Run(tmp_path / "run")
    yield one
    if (one.folder / "state.json").exists():
        for which in ("shim", "child"):
            if one.state()[which]:
                procs.end_session(one.proc(which))


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -SEGV $$", -11), ("kill -KILL $$", -9)],
)
def test_the_exit_code_or_the_signal_is_kept(run: Run, script: str, code: int) -> None:
    before = time.time()
    run.start(["sh", "-c", script])
    state = run.end()
    assert (state["version"], state["status"], state["exit_code"]) == (1, "exited", code)
    assert (state["stop_requested"], state["error"]) == (False, "")
    assert before <= state["started_at"] <= state["ended_at"] <= time.time()


def test_arguments_keep_spaces_quotes_unicode_and_bytes_that_are_no_text(run: Run) -> None:
    words = [
        "two words",
        "",
        "-x",
        "käse 模型",
        "$HOME 'q' \"d\"\n",
        b"\xff\xfe".decode("utf-8", "surrogateescape"),
    ]
    run.start([*PYTHON, "import os, sys; print([os.fsencode(w) for w in sys.argv[1:]])", *words])
    run.end()
    assert eval(run.log()) == [word.encode("utf-8", "surrogateescape") for word in words]


def test_standard_output_and_error_share_one_log_in_the_order_of_writing(run: Run) -> None:
    script = "import os\nfor n in range(1000): os.write(1 + n % 2, b'%d\\n' % n)"
    run.start([*PYTHON, script])
    run.end()
    assert run.log().split() == [str(n) for n in range(1000)]


def test_the_program_gets_a_clean_process(run: Run) -> None:
    script = """
import os, signal
print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1], os.readlink('/proc/self/fd/0'))
print(os.getsid(0) == os.getpgid(0) == os.getpid(), os.getcwd(), oct(os.umask(0)))
fields = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(int(fields['SigBlk'], 16), hex(int(fields['SigIgn'], 16) & ~(3 << 31)))
"""
    run.write([*PYTHON, script], cwd=str(run.folder))
    extra = os.open("/dev/null", os.O_RDONLY)
    try:
        assert run.launch(pass_fds=(extra,)).returncode == 0
    finally:
        os.close(extra)
    run.end()
    # Python itself ignores SIGPIPE (bit 12) and SIGXFSZ (bit 24), and nothing else may be ignored. Signals 32
    # and 33 do not count: they are the C library's own, and some callers pass them on ignored.
    expected = f"[0, 1, 2] /dev/null\nTrue {run.folder} 0o77\n0 0x1001000\n"
    assert run.log() == expected


def test_a_stop_ends_the_group_within_the_grace_and_is_noted(run: Run) -> None:
    run.start(["sh", "-c", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"])
    run.said("up")
    assert procs.signal_proc(run.proc("shim"), signal.SIGTERM)
    state = run.end()
    assert (state["stop_requested"], state["exit_code"]) == (True, 5)
    assert state["started_at"] <= state["stop_requested_at"] <= state["ended_at"]
    assert "bye" in run.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_ignores_the_stop_is_killed_after_the_grace(run: Run, number: int) -> None:
    run.start(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"], grace=0.5)
    run.said("up")
    procs.signal_proc(run.proc("shim"), number)
    state = run.end()
    assert (state["stop_requested"], state["exit_code"]) == (True, -signal.SIGKILL)
    assert state["ended_at"] - state["stop_requested_at"] >= 0.5


def test_a_second_stop_kills_at_once(run: Run) -> None:
    run.start(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"], grace=3600)
    run.said("up")
    procs.signal_proc(run.proc("shim"), signal.SIGTERM)
    wait_for(lambda: run.state()["stop_requested"], 30, "the first stop")
    procs.signal_proc(run.proc("shim"), signal.SIGTERM)
    assert run.end()["exit_code"] == -signal.SIGKILL


def test_a_stop_before_the_program_is_started_still_stops_it(run: Run) -> None:
    release = run.launch_held(["sleep", "600"])
    assert procs.signal_proc(run.proc("shim"), signal.SIGTERM)
    assert release().returncode == 0
    state = run.end()
    assert (state["status"], state["exit_code"], state["stop_requested"]) == ("exited", -signal.SIGTERM, True)


def test_a_shim_killed_before_the_start_leaves_its_name_and_no_program(run: Run) -> None:
    release = run.launch_held(["sleep", "600"])
    assert procs.signal_proc(run.proc("shim"), signal.SIGKILL)
    answer = release()
    assert answer.returncode == 1
    assert "ended before it had started" in answer.stderr
    assert (run.state()["status"], run.state()["child"]) == ("starting", None)
    assert (run.launch().returncode, run.state()["status"]) == (0, "running")


def test_a_program_that_cannot_be_named_on_disk_is_not_started(run: Run) -> None:
    release = run.launch_held(["touch", str(run.folder / "ran")])
    resource.prlimit(run.proc("shim").pid, resource.RLIMIT_FSIZE, (0, 0))
    answer = release()
    assert answer.returncode == 1
    assert f"the run's state cannot be stored: {os.strerror(errno.EFBIG)}" in answer.stderr
    assert not (run.folder / "ran").exists()


@pytest.mark.parametrize("own_group", [False, True])
def test_what_the_program_leaves_running_is_killed_with_it(run: Run, own_group: bool) -> None:
    script = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen(['sleep', '600'], process_group={0 if own_group else None})\n"
        "print(child.pid, flush=True)\nsys.stdin.read()\n"
    )
    run.start([*PYTHON, script])
    run.said("\n")
    left = procs.proc_of(int(run.log()))
    assert run.end()["exit_code"] == 0
    assert left is None or procs.wait_exit(left, 30)


@pytest.mark.parametrize(
    ("name", "content", "mode", "number", "words"),
    [
        ("absent", None, 0, errno.ENOENT, "does not exist"),
        ("plain", b"#!/bin/sh\n", 0o600, errno.EACCES, "not an executable"),
        ("foreign", b"\x7fELF nonsense", 0o700, errno.ENOEXEC, "not a program"),
        ("orphan-script", b"#!/no/such/interpreter\n", 0o700, errno.ENOENT, "interpreter"),
    ],
)
def test_a_program_that_cannot_be_started_is_explained(
    run: Run, name: str, content: bytes | None, mode: int, number: int, words: str
) -> None:
    program = run.folder / name
    if content is not None:
        program.write_bytes(content)
        program.chmod(mode)
    run.write([str(program)])
    answer = run.launch()
    state = run.end()
    assert answer.returncode == 1
    assert answer.stderr.strip() == state["error"]
    assert str(program) in state["error"]
    assert f"(errno {number})" in state["error"]
    assert words in state["error"]
    assert (state["status"], state["child"], state["exit_code"]) == ("failed", None, None)


@pytest.mark.parametrize(
    "spec", [None, b"", b"[]", b'{"argv": "ls"}', b'{"argv": [], "cwd": "/", "env": {}, "grace": 1}', b"\xff"]
)
def test_a_spec_that_is_not_usable_is_explained(run: Run, spec: bytes | None) -> None:
    if spec is not None:
        (run.folder / "spec.json").write_bytes(spec)
    answer = run.launch()
    assert answer.returncode == 1
    assert "spec.json is not usable" in answer.stderr
    assert run.state()["status"] == "failed"


def test_secrets_that_cannot_be_read_start_nothing_and_are_not_quoted(run: Run) -> None:
    run.write(["touch", str(run.folder / "ran")])
    for text in ('{"KEY": "hunter2"', '{"KEY": ["hunter2"]}', '"hunter2"'):
        answer = run.launch(text)
        assert answer.returncode == 1
        assert answer.stderr.strip()
        assert "hunter2" not in answer.stderr
    assert sorted(path.name for path in run.folder.iterdir()) == ["spec.json"]


def test_two_starts_in_one_folder_give_one_program(run: Run) -> None:
    run.write(["sh", "-c", "echo up; exec sleep 600"])
    starts = [
        subprocess.Popen(
            [*COMMAND, str(run.folder)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT
        )
        for _ in range(4)
    ]
    codes = sorted(start.wait(60) for start in starts)
    for start in starts:
        assert start.stderr is not None
        start.stderr.close()
    assert codes == [shim.OK, *[shim.STARTED_BEFORE] * 3]
    run.said("up")
    again = run.launch()
    assert (again.returncode, run.log()) == (shim.STARTED_BEFORE, "up\n")
    assert "started before" in again.stderr


def test_an_ended_run_is_not_started_again_and_its_log_was_appended_to(run: Run) -> None:
    (run.folder / "log").write_text("before\n")
    run.start(["echo", "once"])
    run.end()
    assert run.launch().returncode == shim.STARTED_BEFORE
    assert run.log() == "before\nonce\n"


def test_a_killed_shim_does_not_let_the_program_start_twice(run: Run) -> None:
    run.start(["sh", "-c", "echo up; exec sleep 600"])
    run.said("up")
    assert procs.signal_proc(run.proc("shim"), signal.SIGKILL)
    assert procs.wait_exit(run.proc("shim"), 30)
    assert run.launch().returncode == shim.STARTED_BEFORE
    assert procs.alive(run.proc("child"))


def test_a_hangup_ends_neither_shim_nor_program(run: Run) -> None:
    run.start(["sleep", "600"])
    assert procs.signal_proc(run.proc("shim"), signal.SIGHUP)
    assert not procs.wait_exit(run.proc("shim"), 0.3)
    assert procs.alive(run.proc("child"))
    assert os.getsid(run.proc("shim").pid) == run.proc("shim").pid != os.getsid(0)


def test_a_deleted_log_does_not_disturb_the_run(run: Run) -> None:
    go = run.folder / "go"
    run.start(["sh", "-c", f"echo one; while [ ! -e '{go}' ]; do sleep 0.05; done; echo two; exit 4"])
    run.said("one")
    (run.folder / "log").unlink()
    go.touch()
    assert run.end()["exit_code"] == 4


def test_a_disk_that_takes_no_state_is_waited_for(run: Run) -> None:
    go = run.folder / "go"
    run.start(["sh", "-c", f"while [ ! -e '{go}' ]; do sleep 0.05; done; exit 6"])
    keeper = run.proc("shim")
    hard = resource.prlimit(keeper.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(keeper.pid, resource.RLIMIT_FSIZE, (0, hard))
    go.touch()
    assert procs.wait_exit(run.proc("child"), 30)
    assert not procs.wait_exit(keeper, 0.5)
    assert run.state()["status"] == "running"
    ticks = shim_cpu(keeper.pid)
    assert not procs.wait_exit(keeper, 1)
    assert shim_cpu(keeper.pid) - ticks < os.sysconf("SC_CLK_TCK") / 5
    resource.prlimit(keeper.pid, resource.RLIMIT_FSIZE, (hard, hard))
    state = run.end()
    assert (state["status"], state["exit_code"]) == ("exited", 6)


def shim_cpu(pid: int) -> int:
    """Clock ticks of processor time that the process used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_state_that_can_never_be_stored_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "state.json").mkdir()
    state = shim.State(str(tmp_path))
    started = time.monotonic()
    assert not state.save_patiently(0.3, status="exited")
    assert time.monotonic() - started < 5


def test_a_deleted_run_folder_ends_the_shim_with_its_program(run: Run, tmp_path: Path) -> None:
    run.start(["sleep", "600"])
    keeper, child = run.proc("shim"), run.proc("child")
    for path in run.folder.iterdir():
        path.unlink()
    run.folder.rmdir()
    procs.signal_proc(child, signal.SIGKILL)
    assert procs.wait_exit(keeper, 30)


def test_a_run_folder_that_does_not_exist_is_explained(run: Run) -> None:
    run.folder.rmdir()
    answer = run.launch()
    assert answer.returncode == 1
    assert "No such file" in answer.stderr


def test_a_shim_stays_small(run: Run) -> None:
    run.start(["sleep", "600"])
    status = Path(f"/proc/{run.proc('shim').pid}/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0])
    assert resident < 60 * 1024
