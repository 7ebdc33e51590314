"""Reads of this host what its readiness is judged by; nothing is changed, and nothing runs as root.

What is missing or cannot be read stays unknown. Files are read to a bound, and programs are asked within a
short deadline, in a thread: one that hangs in the driver cannot be ended and must not hold the page.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from jobs.adapters.commands import CommandError, run_bounded
from jobs.domain.readiness_facts import (
    UNLIMITED,
    CardSettings,
    Facts,
    Limit,
    PciCard,
    pcie_generation,
    read_card_settings,
)
from jobs.domain.versions import parse_version

SECONDS = 4.0  # of one program
PATIENCE = 6.0  # seconds for all programs together
LIMIT = 64 * 1024  # bytes of a file or an answer
NVIDIA = "0x10de"
DISPLAY = "0x03"  # PCI class of graphics cards and accelerators
CARDS = 64
MOST_LANES = 32
QUERY = "index,persistence_mode,power.default_limit,clocks.max.sm"
WSL_LIBRARY = "usr/lib/wsl/lib/libcuda.so.1"
LINUX_LIBRARIES = ("usr/lib/x86_64-linux-gnu/libcuda.so.1", "usr/lib64/libcuda.so.1")

_asking = threading.Lock()  # held while programs are asked: one that hangs is not asked once more


def facts(root: Path = Path("/"), *, ask: bool = True) -> Facts:
    """Return what this host tells below `root`; with `ask` also what its programs tell. Never raises."""
    memory = _memory(root)
    programs = _ask_programs() if ask else _Programs()
    folder = str(settings.PANEL_DATA)
    disk = _disk(folder)
    return Facts(
        kernel=_text(root / "proc/sys/kernel/osrelease") or platform.release(),
        memory_mib=memory.get("MemTotal"),
        memory_free_mib=memory.get("MemAvailable"),
        memory_limit_mib=_mib(_text(root / "sys/fs/cgroup/memory.max")),
        swap_mib=memory.get("SwapTotal"),
        swap_free_mib=memory.get("SwapFree"),
        swappiness=_number(_text(root / "proc/sys/vm/swappiness")),
        huge_pages=_chosen(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        open_files=_limit(resource.RLIMIT_NOFILE),
        memlock=_limit(resource.RLIMIT_MEMLOCK),
        data_folder=folder,
        disk_total=disk[0],
        disk_free=disk[1],
        disk_type=_disk_type(root, folder),
        container=_container(root),
        docker=programs.docker,
        docker_nvidia=_docker_nvidia(root),
        nvidia_ctk=programs.nvidia_ctk,
        pci=tuple(_cards(root)),
        settings=programs.settings,
        gpu_device=_exists(root / "dev/dxg"),
        linux_driver=_linux_driver(root),
    )


class _Programs:
    """What programs tell; filled in by a thread as answers come."""

    def __init__(self) -> None:
        self.docker = "?" if shutil.which("docker") else ""
        self.nvidia_ctk = "?" if shutil.which("nvidia-ctk") else ""
        self.settings: tuple[CardSettings, ...] = ()

    def ask(self) -> None:
        self.docker = _version("docker")
        self.nvidia_ctk = _version("nvidia-ctk")
        smi = shutil.which("nvidia-smi")
        if smi:
            said = _said(smi, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")
            self.settings = read_card_settings(said or "")


def _ask_programs() -> _Programs:
    found = _Programs()
    if not _asking.acquire(timeout=PATIENCE):
        return found

    def ask() -> None:
        try:
            found.ask()
        finally:
            _asking.release()

    thread = threading.Thread(target=ask, name="readiness", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return found


def _version(name: str) -> str:
    path = shutil.which(name)
    if not path:
        return ""
    said = _said(path, "--version")
    return (parse_version(said) if said else "") or "?"


def _said(*argv: str) -> str | None:
    env = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    env |= {"LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
    try:
        answer = run_bounded(list(argv), seconds=SECONDS, limit=LIMIT, env=env, cwd=Path("/"))
    except (CommandError, OSError, ValueError):
        return None
    return answer.stdout if answer.code == 0 else None


def _text(path: Path) -> str:
    """Return a small file's text without the blanks around it, "" when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(LIMIT).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _exists(path: Path) -> bool | None:
    try:
        return path.exists()
    except OSError:
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _mib(text: str) -> int | None:
    number = _number(text)
    return None if number is None else number // (1024 * 1024)


def _memory(root: Path) -> dict[str, int]:
    """Return the values of /proc/meminfo in MiB."""
    found = {}
    for line in _text(root / "proc/meminfo").splitlines():
        name, _colon, rest = line.partition(":")
        words = rest.split()
        number = _number(words[0]) if words else None
        if number is not None:
            found[name] = number // 1024
    return found


def _chosen(text: str) -> str:
    """Return the word in brackets: madvise of "always [madvise] never"."""
    start, end = text.find("["), text.find("]")
    return text[start + 1 : end] if 0 <= start < end else ""


def _limit(which: int) -> Limit | None:
    try:
        soft, hard = resource.getrlimit(which)
    except (OSError, ValueError):
        return None
    return Limit(*(UNLIMITED if one == resource.RLIM_INFINITY else one for one in (soft, hard)))


def _disk(folder: str) -> tuple[int | None, int | None]:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None, None
    return usage.total, usage.free


def _disk_type(root: Path, folder: str) -> str:
    """Return the type of the file system that holds a folder: the last mount of its longest prefix."""
    best, kind = "", ""
    real = os.path.realpath(folder)
    for line in _text(root / "proc/self/mounts").splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        place = words[1].replace("\\040", " ").rstrip("/")
        if (real == place or real.startswith(place + "/")) and len(place) >= len(best):
            best, kind = place, words[2]
    return kind


def _container(root: Path) -> str:
    if _exists(root / ".dockerenv"):
        return "Docker"
    if _exists(root / "run/.containerenv"):
        return "Podman"
    # systemd writes here what it runs in; under WSL2 that is no container of ours.
    kind = _text(root / "run/systemd/container")
    return "" if kind == "wsl" else kind[:40]


def _docker_nvidia(root: Path) -> bool | None:
    """Tell whether Docker's own settings name NVIDIA's runtime; None when they cannot be read."""
    path = root / "etc/docker/daemon.json"
    there = _exists(path)
    if not there:
        return None if there is None else False
    text = _text(path)
    try:
        runtimes = json.loads(text)["runtimes"] if text else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return False if text else None
    return runtimes is not None and "nvidia" in runtimes if isinstance(runtimes, dict) else None


def _linux_driver(root: Path) -> bool | None:
    """Tell whether NVIDIA's library for Linux lies beside that of WSL2; None elsewhere."""
    if not _exists(root / WSL_LIBRARY):
        return None
    own = (root / WSL_LIBRARY).parent
    try:
        # WSL2 itself may link to its own library from the usual places.
        return any(
            (root / name).exists() and (root / name).resolve().parent != own for name in LINUX_LIBRARIES
        )
    except OSError:
        return None


def _cards(root: Path) -> Iterator[PciCard]:
    """Yield the NVIDIA cards on the bus."""
    try:
        devices = sorted((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return
    count = 0
    for device in devices:
        if _text(device / "vendor") != NVIDIA or not _text(device / "class").startswith(DISPLAY):
            continue
        count += 1
        if count > CARDS:
            return
        yield PciCard(
            address=device.name,
            driver=_driver(device),
            gen=pcie_generation(_text(device / "current_link_speed")),
            width=_lanes(_text(device / "current_link_width")),
            gen_max=pcie_generation(_text(device / "max_link_speed")),
            width_max=_lanes(_text(device / "max_link_width")),
        )


def _lanes(text: str) -> int | None:
    number = _number(text)
    return number if number and number <= MOST_LANES else None  # virtual machines say 0 or 255


def _driver(device: Path) -> str:
    try:
        return (device / "driver").readlink().name
    except OSError:
        return ""
