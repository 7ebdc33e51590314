"""A whole panel as a user starts it: `manage.py up` on a temporary data folder."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from jobs.runtime.procs import Proc, alive, find_by_environ, proc_of, signal_proc
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


class Panel:
    """One panel on a data folder of its own; `with` starts it and ends everything it started."""

    def __init__(self, data: Path, **environ: str) -> None:
        self.data = data
        [self.port, low] = free_ports(2)
        self.environ = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith(("PANEL_", "DJANGO_", "DATABASE_", "REDIS_"))
            },
            "PANEL_DATA": str(data),
            "PANEL_PORT": str(self.port),
            "PANEL_SERVER_PORTS": f"{min(low, 65000)}-{min(low, 65000) + 30}",
            "PYTHONUNBUFFERED": "1",
            **environ,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.output = data / "up.out"

    @property
    def url(self) -> str:
        """The panel's address without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, *options: str) -> float:
        """Run `manage.py up` and wait for its banner; returns the seconds that took."""
        began = time.monotonic()
        self.data.mkdir(parents=True, exist_ok=True)
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", *options],
                cwd=ROOT,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_for(self._settled, START_SECONDS, "the panel's banner")
        assert "Panel:" in self.said(), self.said() + self.logs()
        return time.monotonic() - began

    def _settled(self) -> bool:
        assert self.process is not None
        return "Ctrl-C" in self.said() or self.process.poll() is not None

    def said(self) -> str:
        """What `up` has printed so far."""
        return self.output.read_text(errors="replace")

    def logs(self) -> str:
        """The ends of the panel's own logs, for messages of failed tests."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in (self.data / "logs").glob("*.log")
        )

    def interrupt(self) -> float:
        """Ctrl-C; returns the seconds until `up` has ended."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        return time.monotonic() - began

    @property
    def password(self) -> str:
        """The first user's password as the banner gave it."""
        found = re.search(r"Password:\s+(\S+)", self.said())
        assert found, self.said()
        return found[1]

    def manage(self, *args: str, check: bool = True, seconds: float = 180) -> Any:
        """Run a management command with --json and return its value."""
        done = subprocess.run(
            [sys.executable, "manage.py", *args, "--json"],
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
        assert not check or done.returncode == 0, (
            args,
            done.stdout[-2000:],
            done.stderr[-2000:],
            self.logs(),
        )
        return json.loads(done.stdout)

    def value(self, profile: str, expression: str) -> str:
        """Evaluate an expression over `instance` in the panel's Django and return it as text."""
        return self.shell(
            "from django.urls import reverse; from jobs.adapters import runs; from jobs.models import Run;"
            "from servers.models import Instance; from servers.services.instances import server_key;"
            f"instance = Instance.objects.get(profile__slug={profile!r}); print({expression})"
        )

    def shell(self, code: str) -> str:
        """Run code in the panel's Django and return what it printed."""
        done = subprocess.run(
            [sys.executable, "manage.py", "shell", "-v", "0", "-c", code],
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            timeout=120,
            check=False,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def processes(self, role: str) -> list[Proc]:
        """The living processes with this PANEL_ROLE."""
        mine = {proc.pid for proc in find_by_environ("PANEL_DATA", str(self.data))}
        return [proc for proc in find_by_environ("PANEL_ROLE", role) if proc.pid in mine]

    def kill(self, role: str) -> None:
        """kill -9 of one role, and wait until supervisord has brought another one."""
        old = self.processes(role)
        assert old, role
        for proc in old:
            signal_proc(proc, signal.SIGKILL)
        wait_for(lambda: [p for p in self.processes(role) if p not in old and alive(p)], 60, f"a new {role}")

    def supervisord(self) -> Proc:
        """The panel's supervisord."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found = proc_of(int(children[0]))
        assert found is not None
        return found

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """A signed-in HTTP client."""
        with httpx.Client(base_url=self.url, timeout=30, follow_redirects=True, trust_env=False) as client:
            self._sign_in(client)
            yield client

    def _sign_in(self, client: httpx.Client) -> None:
        page = client.get("/accounts/login/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token, page[:2000]
        answer = client.post(
            "/accounts/login/",
            data={"login": "admin", "password": self.password, "csrfmiddlewaretoken": token[1]},
            headers={"Referer": self.url + "/accounts/login/"},
        )
        assert answer.status_code == 200 and "/accounts/login" not in str(answer.url), answer.text[:2000]
        client.headers["X-CSRFToken"] = client.cookies[f"panel_csrf_{self.port}"]
        client.headers["Referer"] = self.url + "/"

    def server(self, profile: str) -> dict[str, Any]:
        """One row of `manage.py servers`."""
        return next(row for row in self.manage("servers") if row["profile"] == profile)

    def close(self) -> None:
        """End the panel and its servers, whatever state they are in."""
        subprocess.run(
            [sys.executable, "manage.py", "down"],
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            timeout=120,
            check=False,
        )
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for proc in find_by_environ("PANEL_DATA", str(self.data)):
            signal_proc(proc, signal.SIGKILL)
        for folder in (self.data / "runs").glob("*/state.json"):
            state = json.loads(folder.read_text())
            for key in ("shim", "child"):
                if state.get(key):
                    signal_proc(
                        Proc(state[key]["pid"], state[key]["start"], state[key]["boot"]), signal.SIGKILL
                    )

    def __enter__(self) -> "Panel":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
