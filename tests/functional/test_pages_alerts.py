"""The pages of alerts: who sees and changes what, and that a secret never comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs import live
from jobs.models import Alert, AlertChannel, AlertRule, AuditEntry, Notice
from tests.fakes.receivers import Answer, Hook
from tests.functional.alerting import channel, rule
from tests.functional.forms import Form

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
PATH = "/hooks/T00012345/abcdefGHIJKL-wxyz"


@pytest.fixture
def hook(settings: Any) -> Iterator[Hook]:
    with Hook() as server:
        settings.PANEL_PRIVATE_HOSTS = server.host
        yield server


def text_of(answer: Any) -> str:
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def alerts_page(client: Client) -> str:
    return text_of(client.get(reverse("alerts")))


def test_an_admin_adds_tests_changes_and_deletes_a_channel_whose_address_stays_hidden(
    alice: User, signed_in: SignIn, hook: Hook
) -> None:
    client, new = signed_in(alice), reverse("alert-channel-new")
    assert "No channel is kept" in alerts_page(client)
    assert "?kind=slack" in text_of(client.get(new))
    form = Form(text_of(client.get(f"{new}?kind=webhook")), "alert-channel")
    refused = client.post(
        f"{new}?kind=webhook", {**form.values, "name": "Ops", "secret": f"http://10.0.0.1{PATH}"}
    )
    assert "PANEL_PRIVATE_HOSTS" in text_of(refused)
    assert "abcdefGHIJKL" not in text_of(refused)
    entered = {**form.values, "name": "Ops", "secret": f"{hook.url}{PATH}"}
    seen = [text_of(client.post(f"{new}?kind=webhook", entered, follow=True))]
    assert "The channel Ops is kept." in seen[0]
    assert "127.0.0.1 · ends in …wxyz" in seen[0]
    short = {**form.values, "name": "Short", "secret": f"{hook.url}/notices/send?key=s3cr3t"}
    assert "cr3t" not in text_of(client.post(f"{new}?kind=webhook", short, follow=True))
    AlertChannel.objects.get(name="Short").delete()
    assert "There is already a channel" in text_of(client.post(f"{new}?kind=webhook", entered))
    row = AlertChannel.objects.get()
    hook.answers.append(Answer(401, body="who are you?"))
    test = reverse("alert-channel-test", args=[row.pk])
    seen.append(text_of(client.post(test, follow=True)))
    assert "was not sent: 127.0.0.1 answers with an error (401): who are you?" in seen[1]
    seen.append(text_of(client.post(test, follow=True)))
    assert "The test to Ops was sent." in seen[2]
    assert [body["state"] for _path, body in hook.seen] == ["test", "test"]
    edit = reverse("alert-channel-edit", args=[row.pk])
    seen.append(text_of(client.get(edit)))
    kept = {"name": "Ops 2", "secret": "", "language": "zh-hant", "enabled": "on"}
    seen.append(text_of(client.post(edit, kept, follow=True)))
    assert client.post(test).status_code == 302
    assert hook.seen[2][0] == PATH
    seen.append(text_of(client.get(reverse("audit"))))
    delete = client.post(reverse("alert-channel-delete", args=[row.pk]), headers={"HX-Request": "true"})
    assert delete["HX-Redirect"] == reverse("alerts")
    seen += [str(entry) + str(entry.before) + str(entry.after) for entry in AuditEntry.objects.all()]
    actions = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
    assert actions[0] == "alert_channel.add"
    assert actions[-1] == "alert_channel.delete"
    for part in ("abcdefGHIJKL", "T00012345", "gAAAA"):
        assert not any(part in text for text in seen)


def test_an_operator_makes_and_changes_a_rule_within_its_bounds(bob: User, signed_in: SignIn) -> None:
    told = channel(kind="email", target="ann@example.com")
    client, new = signed_in(bob), reverse("alert-rule-new")
    page = alerts_page(client)
    assert "There is no rule" in page
    assert "ann@example.com" not in page, "channels are seen by admins only"
    assert "?kind=crash_loop" in text_of(client.get(new))
    form = Form(text_of(client.get(f"{new}?kind=gpu_hot")), "alert-rule")
    values = {**form.values, "channels": [told.pk]}
    assert (values["threshold"], values["hold_s"]) == ("85", "60")
    client.post(f"{new}?kind=gpu_hot", {**values, "threshold": "nan"})
    assert not AlertRule.objects.exists()
    assert "Enter a number from 30 to 120." in text_of(
        client.post(f"{new}?kind=gpu_hot", {**values, "threshold": "900"})
    )
    page = text_of(client.post(f"{new}?kind=gpu_hot", {**values, "threshold": "80.5"}, follow=True))
    assert "The rule “GPU hotter than 80.5 °C” is kept." in page
    row = AlertRule.objects.get()
    edit = reverse("alert-rule-edit", args=[row.pk])
    assert 'value="80.5"' in text_of(client.get(edit))
    client.post(edit, {"threshold": "70", "hold_s": "5", "cooldown_min": "1", "only": "3090"})
    row.refresh_from_db()
    assert (row.threshold, row.hold_s, row.only, row.enabled) == (70, 5, "3090", False)
    change = AuditEntry.objects.get(action="alert_rule.change")
    assert change.before is not None and change.before["channels"] == "email channel"
    text_of(client.get(f"{new}?kind=build_failed"))
    client.post(reverse("alert-rule-delete", args=[row.pk]))
    assert not AlertRule.objects.exists()


def test_a_viewer_sees_what_fires_here_and_on_the_overview(charlie: User, signed_in: SignIn) -> None:
    client = signed_in(charlie)
    assert "Nothing is watched yet." in alerts_page(client)
    kept, told = rule("gpu_hot", threshold=85), channel(kind="email", target="ann@example.com")
    begun: dict[str, Any] = {"rule": kept, "kind": "gpu_hot", "since": timezone.now(), "title": "Too hot"}
    alert = Alert.objects.create(**begun, subject="a", label="GPU <b>0</b>", value="91 °C", state="firing")
    Alert.objects.create(
        **begun,
        subject="b",
        label="GPU 1",
        value="90 °C",
        end_value="60 °C",
        state="resolved",
        resolved_at=timezone.now(),
    )
    failed = {"state": "failed", "error": "mail.test says no", "attempts": 2, "due_at": timezone.now()}
    Notice.objects.create(alert=alert, channel=told, kind="firing", **failed)
    page = client.get(reverse("alerts")).content.decode()
    assert "Firing now" in page
    assert "GPU &lt;b&gt;0&lt;/b&gt;" in page
    assert "mail.test says no" in page
    assert "90 °C → 60 °C" in page
    assert "ann@example.com" not in page
    assert reverse("alert-rule-edit", args=[kept.pk]) not in page
    assert "91 °C" in text_of(client.get(reverse("overview")))
    found = live.subscriptions("alerts")[0]
    assert "ann@example.com" not in found.topic.render("viewer", "")
    assert "ann@example.com" in found.topic.render("admin", "")
