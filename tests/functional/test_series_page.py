"""The samples behind the charts: what the address answers, within which bounds, and the marks on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from controlpanel.lib.text import Message
from jobs.domain.gpu import GpuSample
from jobs.models import Host, Run
from jobs.services.marks import MOST
from servers.models import Incident, Instance
from servers.services import incidents
from servers.services.marks import server_marks
from tests.cards import publish_cards
from tests.functional import pages
from tests.samples import say_second, store

pytestmark = pytest.mark.django_db(transaction=True)

GPU = "gpu:GPU-5c0f1a2b"
Ask = Callable[..., Any]


@pytest.fixture
def client(charlie: User, signed_in: Any) -> Client:
    """A viewer's browser."""
    found: Client = signed_in(charlie)
    return found


@pytest.fixture
def ask(redis_server: redis.Redis, host: Host, client: Client) -> Ask:
    """What the address answers a viewer."""

    def get(**values: Any) -> Any:
        values = {"host": host.pk, "subject": [GPU, "host"], "range": 300, **values}
        asked = {key: value for key, value in values.items() if value is not None}
        return client.get(reverse("gpu-series"), asked)

    return get


def of(at: int, field: str) -> float | None:
    """A number from which its second can be told; the fan is not known."""
    return None if field == "fan" else float(at % 100)


def test_seconds_are_stored_ones_then_live_ones_each_once(ask: Ask, host: Host) -> None:
    now = int(time.time())
    store(host, GPU, 0, now - 60, 5, of)
    stored_to = (now - 60) // 10 * 10 + 49
    for at in (stored_to, stored_to + 1, stored_to + 2):
        say_second(host, at + 0.4, {GPU: {"utilization": at % 100}, "host": {"cpu": 12.34567}})
    say_second(host, stored_to + 2.9, {GPU: {"utilization": (stored_to + 2) % 100}})
    answer = ask().json()
    assert answer["step"] == 1
    assert abs(answer["now"] - time.time()) < 5
    known = dict(zip(answer["times"], answer["series"][GPU]["utilization"]["mean"], strict=True))
    assert {at: value for at, value in known.items() if value is not None} == {
        at: at % 100 for at in range(stored_to - 49, stored_to + 3)
    }
    assert set(answer["series"][GPU]["fan"]["mean"]) == {None}
    assert answer["series"]["host"]["cpu"]["mean"][-2] == 12.35
    newer = ask(since=stored_to + 1).json()
    assert newer["times"] == [stored_to + 2]
    assert newer["series"][GPU]["utilization"] == {
        "mean": [(stored_to + 2) % 100],
        "low": None,
        "high": None,
    }
    assert newer["series"]["host"]["cpu"]["mean"] == [None], "what is not said is not known"
    assert ask(since=now + 1000).json()["times"] == []


def test_a_long_range_has_bands_and_gives_its_last_point_again(ask: Ask, host: Host) -> None:
    now = int(time.time())
    store(host, GPU, 1, now - 3600, 6, of)
    answer = ask(range=3600).json()
    assert answer["step"] == 10
    load = answer["series"][GPU]["utilization"]
    assert len(answer["times"]) == len(load["mean"]) == len(load["low"]) == len(load["high"])
    known = [index for index, value in enumerate(load["mean"]) if value]
    assert len(known) > 250
    assert all(load["low"][index] < load["mean"][index] < load["high"][index] for index in known)
    last = answer["times"][known[-1]]
    again = ask(range=3600, since=last).json()
    assert again["times"][0] == last
    assert again["series"][GPU]["utilization"]["mean"][0] == load["mean"][known[-1]]


def test_without_history_there_are_no_points(ask: Ask) -> None:
    answer = ask(range=2_592_000)
    assert answer.status_code == 200
    assert not any(value for value in answer.json()["series"][GPU]["utilization"]["mean"])
    assert answer.json()["marks"] == []


@pytest.mark.parametrize(
    "values",
    [
        {"range": 301},
        {"range": "1e3"},
        {"range": None},
        {"host": "x"},
        {"host": None},
        {"host": 2**63},
        {"since": "nan"},
        {"since": "soon"},
        {"subject": None},
        {"subject": "disk:0"},
        {"subject": "gpu:"},
        {"subject": "gpu:" + "x" * 100},
        {"subject": "gpu:\0"},
        {"subject": [f"gpu:{number}" for number in range(65)]},
    ],
)
def test_what_the_panel_does_not_keep_is_refused(ask: Ask, values: dict[str, Any]) -> None:
    answer = ask(**values)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_host_that_does_not_exist_is_not_found(ask: Ask) -> None:
    assert ask(host=99_999).status_code == 404


def test_marks_tell_of_starts_of_readiness_and_of_failures(ask: Ask, host: Host) -> None:
    now = timezone.now()
    row = pages.profile("Qwen", "ready", instance={"ready_at": now - timedelta(seconds=90)})
    run = pages.run_of(row)
    Run.objects.filter(pk=run.pk).update(created_at=now - timedelta(seconds=100))
    build = Run.objects.create(host=host, kind="build", subject_kind="build", subject_id="1")
    instance = Instance.objects.get(profile=row)
    incidents.note(instance, Incident.Kind.CRASH, Message("It broke."), run=run)
    incidents.note(instance, Incident.Kind.QUALITY, Message("It is slow."), run=run)
    marks = ask().json()["marks"]
    assert [(mark["kind"], mark["label"]) for mark in marks] == [
        ("start", "Qwen: started"),
        ("ready", "Qwen: ready"),
        ("crash", "Qwen: ended by itself"),
    ]
    assert [round(now.timestamp() - mark["time"]) for mark in marks[:2]] == [100, 90]
    assert build.pk not in str(marks)
    other = Host.objects.create(slug="tower", name="Tower")
    assert ask(host=other.pk).json()["marks"] == []
    Incident.objects.update(first_at=now - timedelta(hours=1))
    assert [mark["kind"] for mark in ask(since=now.timestamp()).json()["marks"]] == ["start", "ready"]
    row.delete()
    assert [mark["label"] for mark in ask(range=21_600).json()["marks"]] == [
        "Qwen: ended by itself",
        "a deleted server: started",
    ]


def test_there_are_not_more_marks_than_a_chart_can_show(ask: Ask, host: Host) -> None:
    subject = {"kind": "server", "subject_kind": "instance", "subject_id": "1"}
    Run.objects.bulk_create(Run(host=host, **subject) for _ in range(MOST + 5))
    assert len(ask().json()["marks"]) == MOST
    assert server_marks(host.pk, 0, datetime.now(UTC).timestamp() - 3600) == []


def test_a_server_has_its_own_marks_whatever_others_are_called_and_do(ask: Ask, host: Host) -> None:
    now = timezone.now()
    own = pages.profile("Qwen", "ready", instance={"ready_at": now - timedelta(seconds=200)})
    Run.objects.filter(pk=pages.run_of(own).pk).update(created_at=now - timedelta(seconds=210))
    other = pages.profile("Qwen-2", "ready", instance={"ready_at": now - timedelta(seconds=90)})
    run = pages.run_of(other)
    incidents.note(Instance.objects.get(profile=other), Incident.Kind.CRASH, Message("It broke."), run=run)
    newer = {"kind": "server", "subject_kind": "instance", "subject_id": str(other.instance.pk)}
    Run.objects.bulk_create(Run(host=host, **newer) for _ in range(MOST))
    subject = f"server:{own.pk}"
    marks = ask(subject=subject).json()["marks"]
    assert [(mark["label"], mark["subject"]) for mark in marks] == [
        ("Qwen: started", subject),
        ("Qwen: ready", subject),
    ]
    assert len(ask(subject=[subject, "host"]).json()["marks"]) == MOST
    assert ask(subject="server:" + "9" * 40).json()["marks"] == []


def test_the_page_has_a_history_for_each_host_and_a_link_for_each_card(
    redis_server: redis.Redis, host: Host, client: Client
) -> None:
    publish_cards(GpuSample(0, uuid="GPU-5c0f1a2b"), GpuSample(1))
    html = client.get(reverse("gpus")).content.decode()
    assert f'id="history-{host.pk}"' in html
    assert f'href="#history-{host.pk}" data-charts="{GPU}"' in html
    assert 'data-subject="gpu:1"' in html
    assert "No history yet: it begins when the host agent runs." in html
    assert html.count('class="chart"') == 8
