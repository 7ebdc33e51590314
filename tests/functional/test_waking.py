"""Servers that a message starts and that are unloaded when nobody uses them; the server is a stand-in."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from controlpanel.lib.errors import Refused
from jobs.adapters import runs as folders
from jobs.models import AuditEntry, Job
from jobs.services import jobs, watch
from jobs.services.artifacts import register_artifact
from jobs.services.audit import Actor
from jobs.services.builds import probe_now, register_build
from jobs.services.hosts import local_host
from servers.models import Instance, ServerProfile, Turn
from servers.services import conversations, instances, polls, waking
from servers.services.claims import Starting
from servers.services.profiles import ProfileData, save_profile
from servers.services.turns import stream_turn
from tests.chat import now, text_of
from tests.fakes.llama_flags import REPLY, install, set_flags
from tests.functional import pages
from tests.models import tiny_models
from tests.waiting import async_wait_for, wait_for

pytestmark = pytest.mark.django_db(transaction=True)
CLI = Actor.cli()
LONG = 60.0
Observed = Instance.Observed
POLICY = {"on_demand": True, "idle_min": 5, "restart": "never"}
SignIn = Callable[[User], Client]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that has just begun."""
    monkeypatch.setattr(polls, "_watches", {})
    monkeypatch.setattr(watch, "_running", set())


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A stand-in that loads until somebody lets it be ready."""
    path = install(tmp_path)
    set_flags(path, never_ready=True)
    return path


@pytest.fixture
def profile(program: Path, tmp_path: Path) -> Iterator[ServerProfile]:
    """A profile that a message starts; nothing runs."""
    build = register_build(CLI, local_host(), "Stand-in", str(program))
    probe_now(build)
    build.refresh_from_db()
    model = register_artifact(CLI, local_host(), str(tiny_models(tmp_path)[0]))
    Job.objects.all().delete()
    row = save_profile(CLI, None, ProfileData("Tiny", build, model, policy=POLICY))
    yield row
    run_id = Instance.objects.get(profile=row).run_id
    if run_id:
        folders.kill(run_id)


class Reader(threading.Thread):
    """A page that shows a turn; `events` holds what has come."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(daemon=True)
        self.turn = turn
        self.events: list[Any] = []
        self.start()

    def run(self) -> None:
        async def read() -> None:
            async for event in stream_turn(self.turn.pk):
                self.events.append(event)

        try:
            async_to_sync(read)()
        finally:
            connection.close()

    @property
    def states(self) -> list[str]:
        """How the server was, as the page was told."""
        return [event.observed for event in self.events if isinstance(event, Starting)]

    def ended(self) -> Turn:
        """The turn at its end."""
        self.join(LONG)
        assert not self.is_alive(), self.events
        return now(self.turn)


def asked(user: User, profile: ServerProfile) -> Turn:
    return conversations.ask_in_new_conversation(user, profile, "hi")


def found(profile: ServerProfile) -> Instance:
    return Instance.objects.select_related("run", "profile").get(profile=profile)


def execute(kind: str) -> None:
    """Run the newest job of a kind, once it is there, as a worker would."""
    rows = Job.objects.filter(kind=kind, state=Job.State.QUEUED)
    job = wait_for(rows.first, LONG, f"a job {kind}")
    jobs.execute(job.pk)


def poll(profile: ServerProfile) -> str:
    """What the server is after the agent has looked at it."""
    watch._running = {str(found(profile).run_id)}
    async_to_sync(polls.poll_instances)()
    return found(profile).observed


def unused(profile: ServerProfile) -> None:
    """Let nobody have used the server for longer than its policy allows."""
    long_ago = timezone.now() - timedelta(minutes=6)
    Instance.objects.filter(profile=profile).update(ready_at=long_ago, used_at=long_ago)


def test_a_message_starts_a_server_and_idleness_unloads_it(
    profile: ServerProfile, program: Path, bob: User, charlie: User, signed_in: SignIn
) -> None:
    new = reverse("playground")
    # A viewer starts nothing, and the page says so.
    page = signed_in(charlie).get(new).content.decode()
    assert '<option value="tiny" disabled>Tiny · stopped: an operator can start it</option>' in page
    turn = Reader(asked(charlie, profile)).ended()
    assert turn.state == Turn.State.FAILED and "An operator can start it" in turn.error
    assert not Job.objects.exists()

    # An operator's message starts it; a second page of the same turn sees it coming too.
    page = signed_in(bob).get(new).content.decode()
    assert '<option value="tiny" selected>Tiny · starts on demand</option>' in page
    assert "Tiny is not loaded: your message starts it first." in page and "No server is ready" not in page
    turn = asked(bob, profile)
    reader = Reader(turn)
    wait_for(lambda: now(turn).state == Turn.State.STREAMING, LONG, "the claim")
    follower = Reader(turn)
    execute(instances.LAUNCH)
    wait_for(lambda: poll(profile) == Observed.LOADING, LONG, "the server to load")
    wait_for(lambda: "loading" in reader.states and "loading" in follower.states, LONG, "both to be told")
    page = signed_in(charlie).get(new).content.decode()
    assert "Tiny is starting: your message waits for it." in page
    set_flags(program, never_ready=False)
    wait_for(lambda: poll(profile) == Observed.READY, LONG, "the server to be ready")
    ended = reader.ended()
    assert (ended.state, ended.answer, text_of(reader.events)) == (Turn.State.DONE, REPLY, REPLY)
    assert reader.states == ["starting", "loading", "ready"]
    follower.ended()
    # The answer's time began when the server was ready.
    ready = next(step["at"] for step in found(profile).steps if step["key"] == "ready")
    assert ended.timings["n_ctx"] and ended.timings["first_token_s"] < ended.updated_at.timestamp() - ready
    assert AuditEntry.objects.get(action="server.start").actor == bob

    # The turn was a use; only what nobody has used for long is unloaded, unless it is pinned or answers.
    used = found(profile).used_at
    assert used is not None
    Instance.objects.update(ready_at=timezone.now() - timedelta(hours=1))
    waking.unload_idle()
    unused(profile)
    waking.pin(Actor(bob, "web"), profile, True)
    waking.pin(Actor(bob, "web"), profile, True)
    waking.unload_idle()
    waking.pin(Actor(bob, "web"), profile, False)
    Turn.objects.filter(pk=turn.pk).update(state=Turn.State.STREAMING, updated_at=timezone.now())
    waking.unload_idle()
    assert found(profile).observed == Observed.READY
    assert AuditEntry.objects.filter(action__in=["server.pin", "server.unpin"]).count() == 2
    Turn.objects.filter(pk=turn.pk).update(state=Turn.State.DONE)
    set_flags(program, hang="/slots")
    waking.unload_idle()  # it does not say that nothing is in flight
    assert found(profile).observed == Observed.READY
    set_flags(program, hang="")
    waking.unload_idle()
    assert found(profile).observed == Observed.STOPPING and not found(profile).held
    stop = AuditEntry.objects.get(action="server.stop")
    assert stop.source == "agent" and "Nobody used it for 5 minutes" in stop.after["reason"]

    # The next message need not wait for the end of the unload, and starts it again.
    page = signed_in(bob).get(new).content.decode()
    assert re.search(r"Tiny is not loaded: your message starts it, that takes about \d+ s\.", page)
    reader = Reader(asked(bob, profile))
    wait_for(lambda: "stopping" in reader.states, LONG, "the message to wait")
    execute(instances.STOP)
    execute(instances.LAUNCH)
    wait_for(lambda: poll(profile) == Observed.READY, LONG, "the server to be ready again")
    assert reader.ended().answer == REPLY

    # What a person has stopped stays stopped.
    instances.request_stop(Actor(bob, "web"), profile)
    execute(instances.STOP)
    assert not waking.wake(Actor(bob, "web"), found(profile))
    turn = Reader(asked(bob, profile)).ended()
    assert turn.state == Turn.State.FAILED and "stopped by hand" in turn.error
    assert not Job.objects.filter(state__in=Job.ACTIVE).exists()


def test_a_message_that_waits_hears_why_the_start_failed_and_the_next_one_does_not_try_again(
    profile: ServerProfile, bob: User
) -> None:
    path = Path(profile.model.path)
    path.unlink()
    reader = Reader(asked(bob, profile))
    wait_for(lambda: reader.states == ["starting"], LONG, "the message to wait")
    execute(instances.LAUNCH)
    turn = reader.ended()
    assert turn.state == Turn.State.FAILED
    assert "Tiny could not be started" in turn.error and str(path) in turn.error
    assert "failed" in Reader(asked(bob, profile)).ended().error
    assert not Job.objects.filter(state__in=Job.ACTIVE).exists()


def test_leaving_stopping_and_the_limit_end_the_wait_but_not_the_start(bob: User) -> None:
    profile = pages.profile("Tiny", policy=POLICY)
    turn = asked(bob, profile)

    async def leave() -> None:
        events = stream_turn(turn.pk)
        assert await anext(events) == Starting(Observed.STARTING)
        await events.aclose()

    async def stop() -> None:
        again = await sync_to_async(asked)(bob, profile)
        events = stream_turn(again.pk)
        await anext(events)
        await sync_to_async(conversations.request_stop)(again)
        assert [event async for event in events]

        async def stopped() -> bool:
            return await Turn.objects.filter(pk=again.pk, state=Turn.State.STOPPED).aexists()

        await async_wait_for(stopped, LONG, "the turn to be stopped")

    async_to_sync(leave)()
    assert now(turn).state == Turn.State.STOPPED
    async_to_sync(stop)()
    with pytest.raises(Refused, match="not ready after 0 seconds"):
        async_to_sync(waking.ready_endpoint)(profile, Actor(bob, "web"), limit_s=0)
    assert found(profile).observed == Observed.STARTING
    assert Job.objects.filter(kind=instances.LAUNCH).count() == 1
    with CaptureQueriesContext(connection) as looks:
        waking._look(profile, Actor(bob, "web"), begun=True)
    assert "capabilities" not in str(looks.captured_queries)  # many kilobytes, at two looks in a second
