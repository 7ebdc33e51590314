"""What a llama-server's log says it took of memory, by device and term, in both dialects. Sizes in MiB."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from controlpanel.llamacpp.memory_types import HOST
from controlpanel.llamacpp.serverlog import strip_prefix

MAX_TEXT = 8 * 1024 * 1024
MAX_DEVICES = 64
MAX_SIZE = 1e8  # MiB; a larger number is no size
MAX_LINE = 1000

# Terms are named as those of the estimate; "weights" holds the MTP heads too, "recurrent" all states.
_SIZE = re.compile(r"^(\w{1,60}): +(\S{1,60}) +(model|KV|RS|compute|output) buffer size = +([\d.]{1,20}) MiB")
_PROJECTOR_SIZE = re.compile(r"^\w{1,60}: model size: +([\d.]{1,20}) MiB")
_PROJECTOR_DEVICE = re.compile(r"^clip_ctx: CLIP using (\S{1,60}) backend")
_PROJECTOR_WORK = re.compile(r"compute_meta$|^clip_")
_ROW = re.compile(r"\| +- (\S{1,60}) .{0,200}?(\d+) = +(\d+) \+ +(\d+) \+ +(\d+) *\)? ")
_GPU = re.compile(r"^([A-Za-z]+)(\d{1,3})$")
# A dry run that looks for what fits prints the same lines; what comes after these is the real load.
_STARTS = ("load_model: loading model '", "fitting params to free memory took")
_WORDS = ("buffer size =", "constructing llama_context", "loading model tensors", "CLIP using", "model size:")
_CONTEXT_TERMS = {"KV": "kv", "RS": "recurrent", "compute": "compute"}


@dataclass(frozen=True)
class Buffers:
    """Buffers by device as the log names it ("CUDA0", "CPU"), then by term of the estimate.

    `breakdown` is the table at the end of a log, when there is one: device to model, context and compute.
    """

    devices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    breakdown: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def backend(self) -> str:
        """Return the kind of the first graphics card that holds something, "CPU" when none does."""
        cards = (_GPU.match(name) for name, terms in self.devices.items() if any(terms.values()))
        return next((card[1] for card in cards if card), "CPU")

    def by_place(self) -> dict[int, dict[str, float]]:
        """Return the terms by the card's number, and those of main memory under HOST."""
        found: dict[int, dict[str, float]] = {}
        for name, terms in self.devices.items():
            card = _GPU.match(name)
            place = found.setdefault(int(card[2]) if card else HOST, {})
            for term, size in terms.items():
                place[term] = place.get(term, 0.0) + size
        return found


def read_buffers(text: str) -> Buffers:
    """Return the buffers of the last load that a log tells of, empty when it tells of none."""
    reader = _Reader()
    for line in _lines(text[:MAX_TEXT]):
        reader.read(line)
    return Buffers(reader.sizes(), reader.table)


def _lines(text: str) -> Iterator[str]:
    """Return the lines that can matter, without time stamps and other prefixes."""
    for line in text.splitlines():
        if any(word in line for word in (*_WORDS, *_STARTS, "|   - ")):
            yield strip_prefix(line[:MAX_LINE])


class _Reader:
    """Takes one line after the other; a context's caches are made before its work memory is reserved."""

    def __init__(self) -> None:
        self.table: dict[str, dict[str, float]] = {}
        self._clear()

    def read(self, line: str) -> None:
        """Note what a line says."""
        row = _ROW.search(line)
        size = _SIZE.match(line)
        if any(words in line for words in _STARTS):
            self._clear()
        elif row:
            names = ("model", "context", "compute")
            if len(self.table) < MAX_DEVICES or row[1] in self.table:
                self.table[row[1]] = dict(zip(names, map(float, row.groups()[2:]), strict=True))
        elif size:
            self._size(size[1], size[2], size[3], _number(size[4]))
        elif "loading model tensors" in line:
            self.loading = False
        elif "constructing llama_context" in line:
            self._next_context()
        elif projector := _PROJECTOR_DEVICE.match(line):
            self.projector = projector[1]
        elif self.projector and (weights := _PROJECTOR_SIZE.match(line)):
            self._add(self.projector, "mmproj", _number(weights[1]))

    def sizes(self) -> dict[str, dict[str, float]]:
        """Return what was noted, by device and term."""
        found = {name: dict(terms) for name, terms in self.found.items()}
        for name in {name for load in self.loads for name in load}:
            sizes = [load.get(name, 0.0) for load in self.loads]
            # Two models of one file map the same memory.
            found.setdefault(name, {})["weights"] = max(sizes) if name.endswith("_Mapped") else sum(sizes)
        for (name, term), value in self.work.items():
            found.setdefault(name, {})[term] = value
        return dict(sorted(found.items())[:MAX_DEVICES])

    def _clear(self) -> None:
        self.table.clear()
        self.found: dict[str, dict[str, float]] = {}
        self.loads: list[dict[str, float]] = []
        self.work: dict[tuple[str, str], float] = {}
        self.context = 0
        self.reserved = self.filled = self.loading = False
        self.projector = ""

    def _next_context(self) -> None:
        if self.filled:
            self.context += 1
        self.reserved = self.filled = False

    def _size(self, function: str, device: str, kind: str, size: float) -> None:
        if kind == "model":
            if not self.loading and len(self.loads) < MAX_DEVICES:
                self.loads.append({})
            self.loading = True
            if len(self.loads[-1]) < MAX_DEVICES:
                self.loads[-1][device] = self.loads[-1].get(device, 0.0) + size
        elif kind == "output":
            self._add(device, "output", size)
        elif kind == "compute" and _PROJECTOR_WORK.search(function):
            self._reserve(device, "mmproj_compute", size)
        else:
            if kind != "compute" and self.reserved:
                self._next_context()
            self.filled, self.loading = True, False
            self.reserved = self.reserved or kind == "compute"
            term = _CONTEXT_TERMS[kind]
            if self.context and kind != "RS":
                term = f"mtp_{term}"
            if kind == "compute":
                self._reserve(device, term, size)
            else:
                self._add(device, term, size)

    def _reserve(self, device: str, term: str, size: float) -> None:
        """Note work memory: reserved again, it takes the place of what was there."""
        if len(self.work) < 4 * MAX_DEVICES or (device, term) in self.work:
            self.work[device, term] = size

    def _add(self, device: str, term: str, size: float) -> None:
        if len(self.found) < MAX_DEVICES or device in self.found:
            terms = self.found.setdefault(device, {})
            terms[term] = terms.get(term, 0.0) + size


def _number(text: str) -> float:
    """Return a size, 0 for what is none."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 <= value < MAX_SIZE else 0.0
