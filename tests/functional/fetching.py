"""What the tests of downloads share: a file, a hub that has it, and one call that fetches it.

As a program it fetches one file and is killed: URL TARGET SIZE SHA256 CONNECTIONS.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jobs.adapters.transfer import fetch
from jobs.domain.transfer import CHUNK, Fetched, Limits, Place, Progress, Resolved, Source
from tests.fakes.hub import Hub

REPO, NAME = "org/model", "model.gguf"
SIZE = 5 * CHUNK + 4321
PROBE = 16  # bytes that each attempt asks for first
DATA = b"GGUF" + random.Random(7).randbytes(SIZE - 4)
TOKEN = "hf_0123456789secret"


@dataclass
class Shop:
    """A hub with the file, and a folder to fetch it into."""

    hub: Hub
    folder: Path
    progress: list[Progress] = field(default_factory=list)
    resolved: int = 0

    @property
    def target(self) -> Path:
        """Where the file goes."""
        return self.folder / NAME

    @property
    def sha256(self) -> str:
        """The hash that the hub tells."""
        return self.hub.repository(REPO).files[NAME].sha256

    def resolve(self) -> Resolved:
        """The hub's address of the file with the hub's token, as often as it is asked for."""
        self.resolved += 1
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return Place(self.hub.resolve_url(REPO, NAME), headers, SIZE, self.sha256)

    def source(self, *, known: bool = True) -> Source:
        """The file as the hub describes it; not `known`: any address, of which nothing is told."""
        url = self.hub.resolve_url(REPO, NAME)
        if known:
            return Source(url, self.resolve, SIZE, self.sha256)
        plain = self.hub.file_url(REPO, NAME)
        return Source(plain, lambda: Place(plain))

    def fetch(
        self,
        source: Source | None = None,
        limits: Limits | None = None,
        stop: Callable[[], str | None] = lambda: None,
    ) -> Fetched:
        """Fetch the file; impatient, so that what never works fails soon."""
        limits = limits or Limits(stall=1.0, patience=4.0, spare=0)
        return fetch(
            source or self.source(), self.target, limits, on_progress=self.progress.append, stop=stop
        )

    def stop_after(self, size: int) -> Callable[[], str | None]:
        """A `stop` that says so once this many bytes were sent."""
        return lambda: "pause" if self.hub.bytes_sent >= size else None

    def left(self) -> set[str]:
        """The names of all files in the folder."""
        return {path.name for path in self.folder.iterdir()}


def main() -> None:
    """Fetch until killed."""
    url, target, size, sha256, connections = sys.argv[1:]
    source = Source(url, lambda: Place(url), int(size), sha256)
    print("begins", flush=True)
    limits = Limits(connections=int(connections), spare=0)
    fetch(source, Path(target), limits, on_progress=lambda progress: None, stop=lambda: None)
    print("fetched", flush=True)


if __name__ == "__main__":
    main()
