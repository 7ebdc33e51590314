"""The agent's duties: what they notice, and what they leave alone while nothing happens."""

import asyncio
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from jobs.adapters import runs as folders
from jobs.adapters.runs import RunSpec
from jobs.domain.gpu import NO_DRIVER, Gpus, GpuSample, Sample
from jobs.models import Host, ModelArtifact, Run
from jobs.runtime import agent
from jobs.runtime.duties import Duty
from jobs.services import gpus, runs, watch
from jobs.services.artifacts import renew_facts
from jobs.services.hosts import local_host
from servers.models import Instance, ServerProfile
from servers.services import polls
from servers.services.settle import settle_instances
from tests.chat import Fake, fake_server, ready_profile
from tests.functional import pages
from tests.models import tiny_models
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
Observed = Instance.Observed


@pytest.fixture
def run() -> Iterator[Run]:
    """A run that goes on until somebody ends it."""
    row = runs.create_run(local_host(), "trial", "trial", 1)
    runs.spawn(row, RunSpec(argv=[sys.executable, "-c", "import time; time.sleep(60)"], cwd="/"))
    row.refresh_from_db()
    assert row.state == Run.State.RUNNING
    yield row
    folders.kill(row.pk)


def test_a_run_that_stands_as_its_row_says_costs_one_query(
    run: Run, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        watch.watch_runs()
    assert watch.running_ids() == {run.pk}


def test_a_run_that_ended_is_noticed_by_the_next_watch(run: Run) -> None:
    folders.kill(run.pk)
    folders.wait(run.pk, 30)
    watch.watch_runs()
    run.refresh_from_db()
    assert run.state == Run.State.EXITED
    watch.watch_runs()
    assert watch.running_ids() == set()


def test_a_note_is_taken_back_when_the_shim_is_there_after_all(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(note="orphaned")
    watch.watch_runs()
    run.refresh_from_db()
    assert (run.state, run.note) == (Run.State.RUNNING, "")


def test_the_heartbeat_makes_the_host_s_row_when_it_is_missing() -> None:
    began = timezone.now()
    watch.beat()
    watch.beat()
    seen = Host.objects.get().agent_seen_at
    assert seen is not None and seen >= began


def test_a_duty_keeps_its_pace_however_late_the_loop_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = 1000.0, list[float]()
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds + 0.003
        await real_sleep(0)

    async def call() -> None:
        nonlocal now
        calls.append(now - 1000)
        now += {50: 1.3, 60: 4.7}.get(len(calls), 0.02)
        if len(calls) == 100:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now)

    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            await agent._repeat(Duty("each-second", 1, call), pool)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    # One call of 1.3 s makes the next late; one of 4.7 s begins a new grid, without a burst of calls.
    assert [round(at, 2) for at in calls[:50]] == list(range(50))
    assert [round(at - 50, 1) for at in calls[50:60]] == [0.4, *range(1, 10)]
    assert [round(at - 63.7, 1) for at in calls[60:]] == [0.1, *range(1, 40)]


def test_settling_looks_at_a_ready_server_with_one_query(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    ready_profile(9)
    with django_assert_num_queries(1):
        settle_instances()
    assert Instance.objects.get().observed == Observed.READY


# Polls


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    """A stand-in for llama-server."""
    with fake_server(tmp_path) as found:
        yield found


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that has just begun."""
    monkeypatch.setattr(polls, "_watches", {})
    monkeypatch.setattr(watch, "_running", set())


def poll(profile: ServerProfile) -> str:
    """What the profile's instance is after one call of the duty."""
    assert profile.instance.run is not None
    watch._running = {profile.instance.run.pk}
    async_to_sync(polls.poll_instances)()
    return Instance.objects.get(profile=profile).observed


def polled(fake: Fake) -> int:
    """How often the stand-in was asked for its health by the panel."""
    return sum(entry["path"] == "/health" for entry in seen(fake))


def seen(fake: Fake) -> list[dict[str, Any]]:
    """All requests so far."""
    found: list[dict[str, Any]] = httpx.get(f"http://127.0.0.1:{fake.port}/fake/requests", timeout=10).json()
    return found


def test_a_server_that_is_well_is_left_in_peace_for_a_while(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = ready_profile(fake.port)
    before = polled(fake)
    assert [poll(profile), poll(profile)] == [Observed.READY, Observed.READY]
    assert polled(fake) == before + 1
    monkeypatch.setattr(polls, "QUIET", 0.0)
    [watched] = polls._watches.values()
    wait_for(lambda: poll(profile) and polled(fake) > before + 1, polls.TIMEOUT + 5, "the next poll")
    assert watched.polls >= 2


def test_a_new_run_is_polled_although_the_others_are_left_in_peace(fake: Fake) -> None:
    poll(ready_profile(fake.port))
    assert poll(ready_profile(fake.port, "New", Observed.STARTING)) == Observed.READY


def test_nothing_is_asked_while_nothing_runs(fake: Fake) -> None:
    ready_profile(fake.port)
    before = polled(fake)
    async_to_sync(polls.poll_instances)()
    assert polled(fake) == before


def test_a_server_that_does_not_answer_is_asked_at_each_turn_until_it_counts_as_unresponsive() -> None:
    profile = ready_profile(9)
    states = [poll(profile) for _ in range(polls.FAILURES)]
    assert states == [Observed.READY] * (polls.FAILURES - 1) + [Observed.UNRESPONSIVE]


# GPUs


@pytest.mark.parametrize(
    ("found", "looks"), [(Gpus(problem=NO_DRIVER), 1), (Gpus(gpus=(GpuSample(0, "GPU-0", "RTX"),)), 3)]
)
def test_a_host_without_a_gpu_is_looked_at_less_often(
    monkeypatch: pytest.MonkeyPatch, found: Gpus, looks: int
) -> None:
    samples: list[Sample] = []

    class Sampler:
        """Says each time what it is told to say."""

        def sample(self) -> Sample:
            return Sample(1.0, found)

    monkeypatch.setattr(gpus, "_sampler", Sampler())
    monkeypatch.setattr(gpus, "_next_sample", 0.0)
    monkeypatch.setattr(gpus, "publish_sample", lambda _host, sample: samples.append(sample))
    for _ in range(3):
        gpus.sample_gpus()
    assert len(samples) == looks


def test_facts_that_an_older_version_stored_are_read_again(tmp_path: Path) -> None:
    text, _projector = tiny_models(tmp_path)
    old = pages.model_of(text)
    gone = pages.model("Gone", path=str(tmp_path / "gone.gguf"))
    ModelArtifact.objects.filter(pk=old.pk).update(facts={"architecture": "qwen35"})
    renew_facts()
    for row in (old, gone):
        row.refresh_from_db()
    assert old.facts["state_size"] > 0 and old.facts["gqa"]
    assert gone.facts["architecture"] == "qwen35" and "state_size" not in gone.facts
