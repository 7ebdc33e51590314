"""The programs that were built from source, and a llama-server of them started the way the panel does."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.command import Managed, render
from controlpanel.llamacpp.facts import facts_of
from controlpanel.llamacpp.gguf import examine
from controlpanel.llamacpp.problems import Problem, errors
from jobs.adapters import runs
from jobs.adapters.hostlink import Endpoint, link
from jobs.adapters.runs import RunSpec
from servers.services.instances import server_key
from servers.services.launch import GRACE
from tests.engines import READY_SECONDS, free_port
from tests.waiting import wait_for

TOOL_SECONDS = 120.0


def program(name: str) -> Path:
    """One of the built programs; the test fails when it is not there."""
    server = os.environ.get("LLAMA_SERVER", "")
    if not server:
        pytest.fail("LLAMA_SERVER is not set. Run these tests with: make test-real")
    path = Path(server).with_name(name)
    if not path.is_file():
        pytest.fail(f"{path} is missing. Build it with: python deploy/build_real.py")
    return path


def tool(name: str, *arguments: str | Path) -> str:
    """What a program prints on stdout; it has to succeed."""
    command = [str(program(name)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stderr[-4000:]}"
    return done.stdout


@dataclass(frozen=True)
class RealServer:
    """A run of llama-server under its shim, perhaps still loading; `wrong` is what the panel would refuse."""

    endpoint: Endpoint
    wrong: list[Problem]

    @property
    def run_id(self) -> str:
        return self.endpoint.run_id

    def log(self) -> str:
        return link(self.endpoint.host).log_tail(self.run_id, 10_000)[1].decode("utf-8", "replace")

    def health(self) -> int:
        """Status of /health; 0 while nothing answers."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.endpoint.port}/health", timeout=5).status_code
        except httpx.TransportError:
            return 0

    def wait_ready(self) -> None:
        assert self.wrong == []
        wait_for(
            lambda: self.health() == 200 or runs.inspect(self.run_id).status != "running",
            READY_SECONDS,
            "llama-server to be ready",
        )
        assert runs.inspect(self.run_id).status == "running", self.log()


@contextmanager
def started(
    caps: Capabilities,
    settings: Mapping[str, object],
    model: Path,
    mmproj: Path | None = None,
    extra: Sequence[str] = (),
) -> Iterator[RealServer]:
    """Render a profile and spawn it as the panel does, even when something is wrong with it."""
    run_id, port = f"real-{uuid.uuid4()}", free_port()
    rendered = render(
        caps,
        {"threads": 2, **settings},
        extra,
        Managed(str(model), str(mmproj) if mmproj else None, "tiny", port, config_home=str(model.parent)),
        facts_of(examine(model)) if model.exists() else None,
        facts_of(examine(mmproj)) if mmproj else None,
    )
    key = server_key(run_id)
    command = [str(program("llama-server")), *rendered.argv]
    runs.spawn(run_id, RunSpec(command, "/", rendered.env, {"LLAMA_API_KEY": key}, GRACE))
    try:
        yield RealServer(Endpoint("local", run_id, port, key), errors(rendered.problems))
    finally:
        runs.kill(run_id)
        runs.wait(run_id, 30)
