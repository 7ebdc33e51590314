"""GPUs as values: what a sample says, and what its numbers mean in words.

None stands for "not known" everywhere; a zero is a measured zero. Memory is in MiB.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from controlpanel.lib.text import N_, Message

MIB = 1024 * 1024
STALE_AFTER = 5.0  # seconds without a new sample after which the numbers are old

# Why there are no numbers (Gpus.problem)
NO_DRIVER = "no_driver"
NO_CARD = "no_card"
NOT_LOADED = "not_loaded"
MISMATCH = "mismatch"
NO_PERMISSION = "no_permission"
SILENT = "silent"
FAILED = "failed"

# With these the host simply has no GPU; with the others it has one that cannot be read.
WITHOUT_GPU = frozenset({NO_DRIVER, NO_CARD})

ERRORS = {
    NO_DRIVER: N_("There is no NVIDIA driver on this host."),
    NO_CARD: N_("The NVIDIA driver finds no card in this host."),
    NOT_LOADED: N_("The NVIDIA driver is installed but not loaded."),
    MISMATCH: N_("The NVIDIA driver and its library differ (driver/library version mismatch)."),
    NO_PERMISSION: N_("The panel may not read the NVIDIA cards of this host."),
    SILENT: N_("The NVIDIA driver does not answer."),
    FAILED: N_("The NVIDIA driver answers with an error: %(words)s"),
}
REMEDIES = {
    NO_DRIVER: N_(
        "If it has an NVIDIA card, install the driver; in a container, pass the cards through. "
        "The panel notices by itself."
    ),
    NO_CARD: N_("Check that the card sits well and has power, then reboot the host."),
    NOT_LOADED: N_("Load it with “modprobe nvidia”, or reboot the host."),
    MISMATCH: N_("The driver was updated while it was in use. Reboot the host, then start the panel again."),
    NO_PERMISSION: N_("Give the panel's user access to /dev/nvidia* and start the panel again."),
    SILENT: N_("Servers may hang too. Look for NVRM and Xid in the kernel log; a reboot of the host helps."),
    FAILED: N_("See whether nvidia-smi works on the host. The panel tries again by itself."),
}

# Bits of nvmlDeviceGetCurrentClocksThrottleReasons, by name
_THROTTLE_BITS = {
    "idle": 0x1,
    "application_clocks": 0x2,
    "power_limit": 0x4,
    "hardware_slowdown": 0x8,
    "sync_boost": 0x10,
    "software_heat": 0x20,
    "hardware_heat": 0x40,
    "power_brake": 0x80,
    "display_clocks": 0x100,
}
THROTTLE_WORDS = {
    "idle": N_("idle"),
    "application_clocks": N_("set clocks"),
    "power_limit": N_("power limit"),
    "hardware_slowdown": N_("hardware slowdown"),
    "sync_boost": N_("sync boost"),
    "software_heat": N_("heat"),
    "hardware_heat": N_("heat (hardware limit)"),
    "power_brake": N_("power brake"),
    "display_clocks": N_("display clocks"),
    "other": N_("other"),
}
# What slows the card down although nobody asked for it; the power limit is normal under load.
THROTTLE_ALARMS = frozenset({"hardware_slowdown", "software_heat", "hardware_heat", "power_brake"})


@dataclass(frozen=True)
class GpuProcess:
    """A process with memory on a card; `ours` says whether it belongs to an active run of the panel.

    `user` owns it, `subject` is what the run is about, such as "instance:5".
    """

    pid: int
    name: str | None = None
    memory_mib: int | None = None
    ours: bool | None = None
    user: str | None = None
    subject: str | None = None


@dataclass(frozen=True)
class Xid:
    """An error that the driver told of a card, by NVIDIA's number, and when (seconds since 1970)."""

    time: float
    number: int


@dataclass(frozen=True)
class GpuSample:
    """One card. Percent, °C, W and MHz; PCIe throughput in MiB/s; used memory as nvidia-smi counts it.

    A lost card keeps its name and uuid, if they were known, and has no numbers. `error` holds the driver's
    words for a card that is lost or that cannot be read. Errors of its memory are counted since the driver
    was loaded, and since the card was made; `repair` is "pending" or "failed" when rows of it wait for that.
    `xids` has the last error of each number, the newest first.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    lost: bool = False
    error: str | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_reserved_mib: int | None = None
    utilization: int | None = None
    memory_utilization: int | None = None
    temperature: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    fan: int | None = None
    pcie_gen: int | None = None
    pcie_width: int | None = None
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    pcie_rx_mib_s: float | None = None
    pcie_tx_mib_s: float | None = None
    throttle: tuple[str, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected_ever: int | None = None
    ecc_uncorrected_ever: int | None = None
    remapped_rows: int | None = None
    repair: str | None = None
    xids: tuple[Xid, ...] = ()


@dataclass(frozen=True)
class Gpus:
    """All cards of a host; `problem` is a key of ERRORS when they cannot be read, `words` what NVML says."""

    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[GpuSample, ...] = ()
    problem: str | None = None
    words: str = ""

    @property
    def error(self) -> Message | None:
        """What is wrong."""
        if self.problem is None:
            return None
        text = ERRORS.get(self.problem, ERRORS[FAILED])
        return Message(text, {"words": self.words} if "%(words)s" in text else {})

    @property
    def remedy(self) -> Message | None:
        """What to do about it."""
        return None if self.problem is None else Message(REMEDIES.get(self.problem, REMEDIES[FAILED]))


@dataclass(frozen=True)
class Sample:
    """The cards as read at `time` (seconds since 1970).

    With `since` the driver does not answer: the cards are as they were then, or unknown when there are none.
    """

    time: float
    gpus: Gpus
    since: float | None = None

    def stale_since(self, now: float) -> float | None:
        """Return since when the numbers are old, or None when they are not."""
        if self.since is not None:
            return self.since
        return self.time if now - self.time > STALE_AFTER else None


def cuda_version(number: int | None) -> str | None:
    """Write NVML's number of a CUDA version: 13000 as 13.0."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def mib(number: int | None) -> int | None:
    """Return bytes in whole MiB."""
    return None if number is None else round(number / MIB)


def throttle_reasons(bits: int | None) -> tuple[str, ...] | None:
    """Return the keys of THROTTLE_WORDS for NVML's bits."""
    if bits is None:
        return None
    known = tuple(name for name, bit in _THROTTLE_BITS.items() if bits & bit)
    return (*known, "other") if bits & ~sum(_THROTTLE_BITS.values()) else known


def row_repairs(found: tuple[int, int, int, int] | None) -> tuple[int | None, str | None]:
    """Return how many rows of memory are out of use, and whether a repair is "pending" or has "failed".

    NVML counts those with corrected and with uncorrected errors apart, then says what waits and what failed.
    """
    if found is None:
        return None, None
    corrected, uncorrected, pending, failed = found
    return corrected + uncorrected, "failed" if failed else "pending" if pending else None


def merged(processes: Iterable[GpuProcess]) -> tuple[GpuProcess, ...]:
    """Return each process once, largest first: one that computes and draws is in both of NVML's lists."""
    found: dict[int, GpuProcess] = {}
    for process in processes:
        known = found.get(process.pid)
        if known is None or (known.memory_mib or 0) < (process.memory_mib or 0):
            found[process.pid] = process
    return tuple(sorted(found.values(), key=lambda process: (-(process.memory_mib or 0), process.pid)))


def marked(gpus: Gpus, own: Mapping[int, str] | None) -> Gpus:
    """Say for each process whether its pid is among the panel's own, and of what; None: that is not known."""

    def mark(process: GpuProcess) -> GpuProcess:
        if own is None:
            return replace(process, ours=None, subject=None)
        return replace(process, ours=process.pid in own, subject=own.get(process.pid))

    cards = (
        replace(card, processes=card.processes and tuple(map(mark, card.processes))) for card in gpus.gpus
    )
    return replace(gpus, gpus=tuple(cards))


def own_memory_mib(card: GpuSample) -> int | None:
    """Return the memory of the panel's own processes on a card; None when it is not known."""
    if card.processes is None or any(process.ours is None for process in card.processes):
        return None
    own = [process.memory_mib for process in card.processes if process.ours]
    return None if None in own else sum(number for number in own if number is not None)


def to_json(sample: Sample) -> str:
    """Return the sample as one JSON object."""
    return json.dumps(asdict(sample), ensure_ascii=False, separators=(",", ":"))


def from_json(text: str | bytes) -> Sample:
    """Read what to_json wrote, by this or another version of the panel; ValueError when it is no sample."""
    try:
        found = json.loads(text)
        cards = tuple(_card(card) for card in found["gpus"]["gpus"])
        return Sample(
            time=float(found["time"]),
            since=None if found.get("since") is None else float(found["since"]),
            gpus=Gpus(**{**_known(Gpus, found["gpus"]), "gpus": cards}),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("this is no sample") from error


def _card(found: dict[str, Any]) -> GpuSample:
    values = _known(GpuSample, found)
    if values.get("processes") is not None:
        values["processes"] = tuple(GpuProcess(**_known(GpuProcess, item)) for item in values["processes"])
    if values.get("throttle") is not None:
        values["throttle"] = tuple(values["throttle"])
    values["xids"] = tuple(Xid(**_known(Xid, item)) for item in values.get("xids") or ())
    return GpuSample(**values)


def _known(kind: type, found: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in found.items() if name in names}
