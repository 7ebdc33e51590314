"""What the fake hub keeps: repositories with their files, faults on demand, throttles, a log of requests."""

from __future__ import annotations

import hashlib
import mmap
import threading
import time
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GRANTED, NO_LICENCE, WAITING, REJECTED = "granted", "no_licence", "waiting", "rejected"


@dataclass
class Stored:
    """A file: its bytes (a view of memory or of a file on disk) and its hash; `lfs` False = kept in git."""

    data: memoryview
    sha256: str
    lfs: bool = True

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.data)

    @property
    def etag(self) -> str:
        """What the second host says of the file: not the hash, as with the real one."""
        return f'"{self.sha256[:32]}"'

    def entry(self, path: str) -> dict[str, Any]:
        """Return the file as the API's tree shows it."""
        found: dict[str, Any] = {"type": "file", "path": path, "size": self.size, "oid": self.sha256[:40]}
        if self.lfs:
            found["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": 135}
        return found

    @classmethod
    def of(cls, content: bytes | Path, lfs: bool = True) -> Stored:
        """Take bytes, or map a file."""
        if isinstance(content, Path):
            with content.open("rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        else:
            data = memoryview(content)
        return cls(data, hashlib.sha256(data).hexdigest(), lfs)


@dataclass
class Repository:
    """Files by path, and who may load them: `gated` "auto", "manual" or False; tokens -> GRANTED ..."""

    files: dict[str, Stored] = field(default_factory=dict)
    gated: str | bool = False
    private: bool = False
    tokens: dict[str, str] = field(default_factory=dict)
    commit: str = COMMIT
    tags: list[str] = field(default_factory=lambda: ["gguf"])

    def info(self, repo: str, blobs: bool = False) -> dict[str, Any]:
        """Return the repository as the API shows it; with `blobs` also sizes and hashes."""
        siblings = []
        for path, stored in self.files.items():
            more: dict[str, Any] = {"size": stored.size, "blobId": stored.sha256[:40]}
            if stored.lfs:
                more["lfs"] = {"sha256": stored.sha256, "size": stored.size, "pointerSize": 135}
            siblings.append({"rfilename": path} | (more if blobs else {}))
        return {
            "_id": "0" * 24,
            "id": repo,
            "modelId": repo,
            "author": repo.split("/")[0],
            "sha": self.commit,
            "gated": self.gated,
            "private": self.private,
            "disabled": False,
            "downloads": 1200,
            "likes": 34,
            "tags": self.tags,
            "lastModified": "2026-11-01T10:00:00.000Z",
            "createdAt": "2026-10-01T10:00:00.000Z",
            "siblings": siblings,
        }


@dataclass
class Fault:
    """Something that goes wrong with requests whose path matches (fnmatch), `times` times (-1 = always).

    kinds and what they use:
    ignore_range; no_length (all of it, until the connection ends); headers (more of them, or others); html;
    status (code, headers); redirect (location); loop (of redirects);
    size (the total that is told is `after` bytes more than there are);
    cut (the connection ends after `after` bytes of body, although more were promised);
    stall (nothing more for `seconds` after `after` bytes); slow (`after` bytes per second);
    corrupt (the byte at place `after` of the file is wrong); swap (after so many bytes of the file were sent
    in all, it is another one of the same size).
    """

    kind: str
    path: str = "/cdn/*"
    times: int = -1
    after: int = 0
    seconds: float = 3600.0
    code: int = 503
    location: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Seen:
    """One request in the log; `sent` counts bytes of its body that were handed to the kernel."""

    method: str
    path: str
    query: str
    host: str
    headers: dict[str, str]
    status: int = 0
    sent: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


class Faults:
    """The faults that are set; each use counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Set a fault."""
        with self._lock:
            self._set.append(fault)
        return fault

    def clear(self) -> None:
        """Take all faults back."""
        with self._lock:
            self._set.clear()

    def take(self, path: str) -> dict[str, Fault]:
        """Return the faults that apply to a request, by kind."""
        with self._lock:
            found = {}
            for fault in self._set:
                if fault.times != 0 and fault.kind not in found and fnmatchcase(path, fault.path):
                    fault.times -= 1
                    found[fault.kind] = fault
            return found


class Throttle:
    """A limit in bytes per second that many connections share; None = no limit."""

    def __init__(self, rate: float | None) -> None:
        self._lock = threading.Lock()
        self.rate = rate
        self._free_at = 0.0

    def wait(self, size: int) -> None:
        """Return when so many bytes may be sent."""
        if not self.rate:
            return
        with self._lock:
            now = time.monotonic()
            # A sender that comes late may catch up a little: sleeping too long then costs nothing.
            self._free_at = max(self._free_at, now - 0.05) + size / self.rate
            pause = self._free_at - now
        if pause > 0:
            time.sleep(pause)
