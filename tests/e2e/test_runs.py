"""Run folders with real shims and programs: start, look, stop, and every way to lose one of the two."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from jobs.adapters import runs
from jobs.adapters.runs import RunSpec, RunStatus
from jobs.runtime import procs, shim
from jobs.runtime.procs import Proc
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
SECRET = "s3cret-5f1c"
STUBBORN = ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"]


@pytest.fixture(autouse=True)
def data(settings: Settings, tmp_path: Path) -> Iterator[Path]:
    """An own data folder, and no process left behind."""
    settings.PANEL_DATA = tmp_path
    yield tmp_path
    for folder in (tmp_path / "runs").glob("*"):
        runs.kill(folder.name)
        assert runs.wait(folder.name, 30).status not in ("running", "orphaned")


def start(words: list[str], run_id: str = "r", **changes: Any) -> RunStatus:
    runs.spawn(run_id, replace(RunSpec(words, cwd="/", grace=120), **changes))
    return runs.inspect(run_id)


def said(word: str, times: int = 1) -> None:
    wait_for(lambda: runs.log_path("r").read_text().count(word) >= times, 30, f"{word!r} in the log")


def child_of(status: RunStatus) -> Proc:
    assert status.child is not None
    return status.child


def kill_shim(status: RunStatus) -> None:
    assert status.shim is not None
    assert procs.signal_proc(status.shim, signal.SIGKILL)
    assert procs.wait_exit(status.shim, 30)


def change_state(**changes: object) -> None:
    path = runs.run_dir("r") / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_run_is_seen_running_and_then_ended_with_its_exit_code(data: Path) -> None:
    os.mkfifo(data / "go")
    status = start(["sh", "-c", "echo hello; read x < go; exit 3"], cwd=str(data))
    assert (status.status, status.exit_code, status.ended_at, status.error) == ("running", None, None, "")
    assert status.shim is not None
    assert procs.alive(status.shim)
    assert procs.alive(child_of(status))
    assert runs.wait("r", 0).status == "running"
    (data / "go").write_text("\n")
    ended = runs.wait("r", 60)
    assert (ended.status, ended.exit_code, ended.stop_requested) == ("exited", 3, False)
    assert ended.started_at is not None
    assert ended.ended_at is not None
    assert ended.started_at <= ended.ended_at
    assert runs.log_path("r").read_text() == "hello\n"


@pytest.mark.parametrize("bad", ["", "..", "a/b", "a b", "x" * 65, "a\n", "/etc"])
def test_an_id_that_could_name_another_folder_is_refused(bad: str) -> None:
    for use in (runs.run_dir, runs.inspect, runs.request_stop, runs.kill, runs.log_path):
        with pytest.raises(ValueError, match="not a run id"):
            use(bad)


def test_a_run_nobody_started_is_missing_and_stopping_it_is_harmless() -> None:
    runs.request_stop("r")
    runs.kill("r")
    assert runs.inspect("r") == RunStatus("missing")
    assert runs.wait("r", 5) == RunStatus("missing")


def test_folder_and_files_are_closed_to_other_users() -> None:
    runs.run_dir("r").mkdir(mode=0o755, parents=True)
    start(["true"])
    runs.wait("r", 60)
    folder = runs.run_dir("r")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == dict.fromkeys(["spec.json", "state.json", "log", "lock"], 0o600)


def test_secrets_reach_the_program_and_nothing_else() -> None:
    script = "echo secret=$API_KEY plain=$PLAIN; exec sleep 600"
    status = start(["sh", "-c", script], env={"PLAIN": "p"}, secret_env={"API_KEY": SECRET})
    said("\n")
    assert runs.log_path("r").read_text() == f"secret={SECRET} plain=p\n"
    assert status.shim is not None
    child = child_of(status)
    places = [path for path in runs.run_dir("r").iterdir() if path.name != "log"]
    places += [Path(f"/proc/{proc.pid}/cmdline") for proc in (status.shim, child)]
    places.append(Path(f"/proc/{status.shim.pid}/environ"))
    assert [place for place in places if SECRET.encode() in place.read_bytes()] == []
    assert SECRET not in repr(RunSpec(["x"], "/", secret_env={"API_KEY": SECRET}))
    assert SECRET.encode() in Path(f"/proc/{child.pid}/environ").read_bytes()


@pytest.mark.parametrize("proxy", [False, True])
def test_the_panels_environment_is_not_passed_on(monkeypatch: pytest.MonkeyPatch, proxy: bool) -> None:
    for name in list(os.environ):
        if name != "PATH":
            monkeypatch.delenv(name)
    passed = {"LANG": "C.UTF-8", "CUDA_VISIBLE_DEVICES": "0", "HSA_OVERRIDE_GFX_VERSION": "11.0.0"}
    proxied = {"https_proxy": "http://p:1", "HTTP_PROXY": "http://p:2", "SSL_CERT_FILE": "/c"}
    withheld = {
        "SECRET_KEY": "x",
        "DATABASE_URL": "x",
        "HF_TOKEN": "x",
        "PANEL_DATA": "/d",
        "PYTHONPATH": "/p",
    }
    for name, value in (passed | proxied | withheld).items():
        monkeypatch.setenv(name, value)
    status = start(["sleep", "600"], env={"SPEC": "1", "LANG": "de_DE.UTF-8"}, proxy=proxy)
    expected = passed | {"PATH": os.environ["PATH"], "HOME": str(runs.run_dir("r"))}
    expected |= proxied if proxy else {}
    assert status.shim is not None
    for proc, own in ((status.shim, {}), (child_of(status), {"SPEC": "1", "LANG": "de_DE.UTF-8"})):
        entries = Path(f"/proc/{proc.pid}/environ").read_bytes().decode().rstrip("\0").split("\0")
        assert dict(entry.split("=", 1) for entry in entries) == expected | own


def test_no_process_of_a_run_is_left_to_the_starter() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    start(["sleep", "600"], "a")
    start(["true"], "b")
    runs.wait("b", 60)
    with pytest.raises(runs.SpawnError):
        start(["/no/such/program"], "c")
    assert children.read_text() == before


def test_a_program_that_cannot_be_started_is_an_error_in_words_and_noted() -> None:
    with pytest.raises(runs.SpawnError, match=r"^/no/such/program cannot be started: .*\(errno 2\)"):
        start(["/no/such/program"])
    status = runs.wait("r", 30)
    assert (status.status, status.exit_code, status.child) == ("exited", None, None)
    assert "/no/such/program cannot be started" in status.error


def test_a_start_that_failed_can_be_tried_again() -> None:
    with pytest.raises(runs.SpawnError):
        start(["/no/such/program"])
    start(["true"])
    assert runs.wait("r", 60).exit_code == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"argv": []}, "no program"),
        ({"argv": ["echo", "a\0b"]}, "NUL"),
        ({"env": {"A=B": "c"}}, "cannot be the name"),
        ({"grace": float("nan")}, "grace"),
        ({"grace": -1.0}, "grace"),
        ({"cwd": "/no/such/folder"}, "working folder /no/such/folder cannot be entered"),
    ],
)
def test_a_spec_that_cannot_work_is_refused_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(runs.SpawnError, match=words):
        start(["true"], **changes)


def test_a_data_folder_that_cannot_be_written_is_an_error_in_words(data: Path) -> None:
    (data / "runs").write_text("not a folder")
    with pytest.raises(runs.SpawnError, match="cannot be used"):
        start(["true"])
    (data / "runs").unlink()


def test_a_second_start_is_refused_and_leaves_the_first_and_its_spec_alone() -> None:
    first = start(["sleep", "600"])
    spec = (runs.run_dir("r") / "spec.json").read_text()
    with pytest.raises(runs.StartedBefore):
        start(["sleep", "601"])
    kill_shim(first)
    with pytest.raises(runs.StartedBefore):
        start(["sleep", "602"])
    assert (runs.run_dir("r") / "spec.json").read_text() == spec
    assert procs.alive(child_of(first))


def test_a_stop_is_kept_apart_from_a_crash() -> None:
    start(["sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"])
    said("up")
    runs.request_stop("r")
    status = runs.wait("r", 60)
    assert (status.status, status.exit_code, status.stop_requested) == ("exited", 5, True)
    runs.request_stop("r")
    assert runs.inspect("r") == status


def test_asking_again_for_a_stop_does_not_cut_the_grace_short() -> None:
    start(STUBBORN)
    said("up")
    runs.request_stop("r")
    wait_for(lambda: runs.inspect("r").stop_requested, 30, "the noted stop")
    runs.request_stop("r")
    assert runs.wait("r", 0.3).status == "running"


def test_a_kill_ends_a_stubborn_program_and_its_children_at_once() -> None:
    start(["sh", "-c", "trap '' TERM; sleep 600 & echo $!; while :; do sleep 0.05; done"])
    said("\n")
    inner = procs.proc_of(int(runs.log_path("r").read_text()))
    assert inner is not None
    runs.kill("r")
    status = runs.wait("r", 30)
    assert (status.exit_code, status.stop_requested) == (-signal.SIGKILL, True)
    assert procs.wait_exit(inner, 30)


def test_a_stop_asked_for_before_the_start_is_kept(data: Path) -> None:
    runs.run_dir("r").mkdir(parents=True)
    runs.request_stop("r")
    with pytest.raises(runs.SpawnError, match="stop was requested"):
        start(["touch", str(data / "ran")])
    assert not (data / "ran").exists()


def test_a_program_outlives_its_shim_and_keeps_logging(data: Path) -> None:
    first = start(["sh", "-c", "while [ ! -e go ]; do echo line; sleep 0.05; done"], cwd=str(data))
    kill_shim(first)
    lines = runs.log_path("r").read_text().count("line")
    said("line", lines + 3)
    status = runs.inspect("r")
    assert (status.status, status.child, status.exit_code) == ("orphaned", first.child, None)
    (data / "go").touch()
    status = runs.wait("r", 60)
    assert (status.status, status.exit_code, status.stop_requested) == ("lost", None, False)
    assert "how it ended is not known" in status.error


def test_an_orphan_is_stopped_and_its_exit_code_is_unknown() -> None:
    kill_shim(start(["sh", "-c", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"]))
    said("up")
    runs.request_stop("r")
    status = runs.wait("r", 60)
    assert (status.status, status.exit_code, status.stop_requested) == ("lost", None, True)
    said("bye")


@pytest.mark.parametrize("asked", [False, True])
def test_a_stubborn_orphan_is_killed_and_the_stop_noted(asked: bool) -> None:
    kill_shim(start(STUBBORN))
    said("up")
    if asked:
        runs.request_stop("r")
    assert runs.wait("r", 0.3).status == "orphaned"
    runs.kill("r")
    status = runs.wait("r", 30)
    assert (status.status, status.exit_code, status.stop_requested) == ("lost", None, True)


def test_a_wait_goes_on_with_the_program_when_the_shim_dies() -> None:
    status = start(["sleep", "600"])
    assert status.shim is not None
    used = time.process_time()
    script = (
        "import os, signal, sys, time\n"
        "for pid in map(int, sys.argv[1:]): time.sleep(0.3); os.kill(pid, signal.SIGKILL)"
    )
    pids = [str(status.shim.pid), str(child_of(status).pid)]
    with subprocess.Popen([sys.executable, "-S", "-c", script, *pids]):
        assert runs.wait("r", 60).status == "lost"
    assert not procs.alive(child_of(status))
    assert time.process_time() - used < 0.2  # a third of the wait


def test_a_run_outlives_a_starter_that_is_killed(data: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from django.conf import settings\n"
        "settings.configure(PANEL_DATA=Path(sys.argv[1]))\n"
        "from jobs.adapters import runs\n"
        "runs.spawn('r', runs.RunSpec(['sh', '-c', 'read x < go; exit 9'], sys.argv[1]))\n"
        "print('started', flush=True); sys.stdin.read()\n"
    )
    os.mkfifo(data / "go")
    with subprocess.Popen(
        [sys.executable, "-c", script, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        starter.kill()
    assert runs.inspect("r").status == "running"
    (data / "go").write_text("\n")
    assert runs.wait("r", 60).exit_code == 9


@pytest.mark.parametrize("ended", [False, True])
def test_a_pid_that_passed_to_somebody_else_is_neither_seen_nor_signalled(ended: bool) -> None:
    status = start(["sleep", "600"])
    kill_shim(status)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        found = procs.proc_of(stranger.pid)
        assert found is not None
        wrong = {"pid": found.pid, "start": found.start - 1, "boot": found.boot}
        change_state(child=wrong, shim=wrong, status="exited" if ended else "running")
        assert runs.inspect("r").status == ("exited" if ended else "lost")
        runs.request_stop("r")
        runs.kill("r")
        assert not procs.wait_exit(found, 0.3)
        stranger.kill()
    assert procs.end_session(child_of(status))


def test_a_restart_of_the_machine_loses_the_run() -> None:
    status = start(["sleep", "600"])
    state = json.loads((runs.run_dir("r") / "state.json").read_text())
    kill_shim(status)
    change_state(**{which: state[which] | {"boot": "an-earlier-boot"} for which in ("shim", "child")})
    lost = runs.inspect("r")
    assert (lost.status, lost.exit_code) == ("lost", None)
    assert "restarted" in lost.error
    runs.kill("r")
    assert procs.alive(child_of(status))
    assert procs.end_session(child_of(status))


@pytest.mark.parametrize(
    "text",
    [b"", b"\0" * 100, b"\xff\xfe", b"null", b"[" * 60000, b'{"a": 1' + b" " * shim.STATE_LIMIT + b"}"],
)
def test_a_state_that_is_garbage_is_a_missing_run_with_a_reason(text: bytes) -> None:
    runs.run_dir("r").mkdir(parents=True)
    (runs.run_dir("r") / "state.json").write_bytes(text)
    status = runs.inspect("r")
    assert status.status == "missing"
    assert "state.json is not usable" in status.error


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"shim": 7, "child": [], "status": ["exited"]},
        {"shim": {"pid": -1, "start": 0, "boot": ""}, "child": {"pid": 1, "start": 0, "boot": ""}},
        {
            "shim": {"pid": 10**40, "start": -1, "boot": None},
            "child": {"pid": True, "start": "1", "boot": "b"},
        },
        {
            "child": {"pid": 2**31, "start": 10**30, "boot": "b"},
            "exit_code": "1",
            "error": 5,
            "started_at": "x",
        },
        {"started_at": float("nan"), "ended_at": 10**400, "stop_requested": 1, "exit_code": False},
    ],
)
def test_a_state_with_values_of_the_wrong_kind_is_a_lost_run(state: dict[str, object]) -> None:
    runs.run_dir("r").mkdir(parents=True)
    (runs.run_dir("r") / "state.json").write_text(json.dumps(state))
    status = runs.inspect("r")
    assert status == RunStatus("lost", error=status.error)
    runs.request_stop("r")
    runs.kill("r")


def test_a_state_that_is_no_file_is_a_missing_run() -> None:
    (runs.run_dir("r") / "state.json").mkdir(parents=True)
    assert runs.inspect("r").status == "missing"
    (runs.run_dir("r") / "state.json").rmdir()
    os.mkfifo(runs.run_dir("r") / "state.json")
    assert runs.inspect("r").status == "missing"


def test_a_run_folder_that_was_deleted_is_missing() -> None:
    status = start(["sleep", "600"])
    shutil.rmtree(runs.run_dir("r"))
    assert runs.inspect("r").status == "missing"
    assert procs.end_session(child_of(status))
