"""The playground around the answer: the list of conversations, editing, settings, live Markdown."""

import re
import time
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.http import StreamingHttpResponse
from django.test import AsyncClient, Client
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.lib.errors import Refused
from servers.models import Conversation, Instance, ServerProfile, Turn
from servers.services import conversations as service
from servers.services import markdown
from servers.views.turn_live import LiveAnswer
from tests.chat import ask, fake_server, now, ready_profile
from tests.conftest import person

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}
D = Turn.State.DONE


@pytest.fixture
def profile() -> ServerProfile:
    """A profile that counts as ready, for tests that never ask it."""
    return ready_profile(9)


@pytest.fixture
def user() -> User:
    """The viewer whose conversations these are."""
    return person("charlie", "viewer")


@pytest.fixture
def client(user: User) -> Client:
    """The viewer's browser."""
    found = Client()
    found.force_login(user)
    return found


def talk(user: User, profile: ServerProfile, title: str, *texts: tuple[str, str]) -> Conversation:
    """A conversation with finished turns."""
    row = Conversation.objects.create(user=user, profile=profile, title=title)
    for number, (prompt, answer) in enumerate(texts, 1):
        Turn.objects.create(conversation=row, position=number, prompt=prompt, answer=answer, state=D)
    return row


# The list


def test_titles_questions_and_answers_of_one_s_own_are_searched(
    user: User, profile: ServerProfile, client: Client
) -> None:
    talk(user, profile, "About whales")
    talk(user, profile, "Second", ("what is a Whale?", "an animal"))
    talk(user, profile, "Third", ("hm", "the blue WHALE"), ("hm", "another whale"))
    talk(user, profile, "100% sure", ("hm", "hm"))
    talk(person("alice", "admin"), profile, "Whales of others")
    page = client.get(reverse("conversation-list"), {"q": " whale "}).content.decode()
    found = [part.split("<")[0] for part in page.split('class="chat-list-title">')[1:]]
    assert found == ["Third", "Second", "About whales"]
    assert "100% sure" in client.get(reverse("conversation-list"), {"q": "%"}).content.decode()
    assert (
        "Nothing of yours contains “zebra”"
        in client.get(reverse("conversation-list"), {"q": "zebra"}).content.decode()
    )


def test_the_list_comes_in_pages(user: User, profile: ServerProfile, client: Client) -> None:
    for number in range(service.LISTED + 1):
        talk(user, profile, f"Talk {number}.")
    first = client.get(reverse("playground")).content.decode()
    assert f"Talk {service.LISTED}." in first and "Talk 0." not in first and "page=2" in first
    second = client.get(reverse("conversation-list"), {"page": "2"}).content.decode()
    assert "Talk 0." in second and "Talk 1." not in second and "Show more" not in second


def test_servers_that_are_ready_can_all_be_chosen_and_only_some_others_are_listed(
    profile: ServerProfile, client: Client
) -> None:
    def named(name: str) -> ServerProfile:
        return ServerProfile(name=name, slug=name, build=profile.build, model=profile.model)

    count = service.NOT_READY_LISTED + 1
    ServerProfile.objects.bulk_create(named(f"idle-{number:03}") for number in range(count))
    last = ready_profile(9, "Zebra")
    ready_profile(9, "Busy", Instance.Observed.LOADING)
    page = client.get(reverse("playground"), {"profile": last.slug}).content.decode()
    values = re.findall(r'<option value="([^"]+)"( selected)?( disabled)?', page)
    assert values[:3] == [("tiny", "", ""), ("zebra", " selected", ""), ("busy", "", " disabled")]
    assert len(values) == 2 + service.NOT_READY_LISTED and all(disabled for *_, disabled in values[2:])
    assert "2 more that are not ready: see the page Servers" in page
    ServerProfile.objects.filter(slug__startswith="idle-").delete()
    assert "more that" not in client.get(reverse("playground")).content.decode()


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Short\n question ", "Short question"),
        ("How do I start a server with two GPUs and a large context window?", None),
        ("x" * 100, "x" * 60 + "…"),
        ("巴" * 100, "巴" * 60 + "…"),
    ],
)
def test_a_title_is_the_beginning_of_the_question_cut_at_a_word(prompt: str, title: str | None) -> None:
    expected = title or "How do I start a server with two GPUs and a large context…"
    assert service.title_of(prompt) == expected


def test_a_conversation_is_renamed_in_its_row_and_its_heading(
    user: User, profile: ServerProfile, client: Client
) -> None:
    row = talk(user, profile, "Old")
    before = Conversation.objects.get().updated_at
    address = reverse("conversation-rename", args=[row.pk])
    assert 'value="Old"' in client.get(address, headers=HTMX).content.decode()
    open_page = HTMX | {
        "HX-Current-URL": "http://testserver" + reverse("playground-conversation", args=[row.pk])
    }
    answer = client.post(address, {"title": " New\n<name> "}, headers=open_page).content.decode()
    assert (
        '<h2 id="chat-title" hx-swap-oob="true">New &lt;name&gt;</h2>' in answer and "aria-current" in answer
    )
    assert (
        Conversation.objects.get().title == "New <name>" and Conversation.objects.get().updated_at == before
    )
    assert "chat-title" not in client.post(address, {"title": "x"}, headers=HTMX).content.decode()


@pytest.mark.parametrize(("title", "words"), [(" ", "Write a title"), ("x" * 201, "201 characters")])
def test_a_title_without_use_is_refused_beside_its_field(
    user: User, profile: ServerProfile, client: Client, title: str, words: str
) -> None:
    row = talk(user, profile, "Old")
    answer = client.post(reverse("conversation-rename", args=[row.pk]), {"title": title}, headers=HTMX)
    assert answer.status_code == 422 and words in answer.content.decode()
    assert Conversation.objects.get().title == "Old"


def test_deleting_the_open_conversation_leads_to_an_empty_page(
    user: User, profile: ServerProfile, client: Client
) -> None:
    row, other = talk(user, profile, "A", ("q", "a")), talk(user, profile, "B")
    open_page = HTMX | {
        "HX-Current-URL": "http://testserver" + reverse("playground-conversation", args=[row.pk])
    }
    answer = client.post(reverse("conversation-delete", args=[other.pk]), headers=open_page)
    assert answer.status_code == 200 and not answer.content and "HX-Redirect" not in answer
    answer = client.post(reverse("conversation-delete", args=[row.pk]), headers=open_page)
    assert answer["HX-Redirect"] == reverse("playground")
    assert not Conversation.objects.exists() and not Turn.objects.exists()


@pytest.mark.parametrize("name", ["conversation-rename", "conversation-delete", "conversation-sampling"])
def test_conversations_of_others_cannot_be_changed(profile: ServerProfile, client: Client, name: str) -> None:
    row = talk(person("alice", "admin"), profile, "Old")
    assert client.post(reverse(name, args=[row.pk]), {"title": "x"}).status_code == 404
    assert client.get(reverse("sampling"), {"conversation": str(row.pk)}).status_code == 404
    assert Conversation.objects.get().title == "Old"


# Editing a question


def test_editing_an_earlier_question_asks_once_and_removes_what_follows(
    user: User, profile: ServerProfile, client: Client
) -> None:
    row = talk(user, profile, "one", ("one", "1"), ("two", "2"), ("three", "3"))
    first, second, third = row.turns.order_by("position")
    address = reverse("turn-edit", args=[first.pk])
    form = client.get(address, headers=HTMX).content.decode()
    assert 'hx-confirm="Ask this instead? 2 later questions and their answers are removed."' in form
    assert (
        "hx-confirm" not in client.get(reverse("turn-edit", args=[third.pk]), headers=HTMX).content.decode()
    )
    answer = client.post(address, {"prompt": "uno"}, headers=HTMX).content.decode()
    found = Turn.objects.get()
    assert (found.pk, found.prompt, found.answer, found.state) == (first.pk, "uno", "", Turn.State.PENDING)
    assert f'id="turn-{second.pk}" hx-swap-oob="delete"' in answer and "sse-connect" in answer
    assert Conversation.objects.get().title == "uno"


def test_a_title_that_somebody_gave_stays_when_the_question_changes(
    user: User, profile: ServerProfile
) -> None:
    row = talk(user, profile, "Mine", ("one", "1"))
    service.edit_turn(row.turns.get(), "uno")
    assert Conversation.objects.get().title == "Mine"


def test_nothing_is_removed_when_the_changed_question_is_refused(
    user: User, profile: ServerProfile, client: Client
) -> None:
    row = talk(user, profile, "one", ("one", "1"), ("two", "2"))
    first = row.turns.order_by("position")[0]
    answer = client.post(reverse("turn-edit", args=[first.pk]), {"prompt": " "}, headers=HTMX)
    assert answer.status_code == 422 and answer["HX-Retarget"] == f"#turn-{first.pk}-edit-error"
    profile.delete()
    with pytest.raises(Refused, match="was deleted"):
        service.edit_turn(now(first), "uno")
    assert [turn.prompt for turn in Turn.objects.order_by("position")] == ["one", "two"]


def test_a_question_cannot_be_changed_while_another_is_answered(user: User, profile: ServerProfile) -> None:
    row = talk(user, profile, "one", ("one", "1"))
    service.ask_in_conversation(row, "two")
    with pytest.raises(Refused, match="still being answered"):
        service.edit_turn(row.turns.order_by("position")[0], "uno")
    assert row.turns.count() == 2


# Settings


def test_settings_are_stored_with_the_conversation_and_can_be_emptied(
    user: User, profile: ServerProfile, client: Client
) -> None:
    row = talk(user, profile, "A")
    address = reverse("conversation-sampling", args=[row.pk])
    values = {"temperature": "0.70", "top_k": "", "seed": "7", "system": " be\r\nbrief "}
    answer = client.post(address, values, headers=HTMX).content.decode()
    assert "Saved" in answer and "3 set" in answer
    assert Conversation.objects.get().sampling == {"temperature": 0.7, "seed": 7, "system": "be\nbrief"}
    fields = client.get(reverse("sampling"), {"conversation": str(row.pk)}).content.decode()
    assert 'name="temperature" value="0.7"' in fields and 'name="top_k" value=""' in fields
    client.post(address, {}, headers=HTMX)
    assert Conversation.objects.get().sampling == {}


def test_a_wrong_setting_is_named_and_nothing_is_stored(
    user: User, profile: ServerProfile, client: Client
) -> None:
    row = talk(user, profile, "A")
    values = {"temperature": "7", "top_k": "1.5", "seed": "3"}
    answer = client.post(reverse("conversation-sampling", args=[row.pk]), values, headers=HTMX)
    text = answer.content.decode()
    assert answer.status_code == 422 and "Temperature: enter a number from 0 to 5, or nothing." in text
    assert "Top K: enter a whole number from 0 to 1000, or nothing." in text
    assert Conversation.objects.get().sampling == {}


def test_the_first_question_brings_its_settings_along(profile: ServerProfile, client: Client) -> None:
    data = {"profile": profile.slug, "prompt": "hi", "temperature": "nan"}
    answer = client.post(reverse("turn-create"), data, headers=HTMX)
    assert answer.status_code == 422 and "Temperature" in answer.content.decode()
    assert not Conversation.objects.exists()
    client.post(reverse("turn-create"), data | {"temperature": "0"}, headers=HTMX)
    assert Conversation.objects.get().sampling == {"temperature": 0.0}


def test_fields_show_what_the_server_does_unasked(tmp_path: Path, client: Client) -> None:
    with fake_server(tmp_path) as fake:
        profile = ready_profile(fake.port)
        known = client.get(reverse("sampling"), {"profile": profile.slug, "seed": "5"}).content.decode()
    # The server told its settings while it ran; without it there are only the fields.
    unknown = client.get(reverse("sampling"), {"profile": profile.slug}).content.decode()
    assert 'placeholder="0.8"' in known and "own: random" in known and "own: no limit" in known
    assert 'name="seed" value="5"' in known and "own:" not in unknown and 'name="top_p"' in unknown


# Markdown on the page


def test_a_hundred_answers_are_a_quick_page(user: User, profile: ServerProfile, client: Client) -> None:
    text = "Some **words** of an answer.\n\n" * 10 + "```python\nfor x in range(10):\n    print(x)\n```\n" * 3
    html = markdown.answer_html(text)
    row = talk(user, profile, "long", *[("question", text)] * 100)
    row.turns.update(answer_html=html, html_version=markdown.VERSION)
    address = reverse("playground-conversation", args=[row.pk])
    client.get(address)
    began = time.perf_counter()
    page = client.get(address).content.decode()
    assert time.perf_counter() - began < 1  # 0.1 s on a free machine
    assert page.count("data-copy-code") == 300


def test_an_answer_without_stored_html_is_rendered_when_it_is_read(
    user: User, profile: ServerProfile, client: Client
) -> None:
    row = talk(user, profile, "A", ("q", "**new**"))
    row.turns.update(answer_html="of an older form", html_version=markdown.VERSION - 1)
    page = client.get(reverse("playground-conversation", args=[row.pk])).content.decode()
    assert "<strong>new</strong>" in page and "of an older form" not in page


def test_a_stream_appends_text_at_once_and_replaces_complete_blocks(tmp_path: Path) -> None:
    with fake_server(tmp_path) as fake:
        fake.behave(reply="# Head\n\nsome *words* of\n\nthe end", token_delay=0.1)
        turn = ask(ready_profile(fake.port))
        client = AsyncClient()
        client.force_login(turn.conversation.user)

        async def read() -> str:
            answer = await client.get(reverse("turn-stream", args=[turn.pk]))
            assert isinstance(answer, StreamingHttpResponse)
            return b"".join([part async for part in answer]).decode()

        frames = async_to_sync(read)().split("\n\n")
    named = [(frame.split("\n")[0][7:], frame.split("data: ", 1)[-1]) for frame in frames if frame]
    assert named[0] == ("delta", "#") and ("progress", "Answering") in named
    blocks = "".join(text for name, text in named if name == "blocks")
    assert "<h4>Head</h4>" in blocks and "<em>words</em>" in blocks
    assert f'<div id="turn-{turn.pk}-tail" hx-swap-oob="innerHTML">the</div>' in blocks
    assert named[-2][0] == "done" and "<p>the end</p>" in named[-2][1]


@given(st.lists(st.text("ab*`#-\n ", max_size=30), max_size=20))
@settings(max_examples=50, deadline=None)
def test_live_blocks_and_tail_are_the_text_so_far(parts: list[str]) -> None:
    async def grown() -> tuple[str, str, str]:
        live = LiveAnswer()
        html = "".join([await live.add(part) for part in parts])
        return html, live.html, live.tail

    html, kept, tail = async_to_sync(grown)()
    whole = LiveAnswer.of("".join(parts))
    assert html == kept == whole.html and tail == whole.tail
