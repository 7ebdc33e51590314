"""The question before a stop: how many requests are in flight, asked of the server at that moment."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from servers.domain.facts import busy_slots
from servers.models import Instance
from tests.engines import free_port
from tests.functional import pages

pytestmark = pytest.mark.django_db
PLAIN = "Stop the server Qwen?"
UNKNOWN = "The server does not say whether requests are in flight"


class Slots(BaseHTTPRequestHandler):
    """Answers /slots with what the server holds, or not at all for longer than the panel waits."""

    server: Any

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        if self.server.answer is None:
            self.server.release.wait(30)
            return
        body = json.dumps(self.server.answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test reads what was asked."""


@pytest.fixture
def slots() -> Iterator[Any]:
    """A server whose /slots a test sets."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Slots)
    server.daemon_threads = True
    server.answer, server.status, server.asked, server.release = [], 200, [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    server.server_close()


def question(client: Any, profile: Any, do: str = "stop") -> str:
    answer = client.get(reverse("server-question", args=[profile.pk]), {"do": do})
    assert answer["Content-Type"].startswith("text/plain")
    return str(answer.content.decode())


def ready(port: int, observed: str = Instance.Observed.READY) -> Any:
    profile = pages.profile(observed=observed, instance={"port": port})
    pages.run_of(profile)
    return profile


@pytest.mark.parametrize(
    ("busy", "words"),
    [
        (0, PLAIN),
        (1, "1 request is in flight."),
        (3, "3 requests are in flight."),
    ],
)
def test_the_question_names_the_requests_in_flight(
    busy: int, words: str, slots: Any, bob: User, signed_in: Any
) -> None:
    slots.answer = [{"id": number, "is_processing": number < busy} for number in range(4)]
    profile = ready(slots.server_port)
    assert words in question(signed_in(bob), profile)
    [(path, key)] = slots.asked
    assert path == "/slots"
    assert key.startswith("Bearer ")
    assert question(signed_in(bob), profile, "restart").startswith("Restart the server Qwen?")


@pytest.mark.parametrize("answer", [{"error": "off"}, [], ["x"], [{"id": 1}], [{"is_processing": 1}]])
def test_an_answer_that_does_not_tell_is_said_so(answer: Any, slots: Any, bob: User, signed_in: Any) -> None:
    slots.answer = answer
    assert UNKNOWN in question(signed_in(bob), ready(slots.server_port))


def test_a_server_without_slots_is_unknown(slots: Any, bob: User, signed_in: Any) -> None:
    slots.answer, slots.status = [{"is_processing": False}], 501
    assert UNKNOWN in question(signed_in(bob), ready(slots.server_port))


def test_a_server_that_hangs_is_unknown_within_a_second_or_two(slots: Any, bob: User, signed_in: Any) -> None:
    slots.answer = None
    client, profile = signed_in(bob), ready(slots.server_port, Instance.Observed.UNRESPONSIVE)
    began = time.monotonic()
    assert UNKNOWN in question(client, profile)
    assert time.monotonic() - began < 5


def test_a_server_that_is_gone_is_unknown(bob: User, signed_in: Any) -> None:
    assert UNKNOWN in question(signed_in(bob), ready(free_port()))


def test_a_server_that_loads_cannot_have_requests(slots: Any, bob: User, signed_in: Any) -> None:
    assert question(signed_in(bob), ready(slots.server_port, Instance.Observed.LOADING)) == PLAIN
    assert slots.asked == []


def test_the_buttons_ask_at_the_moment_of_the_click(slots: Any, bob: User, signed_in: Any) -> None:
    profile = ready(slots.server_port)
    for address in (reverse("servers"), reverse("server-detail", args=[profile.pk])):
        text = signed_in(bob).get(address).content.decode()
        assert f'data-ask="{reverse("server-question", args=[profile.pk])}?do=stop"' in text
        assert f'hx-confirm="{PLAIN}"' in text
    assert slots.asked == []


def test_slots_are_counted_only_when_each_tells() -> None:
    assert busy_slots([{"is_processing": True}, {"is_processing": False}]) == 1
    assert busy_slots([{"is_processing": True}, {}]) is None
