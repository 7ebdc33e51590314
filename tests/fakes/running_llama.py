"""The fake llama-server as a process: its executable, its log and its pages."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.engines import free_port
from tests.fakes import llama_flags
from tests.waiting import wait_for

SECONDS = 30.0


@dataclass(frozen=True)
class Fake:
    """A running copy with its executable (for `set_flags`) and its log."""

    path: Path
    process: subprocess.Popen[bytes]
    url: str
    log_path: Path

    def log(self) -> str:
        return self.log_path.read_text()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=SECONDS, **options)

    def health(self) -> int:
        try:
            return self.get("/health").status_code
        except httpx.TransportError:
            return 0

    def chat(self, **options: Any) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": "hi"}], **options}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=SECONDS)

    def events(self, **options: Any) -> list[str]:
        """Texts of a streamed answer up to its end or its failure."""
        found: list[str] = []
        body = {"messages": [], "stream": True, **options}
        with httpx.stream("POST", f"{self.url}/v1/chat/completions", json=body, timeout=SECONDS) as response:
            assert response.headers["content-type"] == "text/event-stream"
            try:
                found += (line.removeprefix("data: ") for line in response.iter_lines() if line)
            except httpx.RemoteProtocolError:
                found.append("connection lost")
        return found


@contextmanager
def fake(folder: Path, *arguments: str, **flags: Any) -> Iterator[Fake]:
    path, port, log_path = llama_flags.install(folder, **flags), free_port(), folder / "log"
    with log_path.open("wb") as log:
        command = [str(path), "--port", str(port), "-m", "/models/some.gguf", *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Fake(path, process, f"http://127.0.0.1:{port}", log_path)
    finally:
        process.kill()
        process.wait()


@contextmanager
def ready(folder: Path, *arguments: str, **flags: Any) -> Iterator[Fake]:
    with fake(folder, *arguments, **flags) as server:
        wait_for(lambda: server.health() == 200, SECONDS, "the fake to be ready")
        yield server


def run(path: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [path, *arguments], capture_output=True, text=True, check=False, timeout=SECONDS, **options
    )
