"""Answers: one claimant per turn, what is kept, and an end in words for everything that goes wrong."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection
from django.utils import timezone

from servers.models import Instance, ServerProfile, Turn
from servers.services import conversations as service
from servers.services.claims import Text, claim_turn
from servers.services.turns import Ended, Kept, Stored, TurnEvent, stream_turn
from tests.chat import Fake, ask, events_of, fake_server, now, ready_profile, stream, text_of
from tests.fakes.llama_flags import REPLY
from tests.waiting import async_wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    """A stand-in for llama-server."""
    with fake_server(tmp_path) as server:
        yield server


@pytest.fixture
def profile(fake: Fake) -> ServerProfile:
    """A profile whose ready server is the stand-in."""
    return ready_profile(fake.port)


@pytest.fixture
def idle_profile() -> ServerProfile:
    """A profile that counts as ready, for tests that never ask it."""
    return ready_profile(9)


# Claims


def test_twenty_claims_at_once_give_one_claimant(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    won: list[bool] = []
    barrier = threading.Barrier(20)

    def claim() -> None:
        barrier.wait(30)
        won.append(claim_turn(turn.pk) is not None)
        connection.close()

    threads = [threading.Thread(target=claim) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(won) == [False] * 19 + [True]
    assert now(turn).attempt == 1


def test_two_streams_at_once_make_one_request_and_show_the_same_text(
    fake: Fake, profile: ServerProfile
) -> None:
    fake.behave(token_delay=0.1)
    turn = ask(profile)

    async def both() -> tuple[list[TurnEvent], list[TurnEvent]]:
        return await asyncio.gather(events_of(turn), events_of(turn))

    first, second = async_to_sync(both)()
    claimant, follower = (first, second) if text_of(first) else (second, first)
    assert text_of(claimant) == now(turn).answer == REPLY
    assert not text_of(follower) and follower[-1] == Ended(turn.pk)
    assert any(isinstance(event, Stored) for event in follower)
    assert len(fake.requests()) == 1


def test_a_heartbeat_older_than_ten_seconds_ends_the_turn_as_interrupted(
    idle_profile: ServerProfile,
) -> None:
    turn = ask(idle_profile)
    assert claim_turn(turn.pk)
    service.end_stale_turns(turn.conversation)
    assert now(turn).state == Turn.State.STREAMING
    Turn.objects.update(updated_at=timezone.now() - timedelta(seconds=11), answer="a part")
    assert stream(turn) == [Ended(turn.pk)]
    found = now(turn)
    assert (found.state, found.answer) == (Turn.State.STOPPED, "a part")
    assert "interrupted" in found.error
    assert service.ask_in_conversation(found.conversation, "again").position == 2


def test_a_claimant_that_lost_its_turn_stops_and_writes_nothing(fake: Fake, profile: ServerProfile) -> None:
    fake.behave(token_delay=0.2)
    turn = ask(profile)

    async def scenario() -> None:
        events = stream_turn(turn.pk)
        await anext(events)
        await Turn.objects.filter(pk=turn.pk).aupdate(state=Turn.State.STOPPED, error="by somebody else")
        async with asyncio.timeout(10):
            assert [event async for event in events][-1] == Ended(turn.pk)

    async_to_sync(scenario)()
    assert (now(turn).state, now(turn).error) == (Turn.State.STOPPED, "by somebody else")
    assert now(turn).answer != REPLY
    assert [entry["end"] for entry in fake.requests()] == ["cancelled"]


# The answer


def test_the_first_word_comes_at_once_and_the_text_is_stored(fake: Fake, profile: ServerProfile) -> None:
    fake.behave(token_delay=0.1, draft=10, accepted=7)
    turn = ask(profile)
    events = stream(turn)
    assert next(event for event in events if isinstance(event, Text)).answer == REPLY.split()[0]
    found = now(turn)
    assert text_of(events) == found.answer == REPLY and found.state == Turn.State.DONE
    assert found.timings["acceptance"] == 0.7 and found.timings["finish_reason"] == "stop"
    assert 0 < found.timings["first_token_s"] < 5 and "measured" not in found.timings
    [entry] = fake.requests()
    assert "x-conversation-id" not in {name.lower() for name in entry["headers"]}
    assert entry["headers"]["Authorization"].startswith("Bearer ")


def test_earlier_turns_are_sent_along(fake: Fake, profile: ServerProfile) -> None:
    turn = ask(profile, "one")
    stream(turn)
    second = service.ask_in_conversation(turn.conversation, "two")
    stream(second)
    assert [(m["role"], m["content"]) for m in fake.bodies()[-1]["messages"]] == [
        ("user", "one"),
        ("assistant", REPLY),
        ("user", "two"),
    ]


async def leave(events: AsyncGenerator[TurnEvent], how: str) -> None:
    """Read the first text, then leave as a closed tab does: between two events, or while waiting for one."""
    async for event in events:
        if isinstance(event, Text):
            break
    if how == "waiting":
        task = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await events.aclose()


@pytest.mark.parametrize("how", ["waiting", "between"])
def test_a_closed_page_ends_the_request_and_keeps_the_part(
    fake: Fake, profile: ServerProfile, how: str
) -> None:
    fake.behave(token_delay=0.5)
    turn = ask(profile)

    async def scenario() -> None:
        await leave(stream_turn(turn.pk), how)

        async def cancelled() -> bool:
            return (await asyncio.to_thread(fake.requests))[0]["end"] == "cancelled"

        await async_wait_for(cancelled, 5, "the end of the request")

    async_to_sync(scenario)()
    found = now(turn)
    assert found.state == Turn.State.STOPPED
    assert found.answer and REPLY.startswith(found.answer) and found.answer != REPLY


def test_a_stop_from_another_page_is_noticed(fake: Fake, profile: ServerProfile) -> None:
    fake.behave(token_delay=0.5)
    turn = now(ask(profile))

    async def scenario() -> float:
        events = stream_turn(turn.pk)
        async for event in events:
            if isinstance(event, Text):
                break
        await sync_to_async(service.request_stop)(turn)
        began = time.monotonic()
        assert [event async for event in events][-1] == Ended(turn.pk)
        return time.monotonic() - began

    assert async_to_sync(scenario)() < 5
    found = now(turn)
    assert (found.state, found.error, found.stop_requested) == (Turn.State.STOPPED, "", False)
    assert found.timings["measured"] and found.timings["predicted_n"] == len(found.answer.split())
    assert REPLY.startswith(found.answer) and found.answer


def test_a_turn_that_waits_is_stopped_at_once(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    service.request_stop(turn)
    assert now(turn).state == Turn.State.STOPPED
    assert stream(turn) == [Ended(turn.pk)]


def test_continue_sends_the_kept_part_and_appends(fake: Fake, profile: ServerProfile) -> None:
    turn = ask(profile)
    Turn.objects.update(state=Turn.State.STOPPED, answer="Kept, ", error="why")
    service.continue_turn(now(turn))
    assert now(turn).state == Turn.State.PENDING
    events = stream(turn)
    assert text_of(events) == REPLY and events[0] == Kept("Kept, ")
    assert (now(turn).answer, now(turn).error) == (f"Kept, {REPLY}", "")
    assert fake.bodies()[0]["messages"][-1] == {"role": "assistant", "content": "Kept, "}


def test_regenerate_clears_the_answer(fake: Fake, profile: ServerProfile) -> None:
    turn = ask(profile)
    Turn.objects.update(state=Turn.State.FAILED, answer="old", reasoning="old", error="why")
    service.regenerate_turn(now(turn))
    stream(turn)
    assert (now(turn).answer, now(turn).reasoning, now(turn).state) == (REPLY, "", Turn.State.DONE)


def test_the_conversation_s_settings_are_sent_and_no_others(fake: Fake, profile: ServerProfile) -> None:
    Instance.objects.update(facts={"n_ctx": 4096})
    turn = ask(profile)
    stream(turn)
    service.set_sampling(turn.conversation, {"temperature": 0.0, "max_tokens": 3, "system": "be brief"})
    second = service.ask_in_conversation(turn.conversation, "two")
    stream(second)
    plain, asked = fake.bodies()
    assert asked["messages"][0] == {"role": "system", "content": "be brief"}
    assert (asked["temperature"], asked["max_tokens"]) == (0.0, 3)
    assert set(asked) - set(plain) == {"temperature", "max_tokens"}
    assert now(second).answer == "This reply comes" and now(second).timings["n_ctx"] == 4096


def test_the_answer_is_stored_as_html_too(fake: Fake, profile: ServerProfile) -> None:
    fake.behave(reply="**bold** <b>")
    turn = ask(profile)
    stream(turn)
    found = now(turn)
    assert found.answer == "**bold** <b>"
    assert found.answer_html == "<p><strong>bold</strong> &lt;b&gt;</p>\n"


def test_a_conversation_deleted_meanwhile_ends_its_request(fake: Fake, profile: ServerProfile) -> None:
    fake.behave(token_delay=0.3)
    turn = now(ask(profile))

    async def scenario() -> None:
        events = stream_turn(turn.pk)
        await anext(events)
        await sync_to_async(service.delete_conversation)(turn.conversation)
        async with asyncio.timeout(10):
            assert [event async for event in events][-1] == Ended(turn.pk)

    async_to_sync(scenario)()
    assert [entry["end"] for entry in fake.requests()] == ["cancelled"]


# What goes wrong


@pytest.mark.parametrize(
    ("flags", "words", "answer"),
    [
        ({"error_before": 503}, "still loading", ""),
        ({"error_before": 500}, "The server said: something is wrong", ""),
        ({"error_after": 3}, "The server said: something is wrong", "This reply comes"),
        ({"drop_after": 3}, "connection to the server broke", "This reply comes"),
    ],
    ids=["loading", "error status", "error event", "closed in the middle"],
)
def test_an_answer_that_fails_keeps_its_part_and_says_why(
    fake: Fake, profile: ServerProfile, flags: dict[str, int], words: str, answer: str
) -> None:
    fake.behave(**flags)
    turn = ask(profile)
    assert stream(turn)[-1] == Ended(turn.pk)
    found = now(turn)
    assert (found.state, found.answer) == (Turn.State.FAILED, answer) and words in found.error
    assert len(fake.requests()) == 1


def test_a_server_that_is_not_ready_is_named(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    Instance.objects.update(observed=Instance.Observed.STOPPED)
    stream(turn)
    assert now(turn).state == Turn.State.FAILED and "Tiny is stopped" in now(turn).error


def read_request(peer: socket.socket) -> None:
    """Read a request to its end: closing with a part unread would reset the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += peer.recv(65536)
    head, body = data.split(b"\r\n\r\n", 1)
    left = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]) - len(body)
    while left > 0:
        left -= len(peer.recv(65536))


@contextmanager
def closing_server(answer: Callable[[int], bytes]) -> Iterator[tuple[int, list[int]]]:
    """Answers the n-th connection with the bytes and closes it; yields port and connections so far."""
    seen: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with peer:
                        read_request(peer)
                        seen.append(len(seen) + 1)
                        peer.sendall(answer(len(seen)))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], seen
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


STREAMED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    b'data: {"choices":[{"delta":{"content":"second try"}}]}\n\ndata: [DONE]\n\n'
)


def test_a_connection_that_breaks_before_any_byte_is_tried_once_more() -> None:
    with closing_server(lambda number: STREAMED if number == 2 else b"") as (port, seen):
        turn = ask(ready_profile(port))
        stream(turn)
        assert (now(turn).state, now(turn).answer) == (Turn.State.DONE, "second try")
        assert seen == [1, 2]


def test_a_connection_that_breaks_twice_fails_in_words() -> None:
    with closing_server(lambda number: b"") as (port, seen):
        turn = ask(ready_profile(port))
        stream(turn)
        assert now(turn).state == Turn.State.FAILED and "broke" in now(turn).error
        assert seen == [1, 2]


def test_an_answer_without_its_end_is_failed_and_kept() -> None:
    with closing_server(lambda number: STREAMED.removesuffix(b"data: [DONE]\n\n")) as (port, seen):
        turn = ask(ready_profile(port))
        stream(turn)
        assert (now(turn).state, now(turn).answer) == (Turn.State.FAILED, "second try")
        assert "before the answer was complete" in now(turn).error and seen == [1]
