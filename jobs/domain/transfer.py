"""What a download is made of: its source, limits and progress, and the state of a partial file.

The state is text: one JSON line about the file, then one for each chunk that is on the disk. A chunk is added
by appending a line, so a state that was cut short still names the chunks before the cut.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

VERSION = 1
CHUNK = 8 * 1024**2  # bytes; each has a hash of its own
MAX_SIZE = 4 * 1024**4  # bytes of one file
LINE = 200  # characters of a chunk's line at most
HEAD = 4096  # characters of the first line at most
LARGEST_REQUEST = 32  # chunks
WINDOW = 10.0  # seconds over which the speed is measured
LONGEST_PAUSE = 30.0  # seconds between two attempts

_HASH = re.compile(r"[0-9a-f]{64}")


class Resolved(Protocol):
    """Where the bytes are now; `headers` go to that origin only. What is None is not known there."""

    @property
    def url(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def size(self) -> int | None: ...
    @property
    def sha256(self) -> str | None: ...


@dataclass(frozen=True)
class Place:
    """A plain address that never changes."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """A file to fetch. `url` is what a person knows it by; `etag` is that of the files' host, if it is known.

    `resolve` is called in threads of the engine, at the start and whenever a link is refused or stands still;
    it may raise a Worded error with a `code`, which ends the download unless it is a temporary one.
    """

    url: str = field(repr=False)
    resolve: Callable[[], Resolved] = field(repr=False)
    size: int | None = None
    sha256: str | None = None
    etag: str | None = None


@dataclass(frozen=True)
class Limits:
    """Connections at once; bytes per second in all (None: any); seconds without a byte until a connection is
    given up (`stall`) and until the download is (`patience`); bytes of disk that stay free."""

    connections: int = 4
    rate: float | None = None
    stall: float = 30.0
    patience: float = 300.0
    spare: int = 1024**3


@dataclass(frozen=True)
class Progress:
    """`done` of `total` bytes; `speed` in bytes per second; `eta` in seconds (None: not known).

    `phase` is "fetching", or "checking" while only hashes are computed.
    """

    phase: str
    done: int
    total: int
    speed: float = 0.0
    eta: float | None = None


@dataclass(frozen=True)
class Fetched:
    """The finished file; `received` counts bytes that came over the network this time."""

    size: int
    sha256: str
    received: int


@dataclass
class PartState:
    """What is known of a partial file: size, hash and mark of its source, and each chunk's hash."""

    size: int
    sha256: str | None = None
    etag: str | None = None
    chunks: dict[int, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Chunks of the whole file; the last may be shorter."""
        return -(-self.size // CHUNK)

    @property
    def done(self) -> int:
        """Bytes that are on the disk."""
        return sum(chunk_size(self.size, index) for index in self.chunks)

    def head_line(self) -> str:
        """Return the first line of the state."""
        head = {
            "version": VERSION,
            "size": self.size,
            "chunk": CHUNK,
            "sha256": self.sha256,
            "etag": self.etag,
        }
        return json.dumps(head) + "\n"

    def text(self) -> str:
        """Return the whole state."""
        return self.head_line() + "".join(chunk_line(*item) for item in sorted(self.chunks.items()))


def chunk_size(size: int, index: int) -> int:
    """Return how many bytes a chunk of a file has."""
    return min(CHUNK, size - index * CHUNK)


def chunk_line(index: int, sha256: str) -> str:
    """Return the line that says that a chunk is on the disk."""
    return json.dumps({"chunk": index, "sha256": sha256}) + "\n"


def parse_state(text: str) -> PartState | None:
    """Return what a state file says, up to the first line that is broken; None when nothing can be used."""
    first, _, rest = text.partition("\n")
    head = _object(first, HEAD)
    if head is None or head.get("version") != VERSION or head.get("chunk") != CHUNK:
        return None
    size, sha256, etag = head.get("size"), head.get("sha256"), head.get("etag")
    if not _whole(size, 1, MAX_SIZE) or not (sha256 is None or _is_hash(sha256)):
        return None
    if not (etag is None or isinstance(etag, str)):
        return None
    state = PartState(size, sha256, etag)
    for line in rest.split("\n"):
        entry = _object(line, LINE)
        if entry is None or not _whole(entry.get("chunk"), 0, state.count - 1):
            break
        if not _is_hash(entry.get("sha256")):
            break
        state.chunks[entry["chunk"]] = entry["sha256"]
    return state


def missing(state: PartState) -> list[tuple[int, int]]:
    """Return the gaps as (first chunk, chunk after the last), in order."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for index in [*sorted(state.chunks), state.count]:
        if index > start:
            gaps.append((start, index))
        start = index + 1
    return gaps


def request_length(left: int, connections: int) -> int:
    """Return how many chunks one request asks for when so many are left: large ones first, then smaller.

    All connections work near each other from the front, so that the hash of the file keeps up with them,
    and all of them end at nearly the same time.
    """
    return max(1, min(LARGEST_REQUEST, left // (4 * connections)))


def pause(attempt: int, luck: float) -> float:
    """Return the seconds before attempt 1, 2 ... is repeated; `luck` from 0 to 1 spreads connections."""
    return float(min(LONGEST_PAUSE, 0.5 * 2 ** min(attempt - 1, 10)) * (0.5 + luck / 2))


class Meter:
    """The speed over the last seconds, from counts of bytes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, now: float, received: int) -> None:
        """Note how many bytes had come at a time (seconds of any clock that never goes back)."""
        self._seen.append((now, received))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW:
            self._seen.popleft()

    @property
    def speed(self) -> float:
        """Bytes per second."""
        if len(self._seen) < 2:
            return 0.0
        (began, first), (now, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - began) if now > began else 0.0

    def eta(self, left: int) -> float | None:
        """Return the seconds that so many bytes will take; None while nothing comes."""
        return left / self.speed if self.speed >= 1 else None


def _object(line: str, limit: int) -> dict[str, Any] | None:
    if len(line) > limit:
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _whole(value: object, low: int, high: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_hash(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None
