"""What of a host was read to judge its readiness, and how a judgement looks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from controlpanel.lib.text import Message
from jobs.domain.gpu import Gpus
from jobs.domain.programs import Toolchain

State = Literal["good", "look", "bad", "unknown"]
UNLIMITED = -1

_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")
_DECIMAL = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}


@dataclass(frozen=True)
class Finding:
    """One row of the page: what was found (one line per value), why it matters, what a person may type.

    The commands are only shown: the panel runs none of them. Lines that belong together are one command.
    """

    key: str
    state: State
    title: Message
    value: tuple[Message, ...]
    why: Message
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limit:
    """A limit of a process, in the unit of what it limits; UNLIMITED is none."""

    soft: int
    hard: int


@dataclass(frozen=True)
class PciCard:
    """An NVIDIA card on the bus, its kernel driver, and its link: now and what the card itself can do."""

    address: str
    driver: str = ""
    gen: int | None = None
    width: int | None = None
    gen_max: int | None = None
    width_max: int | None = None


@dataclass(frozen=True)
class CardSettings:
    """What nvidia-smi says of a card's settings; W and MHz."""

    index: int
    persistence: bool | None = None
    power_default_w: float | None = None
    clock_max_mhz: int | None = None


@dataclass(frozen=True)
class Facts:
    """What was read of a host. None and "" stand for "not known" everywhere. Memory is in MiB, disk in bytes.

    `container` names what the panel itself runs in ("docker"), "" when nothing tells. `docker` and
    `nvidia_ctk` are versions, "?" when the program is there and tells none, "" when it is not there.
    `pci` is empty where the bus shows no NVIDIA card. `linux_driver` says that NVIDIA's library for Linux is
    installed beside that of WSL2. `gpus` is the last sample, its processes marked; None without one.
    """

    kernel: str = ""
    memory_mib: int | None = None
    memory_free_mib: int | None = None
    memory_limit_mib: int | None = None
    swap_mib: int | None = None
    swap_free_mib: int | None = None
    swappiness: int | None = None
    huge_pages: str = ""
    open_files: Limit | None = None
    memlock: Limit | None = None
    data_folder: str = ""
    disk_total: int | None = None
    disk_free: int | None = None
    disk_type: str = ""
    container: str = ""
    docker: str = ""
    docker_nvidia: bool | None = None
    nvidia_ctk: str = ""
    pci: tuple[PciCard, ...] = ()
    settings: tuple[CardSettings, ...] = ()
    gpu_device: bool | None = None
    linux_driver: bool | None = None
    toolchain: Toolchain | None = None
    gpus: Gpus | None = None
    stale: bool = False

    @property
    def wsl(self) -> int:
        """1 or 2 under that version of the Windows Subsystem for Linux, 0 elsewhere."""
        kernel = self.kernel.lower()
        if "microsoft" not in kernel:
            return 0
        return 1 if kernel.endswith("-microsoft") and kernel.startswith("4.4") else 2

    def setting(self, index: int) -> CardSettings:
        """Return a card's settings, all unknown when nvidia-smi told none."""
        return next((one for one in self.settings if one.index == index), CardSettings(index))


def pcie_generation(speed: str) -> int | None:
    """Return the generation of a link speed as Linux writes it: 4 of "16.0 GT/s PCIe"."""
    found = _SPEED.match(speed)
    return _GENERATIONS.get(found[1].removesuffix(".0")) if found else None


def read_card_settings(said: str) -> tuple[CardSettings, ...]:
    """Read nvidia-smi's rows: index, persistence_mode, power.default_limit, clocks.max.sm (W, MHz)."""
    found = []
    for line in said.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) != 4 or not (words[0].isascii() and words[0].isdigit()) or len(words[0]) > 4:
            continue
        persistence = {"Enabled": True, "Disabled": False}.get(words[1])
        power, clock = _positive(words[2]), _positive(words[3])
        found.append(CardSettings(int(words[0]), persistence, power, None if clock is None else int(clock)))
    return tuple(found)


def _positive(text: str) -> float | None:
    return float(text) if _DECIMAL.fullmatch(text) and float(text) > 0 else None


def worst(states: list[State]) -> State:
    """Return the state that asks most for attention; unknown when there is none at all."""
    order: tuple[State, ...] = ("bad", "look", "unknown", "good")
    return next((state for state in order if state in states), "unknown")
