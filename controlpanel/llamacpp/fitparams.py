"""llama-fit-params, a tool beside llama-server that builds the contexts without reading any weights.

It takes the common flags only and knows neither MTP nor a projector; what it prints is of the model's own
context. Sizes in whole MiB, as it prints them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.command import Line
from controlpanel.llamacpp.memory_settings import AUTO_SLOTS

TOOL = "llama-fit-params"

_ROW = re.compile(r"^(\S.{0,99}?) +(\d{1,9}) +(\d{1,9}) +(\d{1,9}) *$", re.MULTILINE)
_MAX_ROWS = 65
# Of the flags that the panel passes by itself only the model is about memory.
_MANAGED = ("--model",)


@dataclass(frozen=True)
class Measured:
    """One device, or "Host": MiB of weights, of the context (caches and states) and of computations."""

    name: str
    model: int
    context: int
    compute: int

    @property
    def total(self) -> int:
        """Return the sum."""
        return self.model + self.context + self.compute


def measure_args(lines: Iterable[Line], tool: Capabilities) -> tuple[list[str], list[str]]:
    """Return the tool's arguments for a server's command line, and the flags that it does not have."""
    args: list[str] = []
    left: list[str] = []
    for flag, value, source in lines:
        if source == "managed" and flag not in _MANAGED:
            continue
        if tool.has(flag):
            args += [flag] if value is None else [flag, value]
        else:
            left.append(flag)
    if not any(tool.find("--parallel") == tool.find(word) for word in args if word.startswith("-")):
        # The server's own number of slots, where the tool would take one.
        args += ["--parallel", str(AUTO_SLOTS)]
    return [*args, "--fit-print", "on"], left


def parse_measured(text: str) -> list[Measured]:
    """Return the rows of the tool's output, the host's last; empty for any other text."""
    rows = [Measured(name, int(model), int(context), int(work)) for name, model, context, work in _rows(text)]
    return sorted(rows, key=lambda row: row.name == "Host")


def _rows(text: str) -> list[tuple[str, str, str, str]]:
    return _ROW.findall(text[-65_536:])[:_MAX_ROWS]
