"""The host agent as a real process on a data folder of its own, with cards that a test changes."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from jobs.domain.gpu import Sample, from_json
from jobs.runtime.procs import Proc, proc_of, signal_proc
from tests.e2e.panel import ROOT, LogPanel
from tests.fakes.nvml import FakeNvml
from tests.waiting import wait_for

STREAM = "gpu:local"
SPAWN = """
import json, sys
from jobs.adapters.runs import RunSpec
from jobs.services import runs
from jobs.services.hosts import local_host
run = runs.create_run(local_host(), "trial", "trial", 1)
runs.spawn(run, RunSpec(argv={argv!r}, cwd="/"))
run.refresh_from_db()
print(json.dumps([run.pk, run.pid]))
"""


class AgentPanel(LogPanel):
    """A data folder, a Valkey and the host agent, which sees the fake cards or none."""

    def __init__(self, nvml: FakeNvml | None) -> None:
        super().__init__()
        self.environ |= nvml.environ if nvml else {}
        self.agent: subprocess.Popen[bytes] | None = None
        self._spawned: list[Proc] = []

    def start_agent(self) -> None:
        """Start the agent; it takes its first sample soon."""
        with (self.data / "agent.log").open("ab") as out:
            argv = [sys.executable, "manage.py", "agent"]
            self.agent = subprocess.Popen(argv, cwd=ROOT, env=self.environ, stdout=out, stderr=out)

    def stop_agent(self) -> None:
        """SIGTERM, and wait until the agent has ended."""
        assert self.agent is not None
        self.agent.send_signal(signal.SIGTERM)
        self.agent.wait(60)

    def sample(self) -> Sample | None:
        """The last sample in the stream."""
        entries: Any = self.redis.xrevrange(STREAM, count=1)
        return from_json(entries[0][1][b"data"]) if entries else None

    def until(self, found: Callable[[Sample], Any], what: str, seconds: float = 60) -> Sample:
        """The first sample that `found` accepts."""

        def accepted() -> Sample | None:
            sample = self.sample()
            return sample if sample is not None and found(sample) else None

        try:
            sample = wait_for(accepted, seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.sample()}\n{self.said()}") from error
        assert sample is not None
        return sample

    def events(self) -> int:
        """How often pages were told of a new sample."""
        entries: Any = self.redis.xrange("events")
        return sum(fields[b"kind"] == b"gpus" for _, fields in entries)

    def heartbeat(self) -> str:
        """When the agent said last that it is alive."""
        database = sqlite3.connect(f"file:{self.data / 'db.sqlite3'}?mode=ro", uri=True, timeout=20)
        try:
            (seen,) = database.execute("select agent_seen_at from jobs_host").fetchone()
        finally:
            database.close()
        return str(seen)

    def spawn(self, *argv: str) -> tuple[str, int]:
        """Start a run; return its id and the pid of its program."""
        run_id, pid = json.loads(self.manage("shell", "-v", "0", "-c", SPAWN.format(argv=list(argv))))
        found = proc_of(pid)
        if found is not None:
            self._spawned.append(found)
        return run_id, pid

    def said(self) -> str:
        """The end of the agent's own log."""
        return (self.data / "agent.log").read_text()[-3000:]

    def __enter__(self) -> AgentPanel:
        return self

    def __exit__(self, *error: Any) -> None:
        for proc in self._spawned:  # runs outlive the panel
            signal_proc(proc, signal.SIGKILL)
        if self.agent is not None and self.agent.poll() is None:
            self.agent.kill()
            self.agent.wait(10)
        super().__exit__(*error)
