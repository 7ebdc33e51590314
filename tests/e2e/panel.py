"""The parts of a panel that carry a log to a page, as real processes on a data folder of their own."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import pytest
import redis

from tests.conftest import start_valkey
from tests.engines import free_port
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

SEED = """
import json
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
from jobs.models import Host, Run
user = User.objects.create_user("charlie")
user.groups.add(Group.objects.get_or_create(name="viewer")[0])
client = Client()
client.force_login(user)
host = Host.objects.get_or_create(slug=settings.PANEL_HOST, defaults={"name": "this machine"})[0]
run = Run.objects.create(host=host, kind="server", subject_kind="instance", subject_id="1", state="running")
name = settings.SESSION_COOKIE_NAME
print(json.dumps([name, client.cookies[name].value, run.pk]))
"""


def environ_of(data: Path, port: int) -> dict[str, str]:
    """What the processes of a panel on a data folder see."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("PANEL_", "DJANGO_"))},
        "PANEL_DATA": str(data),
        "PANEL_PORT": str(port),
        "PANEL_DEBUG": "1",  # static files without collecting them
        "REDIS_URL": f"unix://{data / 'valkey.sock'}?db=0",
        "DATABASE_URL": "",
    }


def manage(environ: dict[str, str], *args: str) -> str:
    """Run a management command; return what it printed."""
    done = subprocess.run(
        [sys.executable, "manage.py", *args],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def seeded() -> tuple[Path, str, str, str]:
    """A data folder to copy, made once; also the cookie's name on port 1, its value, and the run's id."""
    data = Path(tempfile.mkdtemp(prefix="panel-seed-", dir="/tmp"))
    atexit.register(shutil.rmtree, data, ignore_errors=True)
    manage(environ_of(data, 1), "migrate", "-v", "0")
    name, value, run_id = json.loads(manage(environ_of(data, 1), "shell", "-v", "0", "-c", SEED))
    return data, name, value, run_id


class LogPanel:
    """Valkey, a web process and a log shipper; charlie (viewer) is signed in, and one run runs."""

    def __init__(self) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="panel-e2e-", dir="/tmp"))
        self.port = free_port()
        self.socket = self.data / "valkey.sock"
        self.environ = environ_of(self.data, self.port)
        folder, name, value, self.run_id = seeded()
        shutil.copytree(folder, self.data, dirs_exist_ok=True)
        self.cookie = (f"{name.removesuffix('1')}{self.port}", value)
        self.valkey = start_valkey(self.socket)
        self.redis = redis.Redis(unix_socket_path=str(self.socket), socket_timeout=5)
        self.web: subprocess.Popen[bytes] | None = None
        self.shipper: subprocess.Popen[bytes] | None = None
        self.folder = self.data / "runs" / self.run_id
        self.folder.mkdir(parents=True)
        self.log = self.folder / "log"
        self.log.touch()

    @property
    def url(self) -> str:
        """The panel's address without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def socket_url(self) -> str:
        """The address of a page that follows the run's log."""
        return f"ws://127.0.0.1:{self.port}/ws/?topics=log:{self.run_id}"

    def manage(self, *args: str) -> str:
        """Run a management command; return what it printed."""
        return manage(self.environ, *args)

    def start_web(self) -> None:
        """Start the web process and wait until it answers."""
        argv = [sys.executable, "-m", "uvicorn", "controlpanel.asgi:application", "--port", str(self.port)]
        argv += ["--lifespan", "off", "--timeout-graceful-shutdown", "3", "--log-level", "warning"]
        with (self.data / "web.log").open("ab") as out:
            self.web = subprocess.Popen(argv, cwd=ROOT, env=self.environ, stdout=out, stderr=out)
        wait_for(self._answers, 60, "the web process to answer")

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/accounts/login/", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def start_shipper(self) -> None:
        """Start a shipper for all runs without a file `ended`."""
        argv = [sys.executable, "-m", "tests.e2e.ship", self.environ["REDIS_URL"], str(self.data / "runs")]
        with (self.data / "shipper.log").open("ab") as out:
            self.shipper = subprocess.Popen(argv, cwd=ROOT, env=self.environ, stdout=out, stderr=out)

    def kill_shipper(self) -> None:
        """kill -9."""
        assert self.shipper is not None
        self.shipper.kill()
        self.shipper.wait(10)

    def shipped(self) -> int:
        """The byte up to which the log is in its stream; -1 without a stream."""
        try:
            info = self.redis.xinfo_stream(f"log:{self.run_id}")
        except redis.ResponseError:
            return -1
        return int(info["last-generated-id"].split(b"-")[0])

    def restart_valkey(self, when: Callable[[], bool]) -> None:
        """Kill Valkey and start an empty one once a condition holds."""
        self.valkey.kill()
        self.valkey.wait(10)
        wait_for(when, 60, "the time to start Valkey again")
        self.valkey = start_valkey(self.socket)

    def end_run(self, exit_code: int) -> None:
        """Say that the run has ended."""
        (self.folder / "ended").touch()
        code = f"from jobs.models import Run; Run.objects.update(state='exited', exit_code={exit_code})"
        self.manage("shell", "-v", "0", "-c", code)

    def client(self) -> httpx.Client:
        """A signed-in HTTP client."""
        return httpx.Client(
            base_url=self.url, cookies=dict([self.cookie]), trust_env=False, timeout=30, follow_redirects=True
        )

    def browser_cookie(self) -> dict[str, Any]:
        """The session cookie in the form that a browser context takes."""
        return {"name": self.cookie[0], "value": self.cookie[1], "url": self.url}

    def said(self) -> str:
        """The ends of the processes' own logs, for messages of failed tests."""
        files = [self.data / "web.log", self.data / "shipper.log"]
        return "\n".join(f"--- {file.name}\n{file.read_text()[-3000:]}" for file in files if file.exists())

    def __enter__(self) -> LogPanel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (self.web, self.shipper, self.valkey):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(10)
        shutil.rmtree(self.data, ignore_errors=True)


@pytest.fixture
def log_panel() -> Iterator[LogPanel]:
    """A panel with one run whose log is empty, its web process and its shipper."""
    with LogPanel() as panel:
        panel.start_web()
        panel.start_shipper()
        yield panel
