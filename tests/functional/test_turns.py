"""Chat turns: who may ask what, one claimant per turn, and an end in words for everything that goes wrong."""

import asyncio
import html
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.management import call_command
from django.db import connection
from django.test import AsyncClient, Client
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from controlpanel.lib.errors import Refused
from servers.models import Conversation, Instance, ServerProfile, Turn
from servers.services import conversations as service
from servers.services.turns import Ended, Stored, Text, TurnEvent, claim_turn, stream_turn
from servers.views.turn_stream import CLOSE, sse_frame
from tests.chat import Fake, fake_server, person, ready_profile
from tests.fakes.llama_flags import REPLY
from tests.models import solid_png
from tests.waiting import async_wait_for

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}


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


def signed_in(name: str, role: str = "viewer") -> Client:
    """A client of a new user."""
    client = Client()
    client.force_login(person(name, role))
    return client


def ask(profile: ServerProfile, prompt: str = "hi") -> Turn:
    """A pending turn of a new user's new conversation."""
    return service.ask_in_new_conversation(person(f"user{time.monotonic_ns()}"), profile, prompt)


def now(turn: Turn) -> Turn:
    """The turn as the database has it now."""
    return Turn.objects.select_related("conversation__profile").get(pk=turn.pk)


async def events_of(turn: Turn) -> list[TurnEvent]:
    """All events of a stream."""
    return [event async for event in stream_turn(turn.pk)]


def stream(turn: Turn) -> list[TurnEvent]:
    """All events of a stream, read from sync code (the database work then happens in this thread)."""
    return async_to_sync(events_of)(turn)


def text_of(events: list[TurnEvent]) -> str:
    """The appended texts."""
    return "".join(event.answer for event in events if isinstance(event, Text))


# Asking


@pytest.mark.parametrize(
    ("prompt", "words"),
    [("", "Write a question"), (" \r\n\t", "Write a question"), ("x" * 400_001, "400001 characters")],
    ids=["empty", "blank", "too long"],
)
def test_a_prompt_without_use_is_refused_in_words(
    idle_profile: ServerProfile, prompt: str, words: str
) -> None:
    client = signed_in("charlie")
    answer = client.post(
        reverse("turn-create"), {"profile": idle_profile.slug, "prompt": prompt}, headers=HTMX
    )
    assert answer.status_code == 422 and words in answer.content.decode()
    assert answer["HX-Retarget"] == "#composer-error"
    assert not Conversation.objects.exists()


def test_a_viewer_s_first_question_makes_a_conversation_of_its_own(idle_profile: ServerProfile) -> None:
    client = signed_in("charlie")
    answer = client.post(
        reverse("turn-create"), {"profile": idle_profile.slug, "prompt": "a\r\nb"}, headers=HTMX
    )
    turn = Turn.objects.get()
    assert answer["HX-Redirect"] == reverse("playground-conversation", args=[turn.conversation_id])
    assert (turn.state, turn.prompt, turn.position) == (Turn.State.PENDING, "a\nb", 1)
    assert turn.conversation.user.username == "charlie"


def test_a_second_question_waits_for_the_first_to_end(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    with pytest.raises(Refused, match="still being answered"):
        service.ask_in_conversation(turn.conversation, "more")
    Turn.objects.filter(pk=turn.pk).update(state=Turn.State.DONE)
    second = service.ask_in_conversation(turn.conversation, "more")
    assert second.position == 2


def test_a_conversation_without_its_profile_says_so(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    Turn.objects.update(state=Turn.State.DONE)
    idle_profile.delete()
    conversation = Conversation.objects.get(pk=turn.conversation_id)
    with pytest.raises(Refused, match="was deleted"):
        service.ask_in_conversation(conversation, "more")


@pytest.mark.parametrize("name", ["turn-stop", "turn-continue", "turn-regenerate"])
def test_turns_of_others_are_not_found(idle_profile: ServerProfile, name: str) -> None:
    turn = ask(idle_profile)
    assert signed_in("charlie").post(reverse(name, args=[turn.pk])).status_code == 404
    assert now(turn).state == Turn.State.PENDING


def test_conversations_of_others_are_not_found(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    client = signed_in("alice", "admin")
    assert client.get(reverse("playground-conversation", args=[turn.conversation_id])).status_code == 404
    data = {"conversation": str(turn.conversation_id), "prompt": "hi"}
    assert client.post(reverse("turn-create"), data).status_code == 404


def test_without_a_role_nothing_is_asked(idle_profile: ServerProfile) -> None:
    data = {"profile": idle_profile.slug, "prompt": "hi"}
    assert signed_in("dora", "").post(reverse("turn-create"), data).status_code == 403
    assert Client().post(reverse("turn-create"), data).status_code == 302
    assert not Turn.objects.exists()


# The page


def test_the_picker_lists_ready_servers_first_and_others_disabled_with_their_state() -> None:
    ready_profile(9, "Alpha", Instance.Observed.STOPPED)
    ready_profile(9, "Beta")
    page = signed_in("charlie").get(reverse("playground")).content.decode()
    assert '<option value="beta" selected>Beta · ready</option>' in page
    assert '<option value="alpha" disabled>Alpha · stopped</option>' in page
    assert page.index("Beta · ready") < page.index("Alpha · stopped")


def test_without_a_ready_server_the_page_names_the_next_step() -> None:
    ready_profile(9, "Alpha", Instance.Observed.LOADING)
    page = signed_in("charlie").get(reverse("playground")).content.decode()
    assert "No server is ready" in page and f'href="{reverse("servers")}"' in page
    assert "disabled></textarea>" in page


def test_only_an_unfinished_turn_connects_to_a_stream(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile, "<b>1 & 2</b>")
    client = Client()
    client.force_login(turn.conversation.user)
    address = reverse("playground-conversation", args=[turn.conversation_id])
    page = client.get(address).content.decode()
    assert page.count("sse-connect=") == 1 and "&lt;b&gt;1 &amp; 2&lt;/b&gt;" in page
    Turn.objects.update(state=Turn.State.STOPPED, answer="a part", error="why")
    page = client.get(address).content.decode()
    assert "sse-connect" not in page and "sse-swap" not in page and "a part" in page and "why" in page
    assert "Continue" in page and "Regenerate" in page


def test_the_numbers_of_an_answer_are_one_line(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    numbers = {"prompt_per_second": 512.4, "first_token_s": 0.412, "predicted_per_second": 52.31}
    drafts = {"draft_n": 223, "draft_n_accepted": 158, "acceptance": 158 / 223}
    Turn.objects.update(state=Turn.State.DONE, timings=numbers | drafts)
    client = Client()
    client.force_login(turn.conversation.user)
    page = client.get(reverse("playground-conversation", args=[turn.conversation_id])).content.decode()
    assert "prefill 512 t/s · first token 0.41 s · 52.3 t/s · accepted 71% (158/223)" in page


# The stream over HTTP


def body_of(client: AsyncClient, address: str) -> tuple[int, str, bytes]:
    """Status, content type and whole body of a stream."""

    async def read() -> tuple[int, str, bytes]:
        answer = await client.get(address)
        return answer.status_code, answer["Content-Type"], b"".join([part async for part in answer])

    return async_to_sync(read)()


def test_every_stream_answers_200_and_ends_with_close(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    address = reverse("turn-stream", args=[turn.pk])
    stranger, nobody = AsyncClient(), AsyncClient()
    stranger.force_login(person("charlie"))
    nobody.force_login(person("dora", ""))
    for client in (AsyncClient(), nobody, stranger):
        assert body_of(client, address) == (200, "text/event-stream", CLOSE)
    assert now(turn).state == Turn.State.PENDING
    owner = AsyncClient()
    owner.force_login(turn.conversation.user)
    assert body_of(owner, reverse("turn-stream", args=[turn.pk + 1]))[2] == CLOSE
    Turn.objects.update(state=Turn.State.DONE, answer="it was so")
    status, _, body = body_of(owner, address)
    assert status == 200 and body.startswith(b"event: done\n") and body.endswith(CLOSE)
    assert b"it was so" in body and b"sse-connect" not in body


@given(st.text())
def test_an_event_carries_any_text_to_the_page(text: str) -> None:
    frame = sse_frame("delta", html.escape(text)).decode()
    assert frame.endswith("\n\n") and "\n\n" not in frame[:-2] and "\r" not in frame
    name, *lines = frame[:-2].split("\n")
    assert name == "event: delta" and all(line.startswith("data: ") for line in lines)
    # &#13; by hand: html.unescape follows browsers in turning other control references into what they mean.
    data = "\n".join(line[6:] for line in lines)
    assert html.unescape(data.replace("&#13;", "\r")) == text


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

    async def both() -> list[list[TurnEvent]]:
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
    assert 0 < found.timings["first_token_s"] < 5
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
    assert text_of(stream(turn)) == REPLY
    assert (now(turn).answer, now(turn).error) == (f"Kept, {REPLY}", "")
    assert fake.bodies()[0]["messages"][-1] == {"role": "assistant", "content": "Kept, "}


def test_regenerate_clears_the_answer(fake: Fake, profile: ServerProfile) -> None:
    turn = ask(profile)
    Turn.objects.update(state=Turn.State.FAILED, answer="old", reasoning="old", error="why")
    service.regenerate_turn(now(turn))
    stream(turn)
    assert (now(turn).answer, now(turn).reasoning, now(turn).state) == (REPLY, "", Turn.State.DONE)


def test_only_the_last_answer_can_be_made_anew(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    Turn.objects.update(state=Turn.State.STOPPED, answer="a")
    service.ask_in_conversation(turn.conversation, "two")
    client = Client()
    client.force_login(turn.conversation.user)
    answer = client.post(reverse("turn-regenerate", args=[turn.pk]), headers=HTMX)
    assert answer.status_code == 422 and "Only the last answer" in answer.content.decode()
    assert now(turn).answer == "a"


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


@contextmanager
def closing_server(answer: Callable[[int], bytes]) -> Iterator[tuple[int, list[int]]]:
    """A server that answers the n-th connection with the bytes and closes it; port, and connections so far."""
    seen: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with peer:
                        peer.recv(65536)
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


# The command


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """The one JSON value on stdout."""
    value = json.loads(capsys.readouterr().out)
    assert isinstance(value, dict)
    return value


def test_the_command_prints_answer_and_timings(
    fake: Fake, profile: ServerProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("ask", "tiny", "hi", "--json", "--max-tokens", "3")
    value = said(capsys)
    assert value.keys() == {"answer", "timings"} and value["answer"] == "This reply comes"
    assert fake.bodies()[0]["max_tokens"] == 3
    assert not Turn.objects.exists()
    call_command("ask", "tiny", "hi")
    assert capsys.readouterr().out.strip() == REPLY


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["nothing", "hi"], "no_such_profile", "tiny"),
        (["tiny", " "], "empty_prompt", "Write a question"),
        (["tiny", "hi", "--image", "no-such.png"], "bad_image", "No such file"),
        (["tiny", "hi", "--image", __file__], "bad_image", "PNG, JPEG, GIF or WebP"),
        (["tiny", "hi", "--max-tokens", "0"], "bad_option", "at least 1"),
    ],
)
def test_the_command_refuses_in_words(
    profile: ServerProfile,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    error: str,
    words: str,
) -> None:
    with pytest.raises(SystemExit) as end:
        call_command("ask", *arguments, "--json")
    value = said(capsys)
    assert (end.value.code, value["error"]) == (1, error) and words in str(value["detail"])


def test_a_picture_for_a_server_without_projector_is_refused_in_words(
    profile: ServerProfile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture"
    picture.write_bytes(solid_png((255, 0, 0)))
    with pytest.raises(SystemExit):
        call_command("ask", "tiny", "Which colour?", "--image", str(picture), "--json")
    assert "no vision projector" in str(said(capsys)["detail"])
