"""When an alert opens, closes and is told; and what each kind of channel is sent."""

from __future__ import annotations

import json

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlpanel.lib.env import MailServer, env_smtp
from jobs.domain.alerts import WAITS, Decision, Standing, decide, wait_after
from jobs.domain.alerts_text import Telling, body_of, cut, headline, plain_text, scrubbed

HOLD, COOLDOWN = 30.0, 600.0


def follow(*looks: tuple[float, bool | None]) -> list[str]:
    """Play looks at (time, firing) through and return what was done and told, with its time."""
    standing, happened = Standing(), []
    for now, firing in looks:
        decision = decide(standing, firing, now, HOLD, COOLDOWN)
        is_open = decision.act == "open" or (standing.is_open and decision.act != "close")
        told = is_open and (decision.tell or (standing.told and decision.act != "open"))
        begun = decision.tell and decision.act != "close"
        standing = Standing(decision.met_since, is_open, told, now if begun else standing.told_at)
        if decision.act or decision.tell:
            happened.append(f"{now:g} {decision.act or 'stay'}{' told' if decision.tell else ''}")
    return happened


def test_a_blip_that_is_shorter_than_the_hold_time_does_not_fire() -> None:
    assert follow((0, True), (29, True), (30, False), (35, True), (60, True)) == []


def test_a_condition_that_holds_is_told_once_and_its_end_once() -> None:
    looks = [(0, True), (30, True), (60, True), (5000, True), (5005, False), (5010, False)]
    assert follow(*looks) == ["30 open told", "5005 close told"]


def test_what_is_not_known_neither_fires_nor_resolves() -> None:
    assert follow((0, None), (500, None)) == []
    assert follow((0, True), (30, True), (40, None), (90, None), (95, False)) == [
        "30 open told",
        "95 close told",
    ]
    assert follow((0, True), (40, None)) == [], "not while it is unknown, however long ago it began"


def test_flapping_within_the_cooldown_is_told_once() -> None:
    looks = [(0, True), (30, True), (40, False), (50, True), (80, True), (90, False)]
    assert follow(*looks) == ["30 open told", "40 close told", "80 open", "90 close"]


def test_what_still_fires_after_the_cooldown_is_told_then() -> None:
    looks = [
        (0, True),
        (30, True),
        (40, False),
        (50, True),
        (80, True),
        (625, True),
        (631, True),
        (640, False),
    ]
    assert follow(*looks) == ["30 open told", "40 close told", "80 open", "631 stay told", "640 close told"]


def test_without_a_hold_time_the_first_look_fires() -> None:
    assert decide(Standing(), True, 5.0, 0, 0) == Decision(5.0, "open", True)


def test_tries_are_bounded_and_a_service_may_ask_for_more_time() -> None:
    assert [wait_after(number, None) for number in range(1, len(WAITS) + 2)] == [*WAITS, None]
    assert wait_after(1, 45.0) == 45.0
    assert wait_after(1, 2.0) == WAITS[0]
    assert wait_after(1, 1e9) == 14_400


EVIL = Telling(
    word="Alert",
    title="GPU hotter than 85 °C",
    subject="@everyone <!channel> **x**\r\nBcc: a@b.c",
    value="91 °C & rising",
    time="Since noon.",
    link="https://panel.example/a_b/alerts/",
    facts={"state": "firing"},
)


def sent(kind: str, telling: Telling = EVIL, target: str = "") -> dict[str, object]:
    found: dict[str, object] = json.loads(body_of(kind, telling, target))
    return found


def test_a_subject_line_stays_one_line() -> None:
    assert headline(EVIL) == "[Alert] GPU hotter than 85 °C: @everyone <!channel> **x** Bcc: a@b.c"
    assert len(plain_text(EVIL).split("\n")) == 4


def test_chats_get_no_mention_and_no_markup_out_of_a_name() -> None:
    slack = str(sent("slack")["text"])
    assert "&lt;!channel&gt;" in slack
    assert "<" not in slack
    assert "&amp; rising" in slack
    discord = sent("discord")
    assert discord["allowed_mentions"] == {"parse": []}
    assert r"\*\*x\*\*" in str(discord["content"])
    assert "@everyone" not in str(discord["content"])
    assert str(discord["content"]).endswith("https://panel.example/a_b/alerts/")
    telegram = sent("telegram", target="-100123")
    assert telegram["chat_id"] == "-100123"
    assert "parse_mode" not in telegram
    assert "@everyone" not in str(telegram["text"])


def test_programs_get_values_and_the_address_of_the_panel() -> None:
    found = sent("webhook")
    assert found["state"] == "firing"
    assert found["panel"] == "https://panel.example/a_b/alerts/"
    assert str(found["text"]).startswith("[Alert] GPU hotter")


@pytest.mark.parametrize(("kind", "key", "most"), [("discord", "content", 2000), ("telegram", "text", 4096)])
def test_a_message_is_never_longer_than_a_service_takes(kind: str, key: str, most: int) -> None:
    long = Telling("Alert", "*" * 9000, "😀" * 9000, "@" * 9000, "t" * 9000, "https://panel.example/", {})
    text = str(sent(kind, long)[key])
    assert len(text.encode("utf-16-le")) // 2 <= most
    assert cut("😀😀😀", 4) == "😀…"


SECRET = "https://hooks.example/services/T0001234/B0004567/abcdefGHIJKL?key=s3cr3tvalue"


@pytest.mark.parametrize(
    "answer",
    [
        f"Cannot POST {SECRET}",
        "Cannot POST /services/T0001234/B0004567/abcdefGHIJKL",
        "no such hook: ABCDEFghijkl",
        "<b>&#97;bcdefGHIJKL</b>",
        "key=s3cr3tvalue is wrong",
    ],
)
def test_an_answer_that_repeats_the_address_is_scrubbed(answer: str) -> None:
    said = scrubbed(answer, SECRET)
    for piece in ("abcdefghijkl", "s3cr3tvalue", "t0001234", "b0004567"):
        assert piece not in said.lower()
    assert scrubbed("no_team\n\n" + "x" * 999, SECRET).startswith("no_team xxx")
    assert len(scrubbed("x" * 999, SECRET)) == 160
    assert scrubbed("<html><style>b{}</style><h1>Not&nbsp;found</h1>", SECRET) == "Not found"


def test_a_mail_server_is_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env_smtp("PANEL_TEST_SMTP") is None
    monkeypatch.setenv("PANEL_TEST_SMTP", "smtp+tls://me%40x:p%2Fw@mail.example")
    assert env_smtp("PANEL_TEST_SMTP") == MailServer("mail.example", 587, "me@x", "p/w", "starttls")
    assert "p/w" not in repr(env_smtp("PANEL_TEST_SMTP"))
    monkeypatch.setenv("PANEL_TEST_SMTP", "https://me:p4ssw0rd@mail.example")
    with pytest.raises(ImproperlyConfigured) as caught:
        env_smtp("PANEL_TEST_SMTP")
    assert "p4ssw0rd" not in str(caught.value)
