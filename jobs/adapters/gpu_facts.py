"""Prints what NVML says of the driver and the cards as JSON, for a caller that must not wait for a driver.

Run as a program of its own: a call into NVML can hang, and then only this process does.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml


def main() -> int:
    """Print {"driver", "cuda", "gpus": [{"name", "arch"}]}; 1 without a usable driver."""
    try:
        pynvml.nvmlInit()
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        found = {
            "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
            "gpus": [_card(index) for index in range(pynvml.nvmlDeviceGetCount())],
        }
    except pynvml.NVMLError:
        return 1
    sys.stdout.write(json.dumps(found))
    return 0


def _card(index: int) -> dict[str, str]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    name = _known(pynvml.nvmlDeviceGetName, handle)
    arch = _known(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    return {"name": _text(name or ""), "arch": f"{arch[0]}{arch[1]}" if arch else ""}


def _known(call: Callable[[Any], Any], handle: Any) -> Any:
    try:
        return call(handle)
    except pynvml.NVMLError:  # a card that is lost, or a driver that does not know this
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    sys.exit(main())
