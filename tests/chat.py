"""Rows and stand-ins for tests of the playground."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from asgiref.sync import async_to_sync

from jobs.models import Build, ModelArtifact, Run
from jobs.services.hosts import local_host
from servers.models import Instance, ServerProfile, Turn
from servers.services import conversations as service
from servers.services.turns import Text, TurnEvent, stream_turn
from tests.conftest import person
from tests.engines import free_port
from tests.fakes.llama_flags import install, set_flags
from tests.waiting import wait_for


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


def ask(profile: ServerProfile, prompt: str = "hi") -> Turn:
    """A pending turn of a new viewer's new conversation."""
    viewer = person(f"user{time.monotonic_ns()}", "viewer")
    return service.ask_in_new_conversation(viewer, profile, prompt)


def now(turn: Turn) -> Turn:
    """The turn as the database has it now."""
    return Turn.objects.select_related("conversation__profile", "conversation__user").get(pk=turn.pk)


async def events_of(turn: Turn) -> list[TurnEvent]:
    """All events of a stream."""
    return [event async for event in stream_turn(turn.pk)]


def stream(turn: Turn) -> list[TurnEvent]:
    """All events of a stream, read from sync code (the database work then happens in this thread)."""
    return async_to_sync(events_of)(turn)


def text_of(events: list[TurnEvent]) -> str:
    """The appended texts."""
    return "".join(event.answer for event in events if isinstance(event, Text))


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
