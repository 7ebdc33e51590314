"""Looks for the programs on this host that builds need, each asked for its version within bounds."""

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings

from jobs.adapters.commands import CommandError, run_bounded
from jobs.domain.programs import PROGRAMS, Compiler, Gpu, Nvcc, Program, Toolchain
from jobs.domain.versions import parse_version

GPU_FACTS = Path(__file__).with_name("gpu_facts.py")
SECONDS = 10.0
LIMIT = 256 * 1024  # bytes
COMPILER = re.compile(r"(?:c\+\+|g\+\+|clang\+\+)(?:-\d{1,3})?")
TOOLKITS = ("/usr/local/cuda/bin", "/usr/local/cuda-*/bin", "/opt/cuda/bin", "/opt/cuda-*/bin")
COMPILERS = 24  # at most this many are asked
ELSEWHERE = {"hipcc": "/opt/rocm/bin"}
RELEASE = re.compile(r"release (\d+\.\d+)")


def look() -> Toolchain:
    """Return what this host has; whatever does not answer is left out."""
    facts = _gpu_facts()
    disk = shutil.disk_usage(settings.PANEL_DATA)
    return Toolchain(
        programs={name: program for name in PROGRAMS if (program := _program(name))},
        compilers=tuple(_compilers()),
        nvccs=tuple(_nvccs()),
        driver=facts.get("driver", ""),
        driver_cuda=facts.get("cuda", ""),
        gpus=tuple(Gpu(**card) for card in facts.get("gpus", [])),
        cores=len(os.sched_getaffinity(0)),
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1024 * 1024),
        disk_free=disk.free,
        disk_total=disk.total,
        glibc=platform.libc_ver()[1],
    )


def _program(name: str) -> Program | None:
    path = shutil.which(name) or shutil.which(name, path=ELSEWHERE.get(name, ""))
    said = _ask(path, "--version") if path else None
    return Program(path, parse_version(said)) if path and said is not None else None


def _compilers() -> Iterator[Compiler]:
    """Yield each C++ compiler on PATH once: names that lead to the same file count as one."""
    seen: set[Path] = set()
    for path in _on_path(COMPILER):
        real = path.resolve()
        if real in seen or len(seen) >= COMPILERS:
            continue
        seen.add(real)
        said = _ask(str(path), "--version") or ""
        version = parse_version(said)
        major = version.split(".")[0]
        if major.isdigit():
            yield Compiler(str(path), "clang" if "clang" in said.lower() else "gcc", version, int(major))


def _nvccs() -> Iterator[Nvcc]:
    """Yield each nvcc once, the one on PATH first."""
    first = shutil.which("nvcc")
    places = [first]
    places += [str(Path(home) / "bin" / "nvcc") for home in (os.environ.get("CUDA_HOME"),) if home]
    for pattern in TOOLKITS:
        places += sorted(str(path / "nvcc") for path in Path("/").glob(pattern[1:]))
    seen: set[Path] = set()
    for place in filter(None, places):
        real = Path(place).resolve()
        if real in seen or not os.access(place, os.X_OK):
            continue
        seen.add(real)
        found = RELEASE.search(_ask(place, "--version") or "")
        if found:
            yield Nvcc(place, found[1], on_path=place == first)


def _on_path(name: re.Pattern[str]) -> Iterator[Path]:
    """Yield executables of a name, plain names first, folders in the order of PATH."""
    found = []
    for number, folder in enumerate(os.environ.get("PATH", os.defpath).split(os.pathsep)):
        try:
            files = [path for path in Path(folder).iterdir() if name.fullmatch(path.name)]
        except OSError:
            continue
        found += [
            ("-" in path.name, path.name.startswith("c++"), number, path)
            for path in files
            if os.access(path, os.X_OK)
        ]
    yield from (path for *_order, path in sorted(found))


def _gpu_facts() -> dict[str, Any]:
    said = _ask(sys.executable, "-P", str(GPU_FACTS))
    try:
        found = json.loads(said or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _ask(*argv: str) -> str | None:
    """Return what a program prints; None when it fails, hangs or floods."""
    env = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    env |= {"LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
    try:
        answer = run_bounded(list(argv), seconds=SECONDS, limit=LIMIT, env=env, cwd=Path("/"))
    except CommandError:
        return None
    return answer.stdout + answer.stderr if answer.code == 0 else None
