"""The host's own load on the GPU page: measured, old, unknown, without a GPU, and live."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from html import unescape
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.urls import reverse

from jobs import live
from jobs.domain.gpu import NO_DRIVER, Gpus, GpuSample, Sample
from jobs.domain.hostload import HostLoad, LoadSample
from jobs.domain.series import FIELDS
from jobs.models import Host
from jobs.runtime.duties import duties
from jobs.services import gpus, history, hostload
from tests.sockets import cookie_for, page, text_of

pytestmark = pytest.mark.django_db(transaction=True)

LOAD = HostLoad(
    cpu=12.4,
    cores=16,
    memory_total_mib=65536,
    memory_used_mib=16384,
    swap_total_mib=8192,
    swap_used_mib=0,
    disk_total_mib=1024000,
    disk_free_mib=256000,
    load_1m=0.5,
    load_5m=1.25,
    load_15m=3.0,
)

Get = Callable[[], str]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory of what other tests published or failed to read."""
    monkeypatch.setattr(hostload, "_shown", None)
    monkeypatch.setattr(gpus, "_shown", None)
    monkeypatch.setattr(gpus, "_next_try", 0.0)
    monkeypatch.setattr(gpus, "_sampled_at", float("-inf"))


@pytest.fixture
def get(redis_server: redis.Redis, host: Host, charlie: User, signed_in: Any) -> Get:
    """What the page says of hosts to a viewer: the text below the cards, tags taken out."""
    client = signed_in(charlie)

    def text() -> str:
        html = client.get(reverse("gpus")).content.decode()
        return plain(html.split('id="host-load"')[1].split("</main>")[0].partition(">")[2])

    return text


def plain(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def say(load: HostLoad, at: float | None = None, host: str = "local") -> None:
    """Publish a load as the agent does."""
    hostload.publish_load(host, LoadSample(time.time() if at is None else at, load))


def part(user: User) -> str:
    """The live part, as a page gets it."""
    found = live.subscriptions("hostload")[0]
    assert found.topic.allowed(user, found.arg)
    return found.topic.render("viewer", found.arg)


def test_a_host_is_shown_with_all_it_says_also_without_a_gpu(get: Get, charlie: User) -> None:
    gpus.publish_sample("local", Sample(time.time(), Gpus(problem=NO_DRIVER)))
    say(LOAD)
    text = get()
    assert text.startswith("Host this machine")
    values = "12 % 16.0 / 64.0 GiB 0.0 / 8.0 GiB 250.0 / 1000.0 GiB 0.50 / 1.25 / 3.00 cores: 16"
    assert values in text
    html = part(charlie)
    assert re.findall(r'id="([^"]+)"[^>]*hx-swap-oob="true"', html) == ["host-load"]
    assert '<rect class="gpu-rest" x="0" width="249"' in html
    say(replace(LOAD, swap_total_mib=0))
    assert "GiB none 250.0" in get()


def test_what_is_not_known_is_a_dash_and_what_is_old_says_so(get: Get, settings: Any, charlie: User) -> None:
    dashes = "– – – – – cores: –"
    text = get()
    assert dashes in text and "Not measured yet." in text
    say(HostLoad())
    text = get()
    assert dashes in text and "Not measured yet." not in text and "Stale" not in text
    assert "<rect" not in part(charlie)
    say(replace(HostLoad(), memory_used_mib=1024, load_5m=0.0))
    assert "– 1.0 / – GiB – – – / 0.00 / – cores: –" in get()
    settings.TIME_ZONE = "Asia/Taipei"
    say(LOAD, at=1_700_000_000.0)
    text = get()
    assert "Stale since 06:13:20. The host agent sends no samples; servers go on running." in text
    assert "16.0 / 64.0 GiB" in text
    assert 'class="card is-stale"' in part(charlie)


def test_hosts_are_told_apart_and_something_else_is_no_sample(get: Get, redis_server: redis.Redis) -> None:
    Host.objects.create(slug="tower", name="Tower")
    redis_server.xadd(hostload.stream_of("local"), {"data": "{}"})
    say(LOAD, host="tower")
    text = get()
    assert text.count("Host ") == 2
    assert "12 %" in text.split("Tower")[1] and "12 %" not in text.split("Tower")[0]


def test_without_redis_the_load_is_unknown_and_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, get: Get
) -> None:
    asked = []

    def client() -> redis.Redis:
        asked.append(1)
        lost: redis.Redis = redis.Redis.from_url("unix:///nonexistent/valkey.sock?db=0")
        return lost

    with monkeypatch.context() as patch:
        patch.setattr(gpus, "sync_client", client)
        assert get().startswith("Host Unknown while Redis, which carries the samples, does not answer.")
    assert len(asked) == 1, "the cards, the strip and the hosts wait together"


def test_only_what_is_new_wakes_the_pages(monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis) -> None:
    say(LOAD, at=100.0)
    say(replace(LOAD, cpu=12.1, memory_used_mib=16386), at=101.0)
    assert redis_server.xlen("events") == 1
    say(replace(LOAD, cpu=13.0), at=102.0)
    assert redis_server.xlen("events") == 2
    found: Any = redis_server.xrange(hostload.stream_of("local"))
    assert [entry[1][b"time"] for entry in found] == [b"102.000"]


def test_pages_are_told_of_the_host_together_with_the_cards_unless_their_driver_hangs(
    monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis, host: Host
) -> None:
    def told() -> list[bytes]:
        entries: Any = redis_server.xrange("events")
        return [fields[b"kind"] for _, fields in entries]

    cards = iter(range(40, 99))
    monkeypatch.setattr(gpus, "_next_sample", 0.0)
    monkeypatch.setattr(
        gpus._sampler, "sample", lambda: Sample(1.0, Gpus(gpus=(GpuSample(0, temperature=next(cards)),)))
    )
    gpus.sample_gpus()
    say(LOAD)
    assert told() == [b"gpus"]
    gpus.sample_gpus()
    assert told() == [b"gpus", b"gpus", b"hostload"]
    monkeypatch.setattr(gpus, "_sampled_at", time.monotonic() - gpus.SOON)
    say(replace(LOAD, cpu=99.0))
    assert told()[3:] == [b"hostload"]


def test_the_agent_measures_this_host_each_second_and_notes_it_in_the_history(
    monkeypatch: pytest.MonkeyPatch, get: Get
) -> None:
    noted: list[Any] = []
    monkeypatch.setattr(history, "record", lambda *values: noted.append(values))
    duty = next(duty for duty in duties() if duty.call == hostload.sample_host)
    assert duty.every == 1
    hostload.sample_host()
    ((_host, sample),) = hostload.latest_loads() or []
    assert sample is not None and sample.load.memory_total_mib and sample.load.disk_free_mib
    assert f"cores: {sample.load.cores}" in get()
    assert noted == [("host", sample.time, asdict(sample.load))]
    assert set(FIELDS["host"]) <= noted[0][2].keys()


async def test_a_new_load_reaches_an_open_page(redis_server: redis.Redis, host: Host, charlie: User) -> None:
    await sync_to_async(say)(LOAD)
    socket = page(await cookie_for(charlie), "hostload")
    await socket.connect()
    await socket.until(lambda html: 'id="host-load"' in html and "12 %" in html)
    await sync_to_async(say)(replace(LOAD, cpu=97.0))
    assert "97 %" in text_of(await socket.until(lambda html: 'id="host-load"' in html))
    await socket.leave()
