"""The duty that measures running servers, on stand-ins and on the real engine, and the pages that show it."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.urls import reverse

from controlpanel.lib.redis import sync_client
from jobs.adapters import runs as folders
from jobs.services import history, watch
from servers.domain import meter_state
from servers.domain.meter import STALE_AFTER, ServerMeter, SlotUse, dumped
from servers.models import Instance, ServerProfile
from servers.services import instances, metering_duty
from servers.services.metering import latest_meters, stream_of
from tests.engines import bundled_only, engine_path
from tests.functional import pages
from tests.stage import CLI, Stage
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
NEVER = 1e9
HELP = str(Path(__file__).parents[1] / "data" / "help" / "upstream-b11434.txt")


@pytest.fixture(autouse=True)
def fresh(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that has just begun; to be quick it asks a server at work four times a second."""
    monkeypatch.setattr(meter_state, "BUSY_EVERY", 0.2)
    monkeypatch.setattr(metering_duty, "_watches", {})
    monkeypatch.setattr(metering_duty, "_rows_ids", set())
    monkeypatch.setattr(metering_duty, "_shown", None)
    monkeypatch.setattr(watch, "_running", set())


@pytest.fixture
def stage_of(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    stages: list[Stage] = []

    def make(program: Path | None = None, **flags: Any) -> Stage:
        stages.append(Stage(tmp_path, program, **flags))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()


def measure(times: int = 1, pause: float = 0.25) -> None:
    """What the duty does in so many rounds; its questions are answered before the loop ends."""

    async def rounds() -> None:
        for number in range(times):
            if number:
                await asyncio.sleep(pause)
            await metering_duty.measure_servers()
        tasks = [found.task for found in metering_duty._watches.values()]
        await asyncio.wait(
            [task for task in tasks if task and not task.done()] or [asyncio.create_task(asyncio.sleep(0))],
            timeout=0.5,
        )

    async_to_sync(rounds)()


def meter_of(profile: ServerProfile) -> ServerMeter | None:
    return (latest_meters() or {}).get(profile.pk)


def measured(profile: ServerProfile) -> ServerMeter:
    measure()
    meter = meter_of(profile)
    assert meter is not None
    return meter


def asking(profile: ServerProfile, **more: Any) -> threading.Thread:
    """A request that goes on while the test does."""
    endpoint = instances.ensure_ready(profile)
    request = {"messages": [{"role": "user", "content": "Tell me."}], "stream": True, **more}

    def ask() -> None:
        httpx.post(
            f"http://127.0.0.1:{endpoint.port}/v1/chat/completions",
            json=request,
            headers={"Authorization": f"Bearer {endpoint.key}"},
            timeout=60,
            trust_env=False,
        )

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def asked(profile: ServerProfile, path: str) -> int:
    """How often the stand-in was asked for a path."""
    endpoint = instances.ensure_ready(profile)
    found = httpx.get(f"http://127.0.0.1:{endpoint.port}/fake/requests", trust_env=False).json()
    return sum(entry["path"] == path for entry in found)


def test_servers_are_measured_while_they_work_and_left_alone_when_idle(
    stage_of: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis
) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(
        history, "record", lambda subject, _time, values: seen.append((subject, dict(values)))
    )
    told: list[Any] = []
    monkeypatch.setattr(metering_duty, "tell_with_samples", lambda *event: told.append(event))
    stage = stage_of(help=HELP, reply="word " * 60, token_delay=0.02, draft=10, accepted=6)
    profile = stage.profile(settings={"parallel": 2, "ctx_size": 8192})
    stage.start(profile)
    measure(4, pause=0.05)
    meter = meter_of(profile)
    assert meter is not None
    assert (meter.predicted_tps, meter.prompt_tps, meter.busy, meter.waiting) == (0, 0, 0, 0)
    assert (meter.context_used, [slot.size for slot in meter.slots]) == (0, [4096, 4096])
    assert meter.acceptance is None
    assert told == [("meter", "local")]  # the later rounds showed nothing new
    assert seen[-1] == (
        f"server:{profile.pk}",
        {
            "predicted_tps": 0,
            "prompt_tps": 0,
            "busy": 0,
            "waiting": 0,
            "context_used": 0,
            "acceptance": None,
        },
    )
    before = asked(profile, "/slots"), asked(profile, "/metrics")
    measure(5, pause=0.02)
    assert (asked(profile, "/slots"), asked(profile, "/metrics")) == before
    thread = asking(profile)
    measure(3)
    meter = meter_of(profile)
    assert meter is not None
    assert meter.busy == 1
    assert meter.predicted_tps == pytest.approx(50, rel=0.4)
    assert (meter.context_used or 0) > 21
    thread.join(30)
    wait_for(lambda: measured(profile).busy == 0, 5, "the server to be idle")
    meter = meter_of(profile)
    assert meter is not None
    assert (meter.acceptance, meter.totals["drafted"]) == (0.6, 10)
    entry: Any = redis_server.xrevrange(stream_of("local"), count=5)
    assert len(entry) == 1
    assert list(json.loads(entry[0][1][b"data"])) == [str(profile.pk)]

    other_servers_are_measured_beside_one_that_hangs(stage, profile)


def other_servers_are_measured_beside_one_that_hangs(stage: Stage, first: ServerProfile) -> None:
    """A server that hangs delays no other, one that ended is gone, and one that sleeps is let sleep."""
    second = stage.profile("Second", settings={"sleep_idle": 300})
    stage.flags(help=HELP, hang="/metrics")
    another_agent()
    began = time.monotonic()
    measure(2, pause=0.1)
    assert time.monotonic() - began < 2
    meter = meter_of(first)
    assert meter is not None
    assert (meter.busy, meter.predicted_tps, meter.slots) == (None, None, ())
    stage.flags(help=HELP)
    stage.start(second)
    measure()
    other = meter_of(second)
    assert other is not None
    assert other.busy == 0
    instances.request_stop(CLI, first)
    stage.until(first, "stopped")
    metering_duty._rows_at = -NEVER
    measure()
    assert meter_of(first) is None
    assert meter_of(second) is not None
    stage.flags(help=HELP, sleeping=True)
    before = asked(second, "/slots"), asked(second, "/metrics")
    another_agent()
    measure(3, pause=0.02)
    assert (asked(second, "/slots"), asked(second, "/metrics")) == before
    sleeper = meter_of(second)
    assert sleeper is not None
    assert sleeper.busy is None


@bundled_only
def test_the_real_engine_is_measured_and_its_log_stays_short(
    stage_of: Callable[..., Stage],
) -> None:
    stage = stage_of(engine_path())
    text, _projector = stage.with_heads()
    profile = stage.profile(
        "Real", model=text, settings={"ctx_size": 4096, "parallel": 2, "speculation": "mtp"}
    )
    instance = stage.start(profile)
    assert instance.run is not None
    measure(3, pause=0.1)
    thread = asking(profile, max_tokens=2000, ignore_eos=True)
    highest: list[float] = []

    def works() -> bool:
        measure()
        meter = meter_of(profile)
        assert meter is not None
        highest.append(meter.predicted_tps or 0)
        return meter.busy == 1 and highest[-1] > 20 and (meter.context_used or 0) > 50

    wait_for(works, 20, "a rate of an answer that goes on")
    thread.join(60)
    wait_for(lambda: measured(profile).busy == 0, 10, "the end")
    meter = meter_of(profile)
    assert meter is not None
    assert meter.last_predicted_tps is not None
    assert max(highest) < 10 * meter.last_predicted_tps
    assert meter.totals["requests"] == 1
    assert meter.totals["predicted_tokens"] == pytest.approx(meter.context_used, abs=60)
    assert meter.acceptance is not None
    assert meter.per_position is not None
    assert len(meter.per_position) == 3
    assert meter.mean_length == pytest.approx(1 + sum(meter.per_position), abs=0.05)
    lines = idle_lines(instance.run.pk)
    assert lines < 20  # though it was asked many times while it worked
    measure(5, pause=0.05)
    assert idle_lines(instance.run.pk) == lines


def another_agent() -> None:
    metering_duty._watches.clear()
    metering_duty._rows_at = -NEVER


def idle_lines(run_id: str) -> int:
    return folders.log_path(run_id).read_bytes().count(b"all slots are idle")


def test_pages_show_what_is_measured_and_a_dash_for_what_is_not(
    charlie: User, signed_in: Any, redis_server: redis.Redis
) -> None:
    client = signed_in(charlie)
    profile = pages.profile(observed=Instance.Observed.STOPPED)
    address = reverse("server-metrics", args=[profile.pk])
    assert "Start it on its page" in client.get(address).content.decode()
    facts = {"vram": [[0, 2048], [1, None]]}
    Instance.objects.filter(profile=profile).update(observed=Instance.Observed.READY, facts=facts)
    assert "Not measured yet" in client.get(address).content.decode()
    slots = (SlotUse(0, 1024, 4096, True), SlotUse(1))
    meter = ServerMeter(
        time.time(),
        predicted_tps=52.34,
        busy=1,
        waiting=3,
        slots=slots,
        acceptance=0.71,
        per_position=(0.9, 0.5),
        mean_length=2.4,
        totals={"predicted_tokens": 123456},
    )
    publish_meters({profile.pk: meter})
    html = client.get(address).content.decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))
    for part in (
        "Generation 52.3 t/s Last answer: –",
        "Prompt – t/s",
        "1 / 2 slots at work Waiting: 3",
        "Acceptance 71 % Position 1 90 % Position 2 50 %",
        "Slot 0 at work 1,024 / 4,096 Slot 1 – –",
        "Card 0 2.0 GiB Card 1 –",
        "Requests answered – Tokens generated 123,456",
    ):
        assert part in text
    assert f'data-subject="server:{profile.pk}"' in html
    for name in ("servers", "overview"):
        html = client.get(reverse(name)).content.decode()
        assert f'<span data-meter="{profile.pk} tps">52.3 t/s</span>' in html
        assert f'<span data-meter="{profile.pk} busy">1 / 2</span>' in html
    publish_meters({profile.pk: replace(meter, time=time.time() - STALE_AFTER - 1)})
    html = client.get(address).content.decode()
    assert "Not current since" in html
    assert "52.3" not in html
    assert "52.3" not in client.get(reverse("servers")).content.decode()


def publish_meters(meters: dict[int, ServerMeter]) -> None:
    fields: dict[Any, Any] = {"time": "0", "data": dumped(meters)}
    sync_client().xadd(stream_of("local"), fields, maxlen=1, approximate=False)
