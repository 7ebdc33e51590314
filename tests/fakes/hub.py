"""A model hub on this machine: model info, tree, search, resolve with a redirect to a second host, Range.

In a test: `with Hub() as hub: hub.add("org/name", "model.gguf", data)`. As a program, on a folder that holds
ORG/NAME/FILE...:

    python -m tests.fakes.hub FOLDER [--port N] [--rate BYTES_PER_S] [--connection-rate BYTES_PER_S]

prints one JSON line {"endpoint": ..., "private": ...} when it is ready. GET /_log answers the requests and
bytes sent; POST /_control takes {"fault": {...}}, {"clear": true}, {"expire": true}, {"forget": true}.
The hub is 127.0.0.1, the host of the files is localhost.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import threading
import time
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from tests.fakes.hub_files import Fault, Faults, Repository, Seen, Stored, Throttle
from tests.fakes.hub_handler import Handler


class Hub(ThreadingHTTPServer):
    """The server; its attributes may be changed while it runs."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        port: int = 0,
        *,
        rate: float | None = None,
        connection_rate: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self._scheme = "https" if tls else "http"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.port: int = self.server_address[1]
        self.repositories: dict[str, Repository] = {}
        self.faults = Faults()
        self.throttle = Throttle(rate)
        self.connection_rate = connection_rate
        self.link_requests: int | None = None  # how many requests a signed link answers; None = any
        self.seen: list[Seen] = []
        self.sent_of: dict[str, int] = {}  # bytes sent of each file, "org/name/file"
        self._links: dict[str, int] = {}  # signature -> requests so far
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def endpoint(self) -> str:
        """The hub's address, as HF_ENDPOINT takes it."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def files_host(self) -> str:
        """The address of the second host, to which files are redirected."""
        return f"{self._scheme}://localhost:{self.port}"

    @property
    def private(self) -> str:
        """Both hosts as PANEL_PRIVATE_HOSTS lists them."""
        return f"127.0.0.1:{self.port},localhost:{self.port}"

    @property
    def bytes_sent(self) -> int:
        """Bytes of files sent so far."""
        return sum(self.sent_of.values())

    def add(self, repo: str, file: str, content: bytes | Path, *, lfs: bool = True) -> Stored:
        """Put a file into a repository, or another one in its place."""
        stored = Stored.of(content, lfs)
        self.repository(repo).files[file] = stored
        return stored

    def repository(self, repo: str) -> Repository:
        """Return a repository, made when it is new."""
        return self.repositories.setdefault(repo, Repository())

    def fault(self, kind: str, path: str = "/cdn/*", **values: Any) -> Fault:
        """Let something go wrong; see Fault."""
        return self.faults.add(Fault(kind, path, **values))

    def resolve_url(self, repo: str, file: str) -> str:
        """Return the address of a file on the hub."""
        return f"{self.endpoint}/{repo}/resolve/main/{quote(file)}"

    def file_url(self, repo: str, file: str) -> str:
        """Return an address of a file on the second host that is good for ever."""
        return f"{self.files_host}/cdn/{repo}/{quote(file)}"

    def requests(self, path: str = "") -> list[Seen]:
        """Return the requests so far whose path contains this text."""
        return [seen for seen in list(self.seen) if path in seen.path]

    def forget(self) -> None:
        """Empty the log."""
        self.seen.clear()
        self.sent_of.clear()

    def expire_links(self) -> None:
        """Make all signed links that were given out invalid."""
        with self._lock:
            self._links.clear()

    def new_link(self) -> str:
        """Return a new signature."""
        with self._lock:
            self._links[signature := f"s{len(self.seen)}-{time.monotonic_ns()}"] = 0
            return signature

    def use_link(self, signature: str) -> bool:
        """Tell whether a signed link is still good, and count its use."""
        with self._lock:
            if signature not in self._links:
                return False
            self._links[signature] += 1
            return self.link_requests is None or self._links[signature] <= self.link_requests

    def count(self, seen: Seen, name: str, size: int) -> None:
        """Note bytes of a file that were sent."""
        with self._lock:
            seen.sent += size
            self.sent_of[name] = self.sent_of.get(name, 0) + size

    def hold(self, seconds: float) -> None:
        """Wait as long as a fault says, or until the server is closed."""
        self._closed.wait(seconds)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; anything else is a mistake of the fake."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def __enter__(self) -> Hub:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self.shutdown()
        self.server_close()


def main() -> None:
    """Serve a folder until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--connection-rate", type=float)
    chosen = parser.parse_args()
    with Hub(chosen.port, rate=chosen.rate, connection_rate=chosen.connection_rate) as hub:
        for path in sorted(chosen.folder.glob("*/*/**/*")):
            if path.is_file():
                org, name, *file = path.relative_to(chosen.folder).parts
                hub.add(f"{org}/{name}", "/".join(file), path)
        print(json.dumps({"endpoint": hub.endpoint, "private": hub.private}), flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
