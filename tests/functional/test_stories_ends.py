"""Ends as stories: a shim that is killed, a stop that goes wrong, a file that is not the one it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.urls import reverse

from jobs.adapters import runs as folders
from jobs.models import AuditEntry, Run
from jobs.runtime import procs
from jobs.services import gpus
from servers.models import Incident, Instance
from servers.services import instances, launch
from tests.functional.forms import text_of
from tests.stage import CLI, Stage, instance_of

pytestmark = pytest.mark.django_db(transaction=True)
Observed, Kind = Instance.Observed, Incident.Kind


@pytest.fixture(autouse=True)
def no_cards(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of cards that tests before told of."""
    monkeypatch.setattr(gpus, "_shown", None)
    monkeypatch.setattr(gpus, "_next_try", 0.0)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Servers that are ready at once."""
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def test_a_server_outlives_its_shim_and_is_started_again_when_it_ends(
    stage: Stage, charlie: User, signed_in: Any
) -> None:
    profile = stage.profile()
    first = stage.start(profile).run
    assert first is not None
    status = folders.inspect(first.pk)
    assert status.shim is not None and status.child is not None
    procs.signal_proc(status.shim, signal.SIGKILL)
    assert procs.wait_exit(status.shim, 30)
    stage.rounds(lambda: bool(Run.objects.get(pk=first.pk).note), "to notice that the shim is gone")
    for _ in range(3):
        stage.round()
    orphan = instance_of(profile)
    assert (orphan.observed, orphan.run, orphan.attempts) == (Observed.READY, first, 0)
    assert stage.ask(profile)[0] == 200
    client, address = signed_in(charlie), reverse("server-detail", args=[profile.pk])
    assert "Its shim was killed" in text_of(client.get(address))
    os.kill(status.child.pid, signal.SIGKILL)
    failed = stage.until(profile, Observed.BACKOFF)
    ended = Run.objects.get(pk=first.pk)
    assert (ended.state, ended.exit_code) == (Run.State.LOST, None)
    assert "its exit code is not known" in failed.error_text
    assert ended.note_text == "Its shim was gone when the process ended: the exit code is not known."
    text = text_of(client.get(address))
    assert failed.error_text in text and "exit code unknown" in text
    assert Incident.objects.get().kind == Kind.CRASH
    stage.skip_wait(profile)
    stage.until(profile, Observed.STARTING)
    again = stage.until(profile, Observed.READY)
    assert again.run != first and again.first_failure == first and again.attempts == 1


def test_a_replaced_model_holds_the_start_until_somebody_wants_it_anyway(
    stage: Stage, bob: User, signed_in: Any
) -> None:
    profile, client = stage.profile(), signed_in(bob)
    path = Path(stage.model.path)
    content = path.read_bytes()
    path.unlink()  # a link to a file that other tests use
    path.write_bytes(content + b"more")
    held = stage.start(profile, Observed.FAILED)
    assert held.run is None and "was replaced" in held.error_text
    address = reverse("server-detail", args=[profile.pk])
    text = text_of(client.get(address))
    assert "was replaced" in text and "Start anyway" in text
    client.post(reverse("server-start", args=[profile.pk]), {"anyway": "1"})
    ready = stage.until(profile, Observed.READY)
    assert ready.anyway
    entry = AuditEntry.objects.filter(action="server.start").latest("pk")
    assert entry.actor == bob and entry.after["anyway"] is True
    assert "was replaced" in text_of(client.get(address))


def test_a_stop_that_was_asked_for_is_one_however_the_process_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "GRACE", 0.3)
    policy = {"restart": "always"}
    ends = (("Aborts", signal.SIGABRT, "abort_at_stop"), ("Deaf", signal.SIGKILL, "ignore_sigterm"))
    for name, number, flag in ends:
        stage.flags(dialect="fork", **{flag: True})
        profile = stage.profile(name, policy=policy)
        run = stage.start(profile).run
        assert run is not None
        instances.request_stop(CLI, profile)
        stopped = stage.until(profile, Observed.STOPPED)
        assert (stopped.error, stopped.attempts, stopped.retry_at) == ("", 0, None)
        run.refresh_from_db()
        assert (run.exit_code, run.stop_requested, run.diagnosis) == (-number, True, [])
        assert ("double free" in run.log_tail) == (number == signal.SIGABRT)
    stage.round()
    assert not Incident.objects.exists() and Run.objects.count() == 2
