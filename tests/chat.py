"""Rows and stand-ins for tests of the playground."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from django.contrib.auth.models import Group, User

from jobs.models import Build, ModelArtifact, Run
from jobs.services.hosts import local_host
from servers.models import Instance, ServerProfile
from tests.engines import free_port
from tests.fakes.llama_flags import install, set_flags
from tests.waiting import wait_for


def person(name: str, role: str = "viewer") -> User:
    """A user with a role ("" = none)."""
    user = User.objects.create_user(name, password="not used here")
    if role:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


def ready_profile(port: int, name: str = "Tiny", observed: str = Instance.Observed.READY) -> ServerProfile:
    """A profile whose instance is in the given state on the port."""
    host = local_host()
    build, _ = Build.objects.get_or_create(name="engine", defaults={"host": host, "path": "/bin/false"})
    model, _ = ModelArtifact.objects.get_or_create(host=host, path="/tiny.gguf", defaults={"name": "tiny"})
    profile = ServerProfile.objects.create(name=name, slug=name.lower(), build=build, model=model)
    run = Run.objects.create(
        host=host, kind="server", subject_kind="profile", subject_id=str(profile.pk), state=Run.State.RUNNING
    )
    Instance.objects.create(profile=profile, observed=observed, run=run, port=port)
    return profile


class Fake:
    """A running stand-in for llama-server; its flags can be changed for later requests."""

    def __init__(self, path: Path, port: int) -> None:
        self._path = path
        self.port = port

    def behave(self, **flags: Any) -> None:
        set_flags(self._path, **flags)

    def requests(self) -> list[dict[str, Any]]:
        """All chat requests so far: method, path, headers, body, end ("", "done", "cancelled")."""
        seen = httpx.get(f"http://127.0.0.1:{self.port}/fake/requests", timeout=10).json()
        return [entry for entry in seen if entry["path"] == "/v1/chat/completions"]

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(entry["body"]) for entry in self.requests()]


@contextmanager
def fake_server(folder: Path) -> Iterator[Fake]:
    """A stand-in that is ready, ended at the end."""
    path, port = install(folder), free_port()
    command = [str(path), "--port", str(port), "-m", "/tiny.gguf"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
    try:
        wait_for(lambda: _healthy(port), 30, "the stand-in to be ready")
        yield Fake(path, port)
    finally:
        process.kill()
        process.wait(30)


def _healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
