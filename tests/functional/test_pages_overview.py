"""The overview, the strip on top, the audit page, and what keeps pages current."""

from __future__ import annotations

import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from jobs import live
from jobs.adapters import hostlink
from jobs.models import Build, Host
from jobs.services.audit import Actor, record
from jobs.services.hosts import local_host
from servers.models import Incident, Instance
from tests.functional import pages

pytestmark = pytest.mark.django_db
Observed = Instance.Observed


def text_of(answer: Any) -> str:
    return answer.content.decode()


@pytest.fixture
def seen() -> None:
    """The host's agent is alive."""
    Host.objects.filter(pk=local_host().pk).update(agent_seen_at=timezone.now())


def open_step(client: Any) -> list[int]:
    return [step["number"] for step in client.get(reverse("overview")).context["steps"] if step["next"]]


def test_an_empty_panel_leads_through_four_steps_that_then_disappear(
    seen: None, alice: User, signed_in: Any
) -> None:
    client = signed_in(alice)
    assert open_step(client) == [1]
    pages.build()
    assert open_step(client) == [2]
    pages.model()
    assert open_step(client) == [3]
    profile = pages.profile()
    assert open_step(client) == [4]
    Instance.objects.update(observed=Observed.READY, steps=[{"key": "ready", "at": 1.0}])
    assert open_step(client) == []
    Instance.objects.update(observed=Observed.STOPPED)
    text = text_of(client.get(reverse("overview")))
    assert "Four steps" not in text
    assert profile.name not in text


def test_nothing_wrong_is_one_calm_line(seen: None, charlie: User, signed_in: Any) -> None:
    text = text_of(signed_in(charlie).get(reverse("overview")))
    assert "Nothing needs attention." in text
    assert "Needs attention" not in text


def test_what_needs_attention_is_named_with_its_reason(seen: None, charlie: User, signed_in: Any) -> None:
    pages.build("broken", state=Build.State.FAILED, error="no CUDA library")
    pages.model("half", complete=False, problems=[{"text": "1 part is missing.", "params": {}}])
    pages.profile("crashed", Observed.FAILED, {"error": "out of memory"}, build=pages.build("good"))
    text = text_of(signed_in(charlie).get(reverse("overview")))
    assert "Nothing needs attention." not in text
    for part in ("broken", "no CUDA library", "half", "1 part is missing.", "crashed", "out of memory"):
        assert part in text


def test_the_incidents_of_the_last_day_are_on_the_overview_and_on_their_servers_page(
    seen: None, charlie: User, signed_in: Any
) -> None:
    profile, client, now = pages.profile("Daily"), signed_in(charlie), timezone.now()
    values = {"profile": profile, "server": "Daily", "kind": Incident.Kind.CRASH, "first_at": now}
    Incident.objects.create(title="It fell.", last_at=now - timedelta(hours=2), **values)
    Incident.objects.create(title="It fell long ago.", last_at=now - timedelta(days=2), **values)
    text = text_of(client.get(reverse("overview")))
    assert "It fell." in text
    assert "It fell long ago." not in text
    assert "Nothing needs attention." in text
    text = text_of(client.get(reverse("server-detail", args=[profile.pk])))
    assert "It fell long ago." in text
    assert f'{reverse("incidents")}?server={profile.pk}"' in text


def test_running_servers_are_listed(seen: None, charlie: User, signed_in: Any) -> None:
    pages.profile("up", Observed.READY)
    pages.profile("down", Observed.STOPPED)
    rows = signed_in(charlie).get(reverse("overview")).context["running"]
    assert [row["profile"].name for row in rows] == ["up"]


@pytest.mark.parametrize(("seconds", "silent"), [(5, False), (16, True), (None, True)])
def test_an_agent_that_is_not_seen_is_said_on_every_page(
    seconds: int | None, silent: bool, charlie: User, signed_in: Any
) -> None:
    at = timezone.now() - timedelta(seconds=seconds) if seconds is not None else None
    Host.objects.filter(pk=local_host().pk).update(agent_seen_at=at)
    text = text_of(signed_in(charlie).get(reverse("models")))
    assert ("The host agent of" in text) == silent


def test_only_an_admin_sees_the_last_changes(seen: None, alice: User, bob: User, signed_in: Any) -> None:
    record(Actor(bob, "web"), "build.register", pages.build(), after={"path": "/opt/x"})
    assert "build.register" in text_of(signed_in(alice).get(reverse("overview")))
    assert "build.register" not in text_of(signed_in(bob).get(reverse("overview")))


def test_the_audit_shows_what_changed_key_by_key(alice: User, signed_in: Any) -> None:
    before = {"name": "Qwen", "port": 8080, "settings": {"ctx_size": 4096, "threads": 8}}
    after = {"name": "Qwen", "port": None, "settings": {"ctx_size": 8192, "threads": 8}}
    record(Actor(alice, "web"), "profile.change", pages.profile(), before, after)
    answer = signed_in(alice).get(reverse("audit"))
    assert answer.context["rows"][0]["changes"] == [
        {"key": "port", "before": "8080", "after": None},
        {"key": "settings.ctx_size", "before": "4096", "after": "8192"},
    ]
    assert "<del>4096</del> <ins>8192</ins>" in text_of(answer)


def test_the_audit_has_pages_of_fifty_newest_first_and_a_filter(alice: User, signed_in: Any) -> None:
    build, actor, client = pages.build("mainline"), Actor(alice, "web"), signed_in(alice)
    for number in range(51):
        record(actor, "build.probe", build, after={"number": number})
    record(actor, "model.register", pages.model("special"))
    first = client.get(reverse("audit")).context["rows"]
    assert (len(first), first[0]["entry"].action) == (50, "model.register")
    assert len(client.get(reverse("audit"), {"page": 2}).context["rows"]) == 2
    assert len(client.get(reverse("audit"), {"q": "spec"}).context["rows"]) == 1
    assert "Nothing matches" in text_of(client.get(reverse("audit"), {"q": "absent"}))


def replaced(html: str) -> list[str]:
    """The ids of the elements that a live message puts in place of those on the page."""
    return re.findall(r'<[^>]*\bid="([^"]+)"[^>]*\bhx-swap-oob="true"', html)


def test_every_topic_renders_parts_that_its_page_has(seen: None, bob: User, signed_in: Any) -> None:
    profile = pages.profile(observed=Observed.READY)
    pages.run_of(profile)
    client = signed_in(bob)
    for name, args in (
        ("overview", []),
        ("servers", []),
        ("server-detail", [profile.pk]),
        ("builds", []),
        ("build-detail", [profile.build.pk]),
        ("models", []),
        ("model-detail", [profile.model.pk]),
        ("profiles", []),
        ("activity", []),
    ):
        answer = client.get(reverse(name, args=args))
        page = text_of(answer)
        assert f'ws-connect="/ws/?topics={answer.context["topics"]},gpus:strip"' in page
        for subscription in live.subscriptions(answer.context["topics"]):
            assert subscription.topic.allowed(bob, subscription.arg)
            ids = replaced(subscription.topic.render("operator", subscription.arg))
            assert ids
            assert [element for element in ids if page.count(f'id="{element}"') != 1] == []


def test_a_live_part_has_the_buttons_of_its_reader(bob: User, charlie: User) -> None:
    profile = pages.profile()
    topic = live.subscriptions("servers")[0].topic
    start = reverse("server-start", args=[profile.pk])
    assert start in topic.render("operator", "")
    assert start not in topic.render("viewer", "")


def test_a_topic_of_a_row_that_is_gone_renders_nothing(bob: User) -> None:
    for name in ("server:99", "build:99"):
        subscription = live.subscriptions(name)[0]
        assert subscription.topic.render("operator", subscription.arg) == ""


def test_an_account_without_a_role_may_follow_nothing(dora: User) -> None:
    found = live.subscriptions("overview,servers,server:1,builds,build:1,models,jobs")
    assert [item for item in found if item.topic.allowed(dora, item.arg)] == []


@pytest.mark.parametrize(("free", "said"), [(99, True), (100, False)])
def test_a_disk_with_less_than_a_tenth_left_needs_attention(
    free: int, said: bool, seen: None, charlie: User, signed_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gib = 1024**3
    monkeypatch.setattr(
        hostlink.shutil, "disk_usage", lambda _path: SimpleNamespace(total=1000 * gib, free=free * gib)
    )
    text = text_of(signed_in(charlie).get(reverse("overview")))
    assert ("has 99.0 GiB left (9 %)" in text) == said


def test_a_profile_newer_than_its_running_server_needs_attention(
    seen: None, charlie: User, signed_in: Any
) -> None:
    pages.profile("Daily", Observed.READY, {"revision": 1}, revision=2)
    pages.profile("Resting", Observed.STOPPED, {"revision": 1}, revision=2)
    outdated = signed_in(charlie).get(reverse("overview")).context["outdated"]["rows"]
    assert [instance.profile.name for instance in outdated] == ["Daily"]


def test_many_of_one_trouble_are_counted_and_lead_to_the_list(
    seen: None, charlie: User, signed_in: Any
) -> None:
    for number in range(10):
        pages.build(f"broken {number}", state=Build.State.FAILED)
    text = text_of(signed_in(charlie).get(reverse("overview")))
    assert f'<a href="{reverse("builds")}?state=failed">and 2 more</a>' in text
