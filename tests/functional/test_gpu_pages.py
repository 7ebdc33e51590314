"""The GPU page and the strip on top of each page: every card, unknown as a dash, old samples as old."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.urls import reverse

from controlpanel.lib import streams
from jobs import live, registry
from jobs.domain import gpu
from jobs.domain.gpu import GpuProcess, Gpus, GpuSample, Sample, Xid
from jobs.domain.hostload import HostLoad, LoadSample
from jobs.models import Host, Run
from jobs.registry import Subject, register_subject
from jobs.services import gpus, hostload
from tests.sockets import cookie_for, page, text_of

pytestmark = pytest.mark.django_db(transaction=True)

CARD = GpuSample(
    index=0,
    uuid="GPU-5c0f1a2b",
    name="NVIDIA GeForce RTX 3090",
    memory_total_mib=24576,
    memory_used_mib=21504,
    memory_reserved_mib=350,
    utilization=97,
    memory_utilization=40,
    temperature=71,
    power_w=287.4,
    power_limit_w=350.0,
    clock_mhz=1695,
    memory_clock_mhz=9501,
    fan=62,
    pcie_gen=4,
    pcie_width=8,
    pcie_gen_max=4,
    pcie_width_max=16,
    pcie_rx_mib_s=120.4,
    pcie_tx_mib_s=8.0,
    throttle=("power_limit",),
    processes=(
        GpuProcess(812, "llama-server", 18432, ours=True),
        GpuProcess(901, "Xorg", 600, ours=False, user="gdm"),
    ),
)
DARK = GpuSample(index=1)

Get = Callable[[], str]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory of what other tests published or failed to read."""
    monkeypatch.setattr(gpus, "_shown", None)
    monkeypatch.setattr(gpus, "_next_try", 0.0)


@pytest.fixture
def get(redis_server: redis.Redis, host: Host, charlie: User, signed_in: Any) -> Get:
    """What the page says to a viewer: its text, tags taken out and spaces joined."""
    client = signed_in(charlie)

    def text() -> str:
        answer = client.get(reverse("gpus"))
        assert answer.status_code == 200
        return plain(answer.content.decode())

    return text


def plain(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def say(*cards: GpuSample, at: float | None = None, host: str = "local", **values: Any) -> None:
    """Publish a sample as the agent does."""
    found = Gpus("580.95.05", "13.0", cards) if cards else Gpus()
    sample = Sample(time.time() if at is None else at, replace(found, **values))
    gpus.publish_sample(host, sample)


def no_redis() -> redis.Redis:
    """A client of a Redis that is not there."""
    client: redis.Redis = redis.Redis.from_url("unix:///nonexistent/valkey.sock?db=0")
    return client


def strip(user: User) -> str:
    """The strip that every page has."""
    found = live.subscriptions("gpus:strip")[0]
    assert found.topic.allowed(user, found.arg)
    return found.topic.render("viewer", found.arg)


def test_a_card_is_shown_with_all_it_says_in_units(get: Get) -> None:
    say(CARD)
    text = get()
    for part in (
        "Driver 580.95.05 · CUDA 13.0",
        "works",
        "0 · NVIDIA GeForce RTX 3090",
        "97 % memory bus 40 %",
        "21.0 / 24.0 GiB",
        "71 °C",
        "287 / 350 W",
        "1695 MHz memory 9501 MHz",
        "gen 4 ×8 / ×16 in 120, out 8 MiB/s",
        "62 %",
        "power limit",
        "llama-server pid 812 18,432 MiB this panel",
        "Xorg pid 901, gdm 600 MiB",
        "driver and unknown 2,472 MiB reserved 350 MiB free 2,722 MiB",
        "ECC errors –",
    ):
        assert part in text
    assert "remapped" not in text and "Xid" not in text
    assert "Stale" not in text


def test_what_is_not_known_is_a_dash_and_never_zero(get: Get, charlie: User) -> None:
    say(CARD, DARK)
    rows = get().split("1 · card 1")[1]
    assert rows.startswith(
        " – memory bus – – – – – memory – – – – – Which programs use this card is not known. ECC errors –"
    )
    assert not re.search(r"\b0\b", rows.split("Charts")[0])
    assert "GPU 1 – – –" in plain(strip(charlie))


def test_a_measured_zero_is_shown(get: Get) -> None:
    say(replace(CARD, utilization=0, fan=0, throttle=(), processes=()))
    text = get()
    assert "0 %" in text
    assert "nothing" in text
    assert "No program uses this card." in text


def test_the_memory_bar_and_the_list_name_the_panels_servers(
    get: Get, charlie: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_subjects", {})
    register_subject("trial", lambda keys: {"7": Subject("Qwen", "/servers/3/")} if "7" in keys else {})
    own = GpuProcess(811, "llama-server", 6144, ours=True, subject="trial:7")
    gone = GpuProcess(812, "llama-server", 12288, ours=True, subject="trial:8")
    unknown = GpuProcess(813, "python3", None, ours=False)
    say(replace(CARD, processes=(gone, own, unknown)))
    for html in (strip(charlie), live.subscriptions("gpus")[0].topic.render("viewer", "")):
        assert re.findall(r'<rect class="(gpu-[^"]+)" x="(\d+)" width="(\d+)"', html) == [
            ("gpu-own gpu-own-0", "0", "250"),
            ("gpu-own gpu-own-1", "250", "500"),
            ("gpu-rest", "750", "125"),
            ("gpu-reserved", "875", "14"),
        ]
    assert '<a href="/servers/3/">Qwen</a>' in html
    text = get()
    assert "Qwen pid 811 6,144 MiB" in text and "Qwen pid 811 6,144 MiB this panel" not in text
    assert "llama-server pid 812 12,288 MiB this panel" in text
    assert "python3 pid 813 –" in text


def test_errors_of_a_card_are_told_with_what_to_do(get: Get, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Taipei"
    counts = {"ecc_corrected": 3, "ecc_uncorrected": 0, "ecc_corrected_ever": 40}
    say(replace(CARD, **counts, remapped_rows=0), replace(DARK, xids=(Xid(1_700_000_000.0, 79),), lost=True))
    text = get()
    assert "ECC errors: corrected 3 (ever 40), uncorrected 0" in text and "remapped" not in text
    assert (
        "Xid 79 at 2023-11-15 06:13 A card vanished from the PCIe bus · No setting of a server mends this."
        in text
    )
    say(replace(DARK, xids=(Xid(time.time(), 79),)))
    assert re.search(r"Xid 79 at \d\d:\d\d A card", get())
    say(replace(CARD, **{**counts, "ecc_uncorrected": 2}, remapped_rows=1, repair="pending"))
    assert "uncorrected 2 remapped rows 1, repair waits for a reset" in get()


def test_a_card_that_is_slowed_down_or_lost_or_not_readable_says_so(get: Get, charlie: User) -> None:
    hot = replace(CARD, throttle=("power_limit", "hardware_heat"))
    lost = GpuSample(1, name="NVIDIA GeForce RTX 3090", lost=True, error="GPU is lost")
    odd = GpuSample(2, error="Unknown Error")
    say(hot, lost, odd)
    text = get()
    assert "slowed down 0 ·" in text and "power limit, heat (hardware limit)" in text
    assert "lost 1 · NVIDIA GeForce RTX 3090" in text and "nvidia-smi --gpu-reset -i 1" in text
    assert "not readable 2 · card 2" in text and "The driver says: Unknown Error." in text
    assert "GPU 1 lost" in plain(strip(charlie))


def test_a_host_without_a_gpu_has_the_reason_and_the_next_step_and_no_strip(get: Get, charlie: User) -> None:
    say(problem=gpu.NO_DRIVER)
    text = get()
    assert "No GPU: servers run on the CPU" in text
    assert "There is no NVIDIA driver on this host." in text
    assert "install the driver" in text
    assert plain(strip(charlie)) == ""
    assert "gpu-mini" not in strip(charlie)


def test_a_driver_that_does_not_work_is_an_error_and_not_an_absent_card(get: Get, charlie: User) -> None:
    say(problem=gpu.MISMATCH)
    text = get()
    assert "The GPUs of this host cannot be read" in text
    assert "version mismatch" in text and "Reboot the host" in text
    assert "servers run on the CPU" not in text
    assert plain(strip(charlie)) == "GPU: cannot be read"


def test_a_host_that_was_never_sampled_says_so(get: Get, charlie: User) -> None:
    assert "No sample yet" in get()
    assert plain(strip(charlie)) == ""


def test_samples_that_stopped_coming_are_old(get: Get, settings: Any, charlie: User) -> None:
    settings.TIME_ZONE = "Asia/Taipei"
    say(CARD, at=1_700_000_000.0)
    text = get()
    assert "Stale since 06:13:20. The host agent sends no samples" in text
    assert "not current 0 · NVIDIA GeForce RTX 3090" in text
    assert "21.0 / 24.0 GiB" in text
    assert "Stale since 06:13:20." in plain(strip(charlie))
    assert "is-stale" in strip(charlie)


def test_a_driver_that_hangs_is_named_as_the_reason(get: Get) -> None:
    found = Gpus("580.95.05", "13.0", (CARD,), problem=gpu.SILENT)
    gpus.publish_sample("local", Sample(time.time(), found, since=1_700_000_000.0))
    text = get()
    assert "Stale since 22:13:20. The NVIDIA driver does not answer." in text
    assert "kernel log" in text


def test_without_redis_the_state_is_unknown_and_is_not_asked_for_twice(
    monkeypatch: pytest.MonkeyPatch, host: Host, charlie: User, signed_in: Any
) -> None:
    asked = []

    def client() -> redis.Redis:
        asked.append(1)
        return no_redis()

    monkeypatch.setattr(gpus, "sync_client", client)
    html = signed_in(charlie).get(reverse("gpus")).content.decode()
    assert "The state of the GPUs is unknown: Redis" in plain(html)
    assert "GPU: unknown while Redis does not answer" in plain(html)
    assert len(asked) == 1


def test_something_else_in_the_stream_is_no_sample(get: Get, redis_server: redis.Redis) -> None:
    redis_server.xadd(gpus.stream_of("local"), {"data": "{}"})
    assert "No sample yet" in get()


def test_cards_of_several_hosts_are_told_apart(get: Get, charlie: User) -> None:
    Host.objects.create(slug="tower", name="Tower")
    say(CARD)
    say(replace(CARD, temperature=55), host="tower")
    text = get()
    assert "Tower Driver 580.95.05" in text
    assert "71 °C" in text and "55 °C" in text
    assert plain(strip(charlie)).count("GPU 0") == 2
    assert "Tower" in plain(strip(charlie))


@pytest.mark.parametrize("topics,ids", [("gpus", ["gpus"]), ("gpus:strip", ["gpu-strip"])])
@pytest.mark.parametrize("cards", [(CARD, DARK), ()])
def test_each_live_part_is_once_on_its_page(
    get: Get, charlie: User, signed_in: Any, topics: str, ids: list[str], cards: tuple[GpuSample, ...]
) -> None:
    say(*cards, problem=None if cards else gpu.NO_DRIVER)
    html = signed_in(charlie).get(reverse("gpus")).content.decode()
    found = live.subscriptions(topics)[0]
    assert found.topic.allowed(charlie, found.arg)
    rendered = found.topic.render("viewer", found.arg)
    assert re.findall(r'<[^>]*\bid="([^"]+)"[^>]*\bhx-swap-oob="true"', rendered) == ids
    assert [html.count(f'id="{name}"') for name in ids] == [1]
    assert 'ws-connect="/ws/?topics=gpus,hostload,jobs,gpus:strip"' in html


async def test_what_is_measured_in_one_go_reaches_a_page_as_one_message_however_many_cards(
    redis_server: redis.Redis, host: Host, charlie: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = [replace(CARD, index=index, uuid=f"GPU-{index}") for index in range(8)]
    parts = ('id="gpus"', 'id="gpu-strip"', 'id="host-load"')

    def measure(used: int) -> None:
        say(*(replace(card, memory_used_mib=used) for card in cards))
        hostload.publish_load("local", LoadSample(time.time(), HostLoad(cpu=used / 1000)))

    monkeypatch.setattr(hostload, "_shown", None)
    await sync_to_async(measure)(20480)
    socket = page(await cookie_for(charlie), "gpus,hostload,gpus:strip")
    await socket.connect()
    await socket.until(lambda html: all(part in html for part in parts))
    for used in (12288, 13312):
        await sync_to_async(measure)(used)
        html = await socket.until(lambda html: any(part in html for part in parts))
        assert [html.count(part) for part in parts] == [1, 1, 1]
        assert text_of(html).count(f"{used / 1024:.1f} / 24.0 GiB") == 16
    await socket.leave()


async def test_an_account_without_a_role_follows_no_gpus(dora: User) -> None:
    socket = page(await cookie_for(dora), "gpus:strip")
    assert await socket.connect()
    assert await socket.ending() == 4403


def test_only_what_is_new_wakes_the_pages(redis_server: redis.Redis) -> None:
    def events() -> Any:
        return redis_server.xlen("events")

    say(CARD, at=100.0)
    say(CARD, at=101.0)
    assert events() == 1
    say(replace(CARD, temperature=72), at=102.0)
    assert events() == 2
    found: Any = redis_server.xrange(gpus.stream_of("local"))
    assert [entry[1][b"time"] for entry in found] == [b"102.000"]


def test_pages_are_told_again_once_redis_is_back(
    monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis
) -> None:
    say(CARD)
    with monkeypatch.context() as patch:
        patch.setattr(streams, "sync_client", no_redis)
        say(CARD)
    redis_server.flushall()
    say(CARD)
    assert redis_server.xlen("events") == 1


def test_own_processes_are_those_of_active_runs_of_the_host(host: Host, run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(pid=812)
    other = Host.objects.create(slug="tower", name="Tower")
    common = {"kind": "server", "subject_kind": "instance", "subject_id": "1"}
    Run.objects.create(host=host, state=Run.State.EXITED, pid=813, **common)
    Run.objects.create(host=host, state=Run.State.CREATED, **common)
    Run.objects.create(host=other, state=Run.State.RUNNING, pid=814, **common)
    assert gpus.own_pids("local") == {812: f"{run.subject_kind}:{run.subject_id}"}
