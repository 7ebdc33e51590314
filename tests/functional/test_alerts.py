"""The agent's look at rules: what fires, what is over, and what is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from inspect import unwrap
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.utils import timezone

from controlpanel.lib.redis import sync_client
from controlpanel.lib.words import shown
from jobs.domain.gpu import GpuSample
from jobs.domain.hostload import HostLoad, LoadSample
from jobs.models import Alert, AlertRule, Host, Job, Notice
from jobs.services import alert_rules, alerts, gpus, hostload
from jobs.services.alert_rules import RuleData
from jobs.services.building import MAKE
from servers.domain.meter import ServerMeter, dumped
from servers.models import Instance
from servers.services.metering import stream_of
from tests.cards import publish_cards
from tests.functional import pages
from tests.functional.alerting import CLI, channel, evaluate, notices, rule, states

pytestmark = pytest.mark.django_db

Observed = Instance.Observed


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis, host: Host, settings: Any) -> None:
    """An empty Valkey and no memory of other tests."""
    monkeypatch.setattr(alerts, "_met", {})
    monkeypatch.setattr(gpus, "_next_try", 0.0)
    settings.PANEL_PRIVATE_HOSTS = "127.0.0.1"


def no_redis() -> redis.Redis:
    """A client of a Redis that is not there."""
    client: redis.Redis = redis.Redis.from_url("unix:///nonexistent/valkey.sock?db=0")
    return client


def card(temperature: int | None, **fields: Any) -> GpuSample:
    return GpuSample(0, "GPU-1", "RTX 3090", temperature=temperature, **fields)


def look(*cards: GpuSample, age: float = 0.0) -> None:
    publish_cards(*cards, age=age)
    evaluate()


def test_without_a_rule_one_question_is_all(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        evaluate()


def test_a_hot_card_fires_is_told_and_is_over() -> None:
    hot = rule("gpu_hot", channel("http://127.0.0.1:1/hook"), threshold=85)
    look(card(85))
    look(card(None))
    assert states() == []
    look(card(91))
    look(card(92))
    assert states() == ["firing GPU 0 RTX 3090 · this machine"]
    assert notices() == ["firing pending"]
    row = Alert.objects.get()
    assert (row.title_text, row.value_text) == ("GPU hotter than 85 °C", "91 °C")
    # An old sample, a card that is lost, a driver that was not asked yet and a Redis that is away: unknown.
    look(card(60), age=60)
    look(GpuSample(0, "GPU-1", lost=True))
    sync_client().flushall()
    evaluate()
    assert notices() == ["firing pending"]
    assert states() == ["firing GPU 0 RTX 3090 · this machine"]
    look(card(70))
    assert notices() == ["firing pending", "resolved pending"]
    assert Alert.objects.get().end_text == "70 °C"
    # Within the cooldown neither its return nor the end of that is told.
    look(card(95))
    look(card(70))
    assert [state.split()[0] for state in states()] == ["resolved", "resolved"]
    assert len(notices()) == 2
    # After it, what fires is told, even when it began before.
    look(card(95))
    Alert.objects.filter(rule=hot).exclude(told_at=None).update(
        told_at=timezone.now() - timedelta(minutes=11)
    )
    look(card(95))
    assert notices()[2:] == ["firing pending"]
    # A card that was taken out ends it silently.
    look()
    assert not Alert.objects.filter(state="firing").exists()
    assert len(notices()) == 3


def test_a_redis_that_is_away_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rule("gpu_hot", threshold=85)
    look(card(91))
    monkeypatch.setattr(gpus, "sync_client", no_redis)
    evaluate()
    assert [state.split()[0] for state in states()] == ["firing"]


def test_a_hold_time_an_only_and_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.time()]
    rule("gpu_memory", threshold=90, hold_s=60, only="gpu 1")
    full = {"memory_total_mib": 24576, "memory_used_mib": 24000}
    cards = [GpuSample(0, "GPU-0", **full), GpuSample(1, "GPU-1", **full)]
    monkeypatch.setattr("jobs.services.alerts.time.time", lambda: now[0])
    look(*cards)
    now[0] += 59
    publish_cards(*cards, age=-59)
    evaluate()
    assert states() == []
    now[0] += 2
    publish_cards(*cards, age=-61)
    evaluate()
    assert states() == ["firing GPU 1 · this machine"]
    assert shown(Alert.objects.get().value) == "98 % of 24.0 GiB used"
    off = RuleData(90, "gpu 1", 60, 10, (), enabled=False)
    alert_rules.change_rule(CLI, AlertRule.objects.get(), off)
    assert states() == ["resolved GPU 1 · this machine"]
    evaluate()
    assert alerts._met == {}


def test_memory_and_disk_of_a_host(redis_server: redis.Redis) -> None:
    rule("host_memory", threshold=90)
    rule("disk_free", threshold=20)
    load = HostLoad(memory_total_mib=1024, memory_used_mib=1000, disk_total_mib=102_400, disk_free_mib=10_240)
    hostload.publish_load("local", LoadSample(time.time() - 60, load))
    evaluate()
    assert states() == []
    hostload.publish_load("local", LoadSample(time.time(), load))
    evaluate()
    values = sorted(row.value_text for row in Alert.objects.all())
    assert values == ["10.0 GiB free of 100 GiB", "98 % of 1.0 GiB used"]


def test_servers_that_are_down_loop_or_draft_in_vain(redis_server: redis.Redis) -> None:
    told = channel("http://127.0.0.1:1/hook")
    for kind in ("server_down", "crash_loop"):
        rule(kind, told)
    rule("acceptance", told, threshold=40)
    running = {"desired": "running"}
    good = pages.profile("Good", Observed.READY, running)
    pages.profile("Stopped", Observed.FAILED)
    bad = pages.profile("Bad", Observed.UNRESPONSIVE, running)
    loop = pages.profile("Loop", Observed.BACKOFF, {**running, "attempts": 1, "error": "CUDA error"})

    def meter(share: float | None, age: float = 0.0) -> None:
        meters = {good.pk: ServerMeter(time.time() - age, acceptance=share)}
        redis_server.xadd(stream_of("local"), {"time": "0", "data": dumped(meters)}, maxlen=1)
        evaluate()

    meter(0.2, age=60)
    assert sorted(states()) == ["firing Bad", "firing Loop"]
    meter(None)
    meter(0.2)
    assert states()[2:] == ["firing Good"]
    assert Alert.objects.get(label="Good").value_text == "20 % of the drafted tokens are accepted"
    assert "CUDA error" in Alert.objects.get(label="Loop").value_text
    assert notices() == ["firing pending"] * 3
    Instance.objects.filter(profile=bad).update(observed=Observed.STOPPED, desired="stopped")
    Instance.objects.filter(profile=good).update(observed=Observed.STOPPED, desired="stopped")
    loop.delete()
    evaluate()
    assert {state.split()[0] for state in states()} == {"resolved"}
    assert notices() == [*["firing pending"] * 3, *["resolved pending"] * 2], "a deleted server ends silently"


def test_builds_and_downloads_are_told_once_and_only_from_the_rule_on() -> None:
    config, told = pages.config(), channel("http://127.0.0.1:1/hook")
    now = timezone.now()
    ended = {"state": Job.State.FAILED, "ended_at": now}
    pages.made(config, 1, ended, state="failed", error="before the rule")
    for kind in ("build_finished", "build_failed", "download_finished", "download_failed"):
        rule(kind, told)
    evaluate()
    assert states() == []
    ended = {"ended_at": timezone.now()}
    pages.made(config, 2, {"state": Job.State.FAILED, **ended}, state="failed", error="nvcc died")
    pages.made(config, 3, {"state": Job.State.SUCCEEDED, **ended}, state="ready")
    pages.made(config, 4, {"state": Job.State.CANCELED, **ended}, state="canceled")
    pages.download("Whole", state="complete", **ended)
    pages.download("Broken", state="failed", error="no space left", **ended)
    for _ in range(2):
        evaluate()
    assert sorted(states()) == ["event Broken", "event Fork #2", "event Fork #3", "event Whole"]
    assert notices() == ["event pending"] * 4
    assert Alert.objects.get(label="Fork #2").value_text == "nvcc died"
    # One that ended while the agent was away is found when it comes back.
    AlertRule.objects.update(seen_to=timezone.now() - timedelta(hours=2), armed_at=now - timedelta(hours=3))
    late = {"state": Job.State.LOST, "ended_at": now - timedelta(hours=1)}
    pages.made(config, 5, late, state="failed")
    evaluate()
    assert "event Fork #5" in states()
    assert Job.objects.filter(kind=MAKE).count() == 5


def test_a_rule_that_is_deleted_keeps_its_history(alice: User, signed_in: Callable[[User], Any]) -> None:
    rule("gpu_hot", channel("http://127.0.0.1:1/hook"), threshold=85)
    look(card(91))
    alert_rules.delete_rule(CLI, AlertRule.objects.get())
    assert [state.split()[0] for state in states()] == ["resolved"]
    assert notices() == ["firing pending"]
    Alert.objects.update(since=timezone.now() - timedelta(days=91))
    unwrap(alerts.prune)()
    assert not Alert.objects.exists() and not Notice.objects.exists()


def test_a_rule_that_is_switched_off_during_a_look_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rule("gpu_hot", threshold=85)
    told = alerts._told_at

    def meanwhile(row: AlertRule) -> dict[str, float]:
        AlertRule.objects.update(enabled=False)
        return told(row)

    monkeypatch.setattr(alerts, "_told_at", meanwhile)
    look(card(91))
    assert states() == []


def test_only_the_newest_of_what_is_over_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "KEPT_ROWS", 3)
    made = {"kind": "gpu_hot", "title": "t", "subject": "s", "label": "l", "value": "v"}
    for minutes in range(5):
        since = timezone.now() - timedelta(minutes=minutes)
        Alert.objects.create(state="resolved", since=since, end_value=str(minutes), **made)
    Alert.objects.create(state="firing", since=timezone.now() - timedelta(days=200), **made)
    unwrap(alerts.prune)()
    assert [row.end_value or row.state for row in Alert.objects.all()] == ["0", "1", "2", "firing"]
