"""Asking in the playground: who may, what is refused in words, the page, and the stream over HTTP."""

import html

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.http import StreamingHttpResponse
from django.test import AsyncClient, Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from controlpanel.lib.errors import Refused
from servers.domain.chat import measured_summary
from servers.models import Conversation, Instance, ServerProfile, Turn
from servers.services import conversations as service
from servers.views.turn_card import numbers_line
from servers.views.turn_stream import CLOSE, sse_frame
from tests.chat import ask, now, ready_profile
from tests.conftest import person

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}


@pytest.fixture
def idle_profile() -> ServerProfile:
    """A profile that counts as ready, for tests that never ask it."""
    return ready_profile(9)


def client_of(user: User) -> Client:
    """A client in which the user is signed in."""
    client = Client()
    client.force_login(user)
    return client


# Asking


@pytest.mark.parametrize(
    ("prompt", "words"),
    [("", "Write a question"), (" \r\n\t", "Write a question"), ("x" * 400_001, "400001 characters")],
    ids=["empty", "blank", "too long"],
)
def test_a_prompt_without_use_is_refused_in_words(
    idle_profile: ServerProfile, prompt: str, words: str
) -> None:
    client = client_of(person("charlie", "viewer"))
    answer = client.post(
        reverse("turn-create"), {"profile": idle_profile.slug, "prompt": prompt}, headers=HTMX
    )
    assert answer.status_code == 422 and words in answer.content.decode()
    assert answer["HX-Retarget"] == "#composer-error"
    assert not Conversation.objects.exists()


def test_a_viewer_s_first_question_makes_a_conversation_of_its_own(idle_profile: ServerProfile) -> None:
    client = client_of(person("charlie", "viewer"))
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


@pytest.mark.parametrize("name", ["turn-stop", "turn-continue", "turn-regenerate", "turn-edit"])
def test_turns_of_others_are_not_found(idle_profile: ServerProfile, name: str) -> None:
    turn = ask(idle_profile)
    assert client_of(person("charlie", "viewer")).post(reverse(name, args=[turn.pk])).status_code == 404
    assert now(turn).state == Turn.State.PENDING


def test_conversations_of_others_are_not_found(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    client = client_of(person("alice", "admin"))
    assert client.get(reverse("playground-conversation", args=[turn.conversation_id])).status_code == 404
    data = {"conversation": str(turn.conversation_id), "prompt": "hi"}
    assert client.post(reverse("turn-create"), data).status_code == 404


def test_without_a_role_nothing_is_asked(idle_profile: ServerProfile) -> None:
    data = {"profile": idle_profile.slug, "prompt": "hi"}
    assert client_of(person("dora", None)).post(reverse("turn-create"), data).status_code == 403
    assert Client().post(reverse("turn-create"), data).status_code == 302
    assert not Turn.objects.exists()


def test_only_the_last_answer_can_be_made_anew(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    Turn.objects.update(state=Turn.State.STOPPED, answer="a")
    service.ask_in_conversation(turn.conversation, "two")
    client = client_of(turn.conversation.user)
    answer = client.post(reverse("turn-regenerate", args=[turn.pk]), headers=HTMX)
    assert answer.status_code == 422 and "Only the last answer" in answer.content.decode()
    assert now(turn).answer == "a"


# The page


def test_the_picker_lists_ready_servers_first_and_others_disabled_with_their_state() -> None:
    ready_profile(9, "Alpha", Instance.Observed.STOPPED)
    ready_profile(9, "Beta")
    page = client_of(person("charlie", "viewer")).get(reverse("playground")).content.decode()
    assert '<option value="beta" selected>Beta · ready</option>' in page
    assert '<option value="alpha" disabled>Alpha · stopped</option>' in page
    assert page.index("Beta · ready") < page.index("Alpha · stopped")


def test_without_a_ready_server_the_page_names_the_next_step() -> None:
    ready_profile(9, "Alpha", Instance.Observed.LOADING)
    page = client_of(person("charlie", "viewer")).get(reverse("playground")).content.decode()
    assert "No server is ready" in page and f'href="{reverse("servers")}"' in page
    assert "disabled></textarea>" in page


def test_only_an_unfinished_turn_connects_to_a_stream(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile, "<b>1 & 2</b>")
    client = client_of(turn.conversation.user)
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
    counts = {"predicted_n": 1066, "cache_n": 12, "context_used": 1099, "n_ctx": 4096}
    drafts = {"draft_n": 223, "draft_n_accepted": 158, "acceptance": 158 / 223}
    Turn.objects.update(state=Turn.State.DONE, timings=numbers | counts | drafts)
    client = client_of(turn.conversation.user)
    page = client.get(reverse("playground-conversation", args=[turn.conversation_id])).content.decode()
    assert (
        "first token 0.41 s · prompt 512 t/s · generation 52.3 t/s · 1,066 tokens · 12 from the cache"
        " · accepted 71 % (158/223) · context 1,099 of 4,096<"
    ) in page


def test_numbers_of_the_panel_s_own_are_marked(idle_profile: ServerProfile) -> None:
    assert numbers_line({"first_token_s": 0.5, "measured": True} | measured_summary(11, 2.0)) == (
        "first token 0.50 s · generation 5.0 t/s · 11 tokens · measured by the panel"
    )
    assert numbers_line({"first_token_s": None, "measured": True}) == ""


# The stream over HTTP


def body_of(client: AsyncClient, address: str) -> tuple[int, str, bytes]:
    """Status, content type and whole body of a stream."""

    async def read() -> tuple[int, str, bytes]:
        answer = await client.get(address)
        assert isinstance(answer, StreamingHttpResponse)
        return answer.status_code, answer["Content-Type"], b"".join([part async for part in answer])

    return async_to_sync(read)()


def test_every_stream_answers_200_and_ends_with_close(idle_profile: ServerProfile) -> None:
    turn = ask(idle_profile)
    address = reverse("turn-stream", args=[turn.pk])
    stranger, nobody = AsyncClient(), AsyncClient()
    stranger.force_login(person("charlie", "viewer"))
    nobody.force_login(person("dora", None))
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
