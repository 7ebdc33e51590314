"""Naming, finding and signalling processes, with real ones."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.runtime import procs
from jobs.runtime.procs import Proc
from tests.waiting import wait_for

SLEEP = ["sleep", "600"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads its own session."""
    with subprocess.Popen(SLEEP, start_new_session=True) as process:
        yield process
        process.kill()


def named(pid: int) -> Proc:
    found = procs.proc_of(pid)
    assert found is not None
    return found


def test_this_process_is_named_by_pid_start_time_and_boot() -> None:
    mine = procs.this_process()
    assert mine.pid == os.getpid()
    assert mine.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    ticks = os.sysconf("SC_CLK_TCK")
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert 0 < mine.start / ticks <= uptime
    assert procs.alive(mine)


def test_a_program_name_with_spaces_and_parentheses_does_not_shift_the_fields(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b c"
    shutil.copy("/bin/sleep", program)
    mine = procs.this_process()
    with subprocess.Popen([program, "600"]) as process:
        try:
            wait_for(
                lambda: b"a) R 1 (b c" in Path(f"/proc/{process.pid}/stat").read_bytes(), 10, "the new name"
            )
            found = named(process.pid)
            assert found.start >= mine.start
            assert procs.alive(found)
            assert procs.signal_proc(found, signal.SIGTERM)
            assert process.wait(10) == -signal.SIGTERM
        finally:
            process.kill()


def test_a_pid_nobody_has_names_no_process() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert procs.proc_of(process.pid) is None


def test_a_zombie_is_not_alive_but_still_named() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    zombie = named(process.pid)
    assert not procs.alive(zombie)
    assert procs.wait_exit(zombie, 0)
    assert not procs.signal_proc(zombie, signal.SIGTERM)
    process.wait()


@pytest.mark.parametrize("field", ["start", "boot"])
def test_a_process_with_another_start_or_boot_is_never_signalled(
    sleeper: subprocess.Popen[bytes], field: str
) -> None:
    real = named(sleeper.pid)
    stranger = replace(real, start=real.start - 1) if field == "start" else replace(real, boot="another-boot")
    assert not procs.alive(stranger)
    assert procs.wait_exit(stranger, 0)
    assert not procs.signal_proc(stranger, signal.SIGKILL)
    assert not procs.signal_group(stranger, signal.SIGKILL)
    assert not procs.end_session(stranger)
    assert not procs.wait_exit(real, 0.2)


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_numbers_that_mean_everybody_are_refused(pid: int) -> None:
    first = named(1)
    proc = Proc(pid, first.start, first.boot)
    assert not procs.signal_proc(proc, 0)
    assert not procs.signal_group(proc, 0)
    assert not procs.end_session(proc)


def test_wait_exit_ends_with_the_process_and_not_before(sleeper: subprocess.Popen[bytes]) -> None:
    proc = named(sleeper.pid)
    assert not procs.wait_exit(proc, 0.05)
    assert procs.signal_proc(proc, signal.SIGKILL)
    assert procs.wait_exit(proc, 30)
    sleeper.wait(30)
    assert not procs.alive(proc)


def test_a_group_signal_reaches_the_leaders_children() -> None:
    script = "sleep 600 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        inner = named(int(process.stdout.readline()))
        assert procs.signal_group(named(process.pid), signal.SIGKILL)
        assert procs.wait_exit(inner, 30)


def test_a_process_that_leads_no_group_gets_no_group_signal() -> None:
    with subprocess.Popen(SLEEP) as process:
        assert not procs.signal_group(named(process.pid), signal.SIGKILL)
        assert not procs.end_session(named(process.pid))
        assert not procs.wait_exit(named(process.pid), 0.05)
        process.kill()


def test_ending_a_session_reaches_a_child_in_a_group_of_its_own() -> None:
    script = (
        "import subprocess; child = subprocess.Popen(['sleep', '600'], process_group=0);"
        "print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        inner = named(int(process.stdout.readline()))
        assert os.getpgid(inner.pid) == inner.pid
        assert procs.end_session(named(process.pid))
        assert procs.wait_exit(inner, 30)


def test_processes_are_found_by_one_exact_environment_entry() -> None:
    value = f"mark-{os.getpid()}"
    with (
        subprocess.Popen(SLEEP, env={"MARK": value}) as marked,
        subprocess.Popen(SLEEP, env={"MARK": value + "0", "OTHERMARK": value}) as unmarked,
    ):
        try:
            found = wait_for(lambda: procs.find_by_environ("MARK", value), 10, "the marked process")
            assert found == [named(marked.pid)]
            assert procs.find_by_environ("OTHERMARK", value) == [named(unmarked.pid)]
        finally:
            marked.kill()
            unmarked.kill()
