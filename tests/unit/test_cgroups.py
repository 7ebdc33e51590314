"""Control groups of runs, on a folder that stands in for the kernel's: plain files instead of its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.adapters import cgroups

ROOT = Path(__file__).parents[2]
UNIT = "system.slice/llamacpp-panel.service"
MOUNTS = (
    "25 1 0:22 / /proc rw - proc proc rw\n"
    "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the unit asks for it."""
    monkeypatch.setenv(cgroups.ASKED, "yes")


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The delegated group of a unit, with this process in it."""
    group = tmp_path / "sys/fs/cgroup" / UNIT
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text("cpu memory pids\n")
    (group / "cgroup.subtree_control").write_text("\n")
    (group / "cgroup.procs").write_text("4711\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTS)
    stand(tmp_path, f"0::/{UNIT}")
    return group


def stand(root: Path, line: str) -> None:
    """Say in which group the process is."""
    (root / "proc/self/cgroup").write_text(f"3:cpu:/elsewhere\n{line}\n")


def test_the_unit_is_prepared_and_a_run_gets_its_group_a_new_limit_and_its_end(
    unit: Path, tmp_path: Path
) -> None:
    group = cgroups.create("r1", 64 * cgroups.MIB, tmp_path)
    assert group == unit / "run-r1"
    assert (unit / "panel/cgroup.procs").read_text() == "4711"
    assert (unit / "cgroup.subtree_control").read_text() == "+memory"
    assert (group / "memory.max").read_text() == str(64 * cgroups.MIB)
    assert (group / "memory.oom.group").read_text() == "1"
    cgroups.change("r1", 32 * cgroups.MIB, tmp_path)
    assert (group / "memory.max").read_text() == str(32 * cgroups.MIB)
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n")
    assert cgroups.killed("r1", tmp_path)
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 0\noom_kill 1\n")
    assert not cgroups.killed("r1", tmp_path)  # the kernel needed memory for the host
    cgroups.change("r1", None, tmp_path)
    assert (group / "memory.max").read_text() == "max"
    for path in group.iterdir():  # the kernel's own files go with the folder
        path.unlink()
    cgroups.remove("r1", tmp_path)
    assert not group.exists()
    cgroups.change("r1", 1, tmp_path)
    assert not group.exists() and not cgroups.killed("r1", tmp_path)


def test_a_process_that_was_moved_before_finds_the_same_unit(unit: Path, tmp_path: Path) -> None:
    (unit / "cgroup.subtree_control").write_text("memory\n")
    stand(tmp_path, f"0::/{UNIT}/panel")
    assert cgroups.home(tmp_path) == unit
    assert (unit / "cgroup.subtree_control").read_text() == "memory\n"
    assert (unit / "cgroup.procs").read_text() == "4711\n"


def test_the_command_after_the_panel_takes_the_controller_back(unit: Path, tmp_path: Path) -> None:
    stand(tmp_path, f"0::/{UNIT}/.control")
    cgroups.release(tmp_path)
    assert (unit / "cgroup.subtree_control").read_text() == "\n"  # nothing was given out
    (unit / "cgroup.subtree_control").write_text("memory\n")
    cgroups.release(tmp_path)
    assert (unit / "cgroup.subtree_control").read_text() == "-memory"


@pytest.mark.parametrize(
    "line, controllers, mounts",
    [
        ("0::/", "memory", MOUNTS),
        ("0::/../other", "memory", MOUNTS),
        ("5:memory:/old", "memory", MOUNTS),
        (f"0::/{UNIT}", "cpu pids", MOUNTS),
        (f"0::/{UNIT}", "memory", ""),
        (f"0::/{UNIT}/gone", "memory", MOUNTS),
    ],
)
def test_what_is_not_delegated_is_left_alone_and_told_once(
    unit: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, controllers: str, mounts: str
) -> None:
    (unit / "cgroup.controllers").write_text(controllers)
    (tmp_path / "proc/self/mountinfo").write_text(mounts)
    stand(tmp_path, line)
    with caplog.at_level(logging.WARNING):
        assert cgroups.create("r1", 1, tmp_path) is None
        assert cgroups.create("r2", 1, tmp_path) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert sorted(path.name for path in unit.iterdir()) == [
        "cgroup.controllers",
        "cgroup.procs",
        "cgroup.subtree_control",
    ]


def test_nobody_is_moved_where_the_unit_does_not_ask_for_it(
    unit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(cgroups.ASKED)
    assert cgroups.home(tmp_path) is None
    assert not (unit / "panel").exists()


def test_the_units_last_command_works_and_stands_beside_what_it_takes_back() -> None:
    text = (ROOT / "deploy" / "llamacpp-panel.service").read_text()
    for line in ("KillMode=process", "OOMPolicy=continue", "Delegate=yes", "PANEL_RUN_GROUPS=yes"):
        assert line in text
    command = next(line for line in text.splitlines() if line.startswith("ExecStopPost=-"))
    words = command.removeprefix("ExecStopPost=-").split()[1:]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO")}
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 or "the controller is not taken back" in done.stderr
