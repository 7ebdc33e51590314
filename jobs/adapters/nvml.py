"""Reads the NVIDIA cards of this host through NVML (libnvidia-ml.so.1).

Each value is asked for by itself: one that the card or the driver does not give is None, a lost card does not
take the others along, and a driver that goes away is looked for again after a while. Calls may hang for as
long as the driver does, so callers read in a thread of their own (jobs.runtime.gpus).
"""

from __future__ import annotations

import pwd
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from jobs.adapters.nvml_events import XidWatch
from jobs.domain import gpu
from jobs.domain.gpu import GpuProcess, Gpus, GpuSample

LIBRARY = "libnvidia-ml.so.1"
PAUSE = (1.0, 30.0)  # seconds until the library is started again, first and longest

# NVML's error numbers
UNINITIALIZED, NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 1, 4, 9, 12
GPU_IS_LOST, RESET_REQUIRED, MISMATCH, GPU_NOT_FOUND = 15, 16, 18, 28
CARD_LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
LIBRARY_LOST = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, MISMATCH})
PROBLEMS = {
    NO_PERMISSION: gpu.NO_PERMISSION,
    DRIVER_NOT_LOADED: gpu.NOT_LOADED,
    LIBRARY_NOT_FOUND: gpu.NO_DRIVER,
    MISMATCH: gpu.MISMATCH,
}
# Arguments of NVML calls
TEMPERATURE_GPU, CLOCK_SM, CLOCK_MEMORY, PCIE_TX, PCIE_RX = 0, 1, 2, 0, 1
CORRECTED, UNCORRECTED, SINCE_LOAD, EVER = 0, 1, 0, 1


class _LibraryLostError(Exception):
    """The library has to be started again."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(number)
        self.problem = Gpus(problem=PROBLEMS.get(number, gpu.FAILED), words=words)


class _CardLostError(Exception):
    """A card has fallen off the bus or needs a reset."""


class Nvml:
    """The library in this process; used by one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nvml: Any = None
        self._problem: Gpus | None = None
        self._pause = PAUSE[0]
        self._next_start = 0.0
        self._xids = XidWatch()
        self._seen: dict[int, tuple[str | None, str | None]] = {}  # index: uuid and name

    def read(self) -> Gpus:
        """Return all cards as they are now, or why they cannot be read; never raises for what NVML says."""
        try:
            if self._nvml is None:
                if self._problem is not None and self._clock() < self._next_start:
                    return self._problem
                self._nvml = _started()
            found = self._read()
        except _LibraryLostError as error:
            self._problem = error.problem
            self._stop()
            return self._problem
        self._problem = None
        if not any(card.lost for card in found.gpus):
            self._pause = PAUSE[0]
        elif self._clock() >= self._next_start:
            # A card that was reset may come back only to a library that was started anew: with the next read.
            self._stop()
        return found

    def _stop(self) -> None:
        if self._nvml is not None:
            self._xids.end(self._nvml)
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
        self._nvml = None
        self._next_start = self._clock() + self._pause
        self._pause = min(2 * self._pause, PAUSE[1])

    def _read(self) -> Gpus:
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise _LibraryLostError(error.value, str(error)) from error
        self._xids.begin(self._nvml, count)
        self._xids.look(self._nvml)
        return Gpus(
            driver=self._ask("nvmlSystemGetDriverVersion"),
            cuda=gpu.cuda_version(self._ask("nvmlSystemGetCudaDriverVersion")),
            gpus=tuple(self._card(index) for index in range(count)),
            problem=None if count else gpu.NO_CARD,
        )

    def _ask(self, name: str, *args: Any) -> Any:
        """Call one function of NVML; None when it has no answer."""
        try:
            return getattr(self._nvml, name)(*args)
        except self._nvml.NVMLError as error:
            if error.value in CARD_LOST:
                raise _CardLostError(str(error)) from error
            if error.value in LIBRARY_LOST:
                raise _LibraryLostError(error.value, str(error)) from error
            return None

    def _card(self, index: int) -> GpuSample:
        uuid, name = self._seen.get(index, (None, None))
        card = GpuSample(index, uuid, name, xids=self._xids.of(index))
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            card = replace(self._values(index, handle), xids=card.xids)
        except _CardLostError as error:
            return replace(card, lost=True, error=str(error))
        except self._nvml.NVMLError as error:
            if error.value in LIBRARY_LOST:
                raise _LibraryLostError(error.value, str(error)) from error
            return replace(card, lost=error.value in CARD_LOST, error=str(error))
        self._seen[index] = (card.uuid, card.name)
        return card

    def _values(self, index: int, handle: Any) -> GpuSample:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle, self._nvml.nvmlMemory_v2)
        if memory is None:  # drivers before 510
            memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        usage = self._ask("nvmlDeviceGetUtilizationRates", handle)
        temperature = self._ask("nvmlDeviceGetTemperature", handle, TEMPERATURE_GPU)
        if temperature is None:
            temperature = self._ask("nvmlDeviceGetTemperatureV", handle, TEMPERATURE_GPU)
        rows, repair = gpu.row_repairs(self._ask("nvmlDeviceGetRemappedRows", handle))
        return GpuSample(
            index=index,
            uuid=self._ask("nvmlDeviceGetUUID", handle),
            name=self._ask("nvmlDeviceGetName", handle),
            memory_total_mib=gpu.mib(memory and memory.total),
            memory_used_mib=gpu.mib(memory and memory.used),
            memory_reserved_mib=gpu.mib(getattr(memory, "reserved", None)),
            utilization=usage and usage.gpu,
            memory_utilization=usage and usage.memory,
            temperature=temperature,
            power_w=_thousandths(self._ask("nvmlDeviceGetPowerUsage", handle)),
            power_limit_w=_thousandths(self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
            clock_mhz=self._ask("nvmlDeviceGetClockInfo", handle, CLOCK_SM),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", handle, CLOCK_MEMORY),
            fan=self._ask("nvmlDeviceGetFanSpeed", handle),
            pcie_gen=self._ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            pcie_width=self._ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
            pcie_gen_max=self._ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            pcie_width_max=self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
            pcie_rx_mib_s=_kib_in_mib(self._ask("nvmlDeviceGetPcieThroughput", handle, PCIE_RX)),
            pcie_tx_mib_s=_kib_in_mib(self._ask("nvmlDeviceGetPcieThroughput", handle, PCIE_TX)),
            throttle=gpu.throttle_reasons(self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)),
            processes=self._processes(handle),
            ecc_corrected=self._ecc(handle, CORRECTED, SINCE_LOAD),
            ecc_uncorrected=self._ecc(handle, UNCORRECTED, SINCE_LOAD),
            ecc_corrected_ever=self._ecc(handle, CORRECTED, EVER),
            ecc_uncorrected_ever=self._ecc(handle, UNCORRECTED, EVER),
            remapped_rows=rows,
            repair=repair,
        )

    def _ecc(self, handle: Any, kind: int, since: int) -> int | None:
        found: int | None = self._ask("nvmlDeviceGetTotalEccErrors", handle, kind, since)
        return found

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...] | None:
        lists = [
            self._listed("nvmlDeviceGetComputeRunningProcesses", handle),
            self._listed("nvmlDeviceGetGraphicsRunningProcesses", handle),
        ]
        if lists == [None, None]:
            return None
        found = [item for listed in lists for item in listed or ()]
        return gpu.merged(
            GpuProcess(
                item.pid, _process_name(item.pid), gpu.mib(item.usedGpuMemory), user=_process_user(item.pid)
            )
            for item in found
        )

    def _listed(self, name: str, handle: Any) -> list[Any] | None:
        found: list[Any] | None = self._ask(name, handle)
        if found is None:  # drivers before 510
            found = self._ask(f"{name}_v2", handle)
        return found


def _started() -> Any:
    # pynvml defines hundreds of structures (3 MiB): it is not even imported where there is no driver.
    import ctypes

    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise _LibraryLostError(LIBRARY_NOT_FOUND, str(error)) from error
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _LibraryLostError(error.value, str(error)) from error
    return pynvml


def _thousandths(number: int | None) -> float | None:
    return None if number is None else round(number / 1000, 1)


def _kib_in_mib(number: int | None) -> float | None:
    return None if number is None else round(number / 1024, 1)


def _process_name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _process_user(pid: int) -> str | None:
    try:
        return _user_name(Path(f"/proc/{pid}").stat().st_uid)
    except OSError:
        return None


@lru_cache(maxsize=256)
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


_nvml = Nvml()
_lock = threading.Lock()


def read() -> Gpus:
    """Return the cards of this host with this process's one library; a second caller waits for the first."""
    with _lock:
        return _nvml.read()
