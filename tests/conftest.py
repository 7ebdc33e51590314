"""Fixtures that all tests share: a real Valkey, four people, a run with a log."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import translation

from controlpanel.lib import streams
from controlpanel.lib.redis import sync_client
from controlpanel.lib.valkey import valkey_binary
from jobs.models import Host, Run
from jobs.services import gpus, history_live, hostload
from tests.hubs import hub_files, model_hub, models_folder  # noqa: F401
from tests.waiting import wait_for


def start_valkey(socket: Path) -> subprocess.Popen[bytes]:
    """Start a Valkey as the panel does: on a unix socket only, nothing stored. It answers on return."""
    server = subprocess.Popen(
        [
            str(valkey_binary()),
            *("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
            *("--save", "", "--appendonly", "no", "--maxmemory", "256mb", "--maxmemory-policy", "noeviction"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = redis.Redis(unix_socket_path=str(socket), socket_timeout=1)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False

    wait_for(answers, 20, "Valkey to answer")
    client.close()
    return server


@pytest.fixture(autouse=True)
def english() -> None:
    """Each test begins in English, whatever language a page of the test before it was in."""
    translation.activate("en")


@pytest.fixture(scope="session")
def valkey() -> Iterator[Path]:
    """A Valkey at the address of the settings; returns its socket."""
    # It is emptied for each test, so it must never be the one of a real panel.
    assert getattr(settings, "TESTING", False), "run the tests with DJANGO_SETTINGS_MODULE=tests.settings"
    socket = Path(urlsplit(settings.REDIS_URL).path)
    server = start_valkey(socket)
    yield socket
    server.terminate()
    server.wait(10)


@pytest.fixture
def redis_server(valkey: Path, monkeypatch: pytest.MonkeyPatch) -> redis.Redis:
    """The panel's client of an empty Valkey."""
    # Tests before this one may have asked nobody and told nobody; then the panel pauses.
    for asking in (streams, gpus, history_live):
        monkeypatch.setattr(asking, "_next_try", 0.0)
    for telling in (gpus, hostload):
        monkeypatch.setattr(telling, "_shown", None)
    client = sync_client()
    client.flushall()
    return client


def person(name: str, role: str | None) -> User:
    """Make a user with a role (or none)."""
    user = User.objects.create_user(name, password=f"{name}-password-1")
    if role:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


@pytest.fixture
def alice(db: None) -> User:
    """An admin."""
    return person("alice", "admin")


@pytest.fixture
def bob(db: None) -> User:
    """An operator."""
    return person("bob", "operator")


@pytest.fixture
def charlie(db: None) -> User:
    """A viewer."""
    return person("charlie", "viewer")


@pytest.fixture
def dora(db: None) -> User:
    """Somebody with an account and no role."""
    return person("dora", None)


@pytest.fixture
def signed_in() -> Callable[[User], Client]:
    """Make a browser in which the user is signed in."""

    def sign_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def host(db: None) -> Host:
    """The host that this machine is."""
    return Host.objects.get_or_create(slug=settings.PANEL_HOST, defaults={"name": "this machine"})[0]


@pytest.fixture
def run(host: Host) -> Run:
    """A running run whose log is empty; `log_path(run.pk)` is its file."""
    row = Run.objects.create(
        host=host, kind="server", subject_kind="instance", subject_id="1", state=Run.State.RUNNING
    )
    folder = Path(settings.PANEL_DATA) / "runs" / row.pk
    folder.mkdir(parents=True)
    (folder / "log").touch()
    return row
