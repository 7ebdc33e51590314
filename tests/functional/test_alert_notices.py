"""Notices on their way to a real web service and a real mail server, and what becomes of those that fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from django.utils import timezone

from controlpanel.lib.env import PublicUrl
from controlpanel.lib.errors import Refused
from controlpanel.lib.sealed import seal
from controlpanel.lib.text import Message
from controlpanel.lib.words import stored
from jobs.adapters import notify
from jobs.adapters.addresses import Guard
from jobs.models import Alert, AlertChannel, AuditEntry, Notice
from jobs.services import alert_channels, alert_notices
from jobs.views.alert_rows import channels_context
from tests.fakes.receivers import Answer, Hook, Mail
from tests.functional.alerting import CLI, channel, notices, send_all
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db

PATH = "/services/T00012345/abcdefGHIJKLmnop"
TOKEN = "123456789:AAbbCCddEEff-GGhh_IIjjKK"


@pytest.fixture
def hook(settings: Any) -> Iterator[Hook]:
    """A web service that an admin has listed."""
    with Hook() as server:
        settings.PANEL_PRIVATE_HOSTS = server.host
        yield server


def alert(**fields: Any) -> Alert:
    values = {
        "kind": "gpu_hot",
        "title": stored(Message("GPU hotter than %(limit)s °C", {"limit": "85"})),
        "subject": "local gpu:GPU-1",
        "label": "GPU 0 <@here> · this machine",
        "state": "firing",
        "value": stored(Message("%(degrees)s °C", {"degrees": 91})),
        "since": timezone.now(),
    }
    return Alert.objects.create(**{**values, **fields})


def tell(to: AlertChannel, *kinds: str) -> list[Notice]:
    row = alert(resolved_at=timezone.now(), end_value=stored(Message("%(degrees)s °C", {"degrees": 70})))
    return [Notice.objects.create(alert=row, channel=to, kind=kind, due_at=timezone.now()) for kind in kinds]


def test_each_kind_of_channel_gets_its_own_form(
    hook: Hook, settings: Any, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(alert_channels, "TELEGRAM", hook.url)
    for kind in ("webhook", "slack", "discord"):
        tell(channel(f"{hook.url}{PATH}", kind), "firing", "resolved")
    tell(channel(TOKEN, "telegram", target="@ops", language="zh-hant"), "firing")
    send_all()
    assert notices() == [f"{kind} sent" for kind in ("firing", "resolved") * 3] + ["firing sent"]
    values = [body for path, body in hook.seen if path == PATH]
    program = [body for body in values if "rule" in body]
    assert [body["state"] for body in program] == ["firing", "resolved"]
    assert program[0]["subject"] == {"key": "local gpu:GPU-1", "label": "GPU 0 <@here> · this machine"}
    assert (program[0]["value"], program[1]["value"]) == ("91 °C", "70 °C")
    assert program[0]["resolved_at"] is None
    assert program[1]["resolved_at"].startswith(program[1]["since"][:10])
    assert [body["text"].split("]")[0] for body in values if set(body) == {"text"}] == ["[Alert", "[Resolved"]
    assert sum("allowed_mentions" in body for body in values) == 2
    telegram = [body for path, body in hook.seen if path == f"/bot{TOKEN}/sendMessage"]
    assert [body["chat_id"] for body in telegram] == ["@ops"]
    send_all()
    assert len(hook.seen) == 7, "each once"
    with django_assert_num_queries(4):  # whatever the number of channels
        rows = channels_context()["channels"]
    assert [row["last"]["notice"].state for row in rows] == ["sent"] * 4


def test_a_failure_is_tried_again_in_order_and_at_last_kept_in_words(hook: Hook) -> None:
    first, second = tell(channel(f"{hook.url}{PATH}"), "firing", "resolved")
    never = {"Retry-After": "Fri, 31 Dec 9999 23:59:59 -0100"}  # no moment that can be counted with
    hook.answers += [Answer(503, never), Answer(429, {"Retry-After": "77"}, "slow down")]
    send_all()
    assert notices() == ["firing pending", "resolved pending"]
    first.refresh_from_db()
    second.refresh_from_db()
    assert first.attempts == 1
    assert second.attempts == 0
    assert second.due_at >= first.due_at > timezone.now() + timedelta(seconds=8)
    alert_notices.send_channel(first.channel_id)
    assert len(hook.seen) == 1, "not before its time"
    send_all()
    first.refresh_from_db()
    assert first.due_at > timezone.now() + timedelta(seconds=70), "the service asked for 77 s"
    assert first.error_text == f"{hook.host.split(':')[0]} answers with an error (429): slow down"
    send_all()
    assert notices() == ["firing sent", "resolved sent"]
    states = [body["state"] for _path, body in hook.seen]
    assert states == ["firing", "firing", "firing", "resolved"]
    # News that are a day old are not tried again, so that a long outage does not last longer for the next.
    stale, fresh = tell(AlertChannel.objects.get(), "firing", "resolved")
    Notice.objects.filter(pk=stale.pk).update(created_at=timezone.now() - timedelta(days=1))
    hook.answers.append(Answer(503))
    send_all()
    assert notices()[-2:] == ["firing failed", "resolved sent"]
    # At the last of its tries it is given up and kept.
    (last,) = tell(AlertChannel.objects.get(), "firing")
    Notice.objects.filter(pk=last.pk).update(attempts=8)
    hook.answers.append(Answer(500, body=""))
    send_all()
    last.refresh_from_db()
    assert (last.state, last.error_text) == (
        "failed",
        "127.0.0.1 answers with an error (500) and says nothing more.",
    )


def test_what_another_try_cannot_mend_fails_at_once_and_repeats_no_secret(
    hook: Hook, caplog: pytest.LogCaptureFixture, alice: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    to = channel(f"{hook.url}{PATH}")
    hook.answers += [
        Answer(404, body=f"Cannot POST {PATH}\n" + "x" * 100_000),
        Answer(302, {"Location": "http://127.0.0.1:1/"}),
        Answer(403, body="abcdefghijklMNOP is revoked"),
    ]
    said = [alert_notices.send_test(CLI, to) for _ in range(3)]
    assert [row.state for row in said] == ["failed"] * 3
    assert said[0].error_text.startswith("127.0.0.1 answers with an error (404): Cannot POST …")
    assert "(302), which is not followed" in said[1].error_text
    assert said[2].error_text.endswith("(403): … is revoked")
    assert len(hook.seen) == 3
    kept = [*Notice.objects.values_list("error", flat=True), *map(str, AuditEntry.objects.values())]
    for text in (*kept, caplog.text, *map(str, AlertChannel.objects.values())):
        assert "abcdefghijkl" not in text.lower()
        assert "T00012345" not in text


def test_the_rule_of_private_hosts_holds_when_it_is_kept_and_when_it_is_sent(
    hook: Hook, settings: Any
) -> None:
    to = channel(f"{hook.url}{PATH}")
    assert alert_notices.send_test(CLI, to).state == "sent"
    settings.PANEL_PRIVATE_HOSTS = ""
    assert alert_notices.send_test(CLI, to).state == "failed"
    sealed = {"kind": "webhook", "host": "localhost"}
    address = f"https://localhost:{hook.server_address[1]}{PATH}"
    named = AlertChannel.objects.create(
        name="by a name", secret=seal(alert_channels.PURPOSE, address), **sealed
    )
    said = alert_notices.send_test(CLI, named)
    assert "localhost is a private address" in said.error_text
    assert len(hook.seen) == 1
    for address in (hook.url, "https://10.0.0.1/hook", "https://169.254.169.254/", "file:///etc/passwd"):
        with pytest.raises(Refused) as caught:
            channel(address, name="refused")
        assert caught.value.field == "secret"


def test_no_name_no_answer_and_a_slow_answer_are_told_apart(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(notify, "DEADLINE", 0.3)
    hook.answers.append(Answer(slow=0.6))
    slow = alert_notices.send_test(CLI, channel(f"{hook.url}{PATH}"))
    assert slow.error_text.startswith("127.0.0.1 did not answer within")
    settings.PANEL_PRIVATE_HOSTS += ",127.0.0.1:1"
    closed = alert_notices.send_test(CLI, channel("http://127.0.0.1:1/abcdefgh", name="closed"))
    assert "127.0.0.1 could not be reached" in closed.error_text
    assert "abcdefgh" not in closed.error_text
    away = alert_notices.send_test(CLI, channel("https://nothing.invalid/hook", name="away"))
    assert "nothing.invalid could not be reached" in away.error_text
    # A name or a first address that takes all the time leaves none for a connection after it.
    found = Guard.addresses

    def late(self: Guard, host: str, port: int) -> list[str]:
        Event().wait(0.4)
        return found(self, host, port)

    monkeypatch.setattr(Guard, "addresses", late)
    hook.answers.append(Answer(slow=0.25))
    slow = alert_notices.send_test(CLI, channel(f"{hook.url}{PATH}", name="late"))
    assert slow.error_text.startswith("127.0.0.1 did not answer within")


def test_mail_arrives_or_says_why_not(settings: Any) -> None:
    to = channel(kind="email", target="ann@example.com ben@example.com", language="en")
    assert alert_notices.send_test(CLI, to).error_text.startswith("No mail server is set up")
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    with Mail() as server:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        tell(to, "firing")
        send_all()
        assert alert_notices.send_test(CLI, to).state == "sent"
        receivers, text = server.seen[0]
        assert receivers == ["ann@example.com", "ben@example.com"]
        assert "From: llamacpp-panel@localhost" in text
        # Refused for good by its last receiver, or only for now.
        server.refused = {"ann@example.com": "550 no such user", "ben@example.com": "550 no such user"}
        assert alert_notices.send_test(CLI, to).error_text.endswith("550 no such user")
        server.refused = {"ann@example.com": "451 later", "ben@example.com": "451 later"}
        tell(to, "firing")
        send_all()
        assert notices()[-1] == "firing pending"
    tell(to, "firing")
    send_all()
    assert "could not be reached" in Notice.objects.get(state="pending", attempts=2).error_text


def test_a_notice_whose_sender_died_is_sent_after_its_claim(hook: Hook) -> None:
    (row,) = tell(channel(f"{hook.url}{PATH}"), "firing")
    assert alert_notices.claim(row.pk) is not None
    assert alert_notices.claim(row.pk) is None
    alert_notices.send_channel(row.channel_id)
    assert hook.seen == []
    send_all()
    assert notices() == ["firing sent"]


def test_a_key_that_changed_and_a_channel_that_is_switched_off(hook: Hook) -> None:
    to = channel(f"{hook.url}{PATH}")
    tell(to, "firing")
    off = alert_channels.ChannelData(to.name, "", "", "en", enabled=False)
    alert_channels.change_channel(CLI, to, off)
    assert Notice.objects.get().error_text == "The channel was switched off before this was sent."
    AlertChannel.objects.update(secret="gAAAAA")
    to.refresh_from_db()
    assert "secret key was changed" in alert_notices.send_test(CLI, to).error_text
    assert hook.seen == []


@pytest.mark.django_db(transaction=True)
def test_the_duty_sends_in_threads_so_that_a_slow_channel_delays_no_other(
    hook: Hook, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PANEL_URL = PublicUrl("https", "host", "https://host", "/panel")
    settings.SUB_PATH = "/panel"
    slow, fast = channel(f"{hook.url}/slow"), channel(f"{hook.url}/fast", name="fast")
    hook.answers.append(Answer(slow=0.5))
    tell(slow, "firing")
    alert_notices.send_due()
    wait_for(lambda: hook.seen, 5, "the slow channel to be asked")
    tell(fast, "firing")
    alert_notices.send_due()
    wait_for(lambda: Notice.objects.filter(channel=fast, state="sent").exists(), 5, "the fast channel")
    assert not Notice.objects.filter(channel=slow, state="sent").exists()
    wait_for(lambda: not alert_notices._busy, 5, "the threads to end")
    assert notices() == ["firing sent", "firing sent"]
    assert {body["panel"] for _path, body in hook.seen} == {"https://host/panel/alerts/"}
    # What waits behind a notice that is tried later starts no thread.
    head, _behind = tell(slow, "firing", "resolved")
    Notice.objects.filter(pk=head.pk).update(due_at=timezone.now() + timedelta(hours=1))
    monkeypatch.setattr(alert_notices, "Thread", None)
    alert_notices.send_due()
