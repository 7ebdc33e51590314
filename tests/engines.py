"""The llama-server that end-to-end tests run: the binary named by LLAMA_SERVER, else the bundled engine."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx
import pytest

from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS = 60.0
EXIT_SECONDS = 30.0

bundled_only = pytest.mark.skipif(
    bool(os.environ.get("LLAMA_SERVER")),
    reason="checks the bundled launcher; LLAMA_SERVER names another engine",
)


@cache
def engine_path() -> Path:
    """One executable file that answers to llama-server's command line, whatever its environment is."""
    if binary := os.environ.get("LLAMA_SERVER"):
        return Path(binary)
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "llama-server"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from controlpanel.demo.engine import main\nsys.exit(main())\n"
    )
    path.chmod(0o755)
    return path


def engine() -> list[str]:
    """What to put before llama-server's arguments."""
    return [str(engine_path())]


def free_port() -> int:
    """A TCP port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Server:
    """A started engine with the file that takes its output."""

    process: subprocess.Popen[bytes]
    port: int
    log_path: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def health(self) -> int:
        """Status of /health; 0 while nothing answers."""
        try:
            return httpx.get(f"{self.url}/health", timeout=5).status_code
        except httpx.TransportError:
            return 0

    def wait_ready(self) -> None:
        wait_for(
            lambda: self.health() == 200 or self.process.poll() is not None,
            READY_SECONDS,
            "the engine to be ready",
        )
        assert self.process.poll() is None, f"the engine ended with {self.process.returncode}:\n{self.log()}"

    def wait_log(self, text: str) -> None:
        wait_for(lambda: text in self.log(), READY_SECONDS, f"{text!r} in the engine's log")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and waits for the exit code; negative = died by that signal."""
        self.process.send_signal(number)
        return self.process.wait(EXIT_SECONDS)


@contextmanager
def started(folder: Path, *arguments: str | Path) -> Iterator[Server]:
    """An engine on a free port, perhaps still loading; killed at the end if it still runs."""
    port = free_port()
    log_path = folder / f"engine-{port}.log"
    command = [*engine(), "--host", "127.0.0.1", "--port", str(port), *map(str, arguments)]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    try:
        yield Server(process, port, log_path)
    finally:
        process.kill()
        process.wait(EXIT_SECONDS)


@contextmanager
def running(folder: Path, *arguments: str | Path) -> Iterator[Server]:
    """An engine that is ready."""
    with started(folder, *arguments) as server:
        server.wait_ready()
        yield server
