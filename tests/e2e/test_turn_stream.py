"""Chat turns with the real engine behind uvicorn, over HTTP and in a browser."""

import html
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page

from controlpanel.demo.tiny_model import make_text_model
from servers.models import Conversation, ServerProfile, Turn
from servers.services import conversations as service
from tests.chat import now, ready_profile
from tests.conftest import person
from tests.e2e.browsing import page_of
from tests.engines import Server, running
from tests.models import tiny_models
from tests.waiting import wait_for
from tests.web import cookies, web

pytestmark = pytest.mark.django_db(transaction=True)
REPLY_END = "attention reads pixel features instead. Goodbye."
CLOSE = "event: close\ndata: end"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The tiny MTP model: its reply of 66 tokens is there at once."""
    folder = tmp_path_factory.mktemp("engine")
    text, _projector = tiny_models(folder)
    with running(folder, "-m", text, "-c", "4096", "-t", "1", "--spec-type", "draft-mtp") as server:
        yield server


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model that talks on for tens of thousands of tokens."""
    folder = tmp_path_factory.mktemp("endless")
    model = folder / "endless.gguf"
    # A slot's context is capped at the length the model was trained for.
    make_text_model(model, ctx=131072, heads=False)
    with running(folder, "-m", model, "-c", "131072", "-np", "1", "-t", "1", "--ignore-eos") as server:
        yield server


@pytest.fixture
def address(valkey: Path) -> Iterator[str]:
    """A running web process."""
    with web() as found:
        yield found


def ask(profile: ServerProfile) -> Turn:
    """A pending turn of charlie's."""
    return service.ask_in_new_conversation(person("charlie", "viewer"), profile, "hi")


def client_of(turn: Turn, address: str) -> httpx.Client:
    """An HTTP client signed in as the turn's user."""
    jar = cookies(turn.conversation.user)
    return httpx.Client(base_url=address, cookies=jar, timeout=60, trust_env=False)


def place(turn: Turn) -> str:
    """The stream's path."""
    return reverse("turn-stream", args=[turn.pk])


def deltas(body: str) -> list[str]:
    """The appended texts of a stream as the page shows them."""
    frames = [frame.split("\n") for frame in body.split("\n\n")]
    found = ["\n".join(line[6:] for line in frame[1:]) for frame in frames if frame[0] == "event: delta"]
    return [html.unescape(text) for text in found]


def tasks(server: Server) -> int:
    """How many requests the engine has begun."""
    return server.log().count("launch_slot_")


def busy(server: Server) -> bool:
    """True while a slot of the engine computes."""
    return any(slot["is_processing"] for slot in httpx.get(f"{server.url}/slots", timeout=30).json())


def test_the_streamed_text_is_the_stored_text_and_comes_before_the_end(engine: Server, address: str) -> None:
    turn = ask(ready_profile(engine.port))
    with client_of(turn, address) as client:
        answer = client.get(place(turn))
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    texts = deltas(answer.text)
    found = now(turn)
    assert "".join(texts) == found.answer and found.answer.endswith(REPLY_END)
    assert found.state == Turn.State.DONE
    assert (found.timings["draft_n"], found.timings["draft_n_accepted"]) == (78, 39)
    assert answer.text.rstrip().endswith(CLOSE)
    assert answer.text.index("event: delta") < answer.text.index("event: done")


def test_a_finished_and_an_unknown_turn_end_with_close_and_ask_nothing(engine: Server, address: str) -> None:
    turn = ask(ready_profile(engine.port))
    with client_of(turn, address) as client:
        client.get(place(turn))
        before = tasks(engine)
        again = client.get(place(turn))
        unknown = client.get(reverse("turn-stream", args=[turn.pk + 1]))
    assert again.status_code == unknown.status_code == 200
    assert again.text.rstrip().endswith(CLOSE) and unknown.text.strip() == CLOSE
    assert "event: delta" not in again.text and REPLY_END in html.unescape(again.text)
    assert tasks(engine) == before


def test_a_client_that_leaves_ends_the_work_of_the_engine(endless: Server, address: str) -> None:
    turn = ask(ready_profile(endless.port))
    received = ""
    with client_of(turn, address) as client, client.stream("GET", place(turn)) as answer:
        texts = answer.iter_text()  # kept: httpx closes the connection with its iterator
        while len(deltas(received)) < 5:
            received += next(texts)
        assert busy(endless)
    began = time.monotonic()
    wait_for(lambda: not busy(endless), 5, "the engine to be idle")
    seconds = time.monotonic() - began
    wait_for(lambda: now(turn).has_ended, 30, "the end of the turn")
    found = now(turn)
    assert found.state == Turn.State.STOPPED
    assert found.answer.startswith("".join(deltas(received)[:-1])) and found.answer
    assert seconds < 5
    endless.wait_log("cancel task")  # the engine writes its log in a thread of its own


def test_a_second_reader_follows_without_a_second_request(endless: Server, address: str) -> None:
    turn = ask(ready_profile(endless.port))
    before = tasks(endless)
    with client_of(turn, address) as client, client.stream("GET", place(turn)) as first:
        lines = first.iter_lines()
        next(line for line in lines if line == "event: delta")
        with client.stream("GET", place(turn)) as second:
            followed = second.iter_lines()
            next(line for line in followed if line == "event: part")
            assert now(turn).state == Turn.State.STREAMING
            service.request_stop(now(turn))
            ends = ["\n".join(rest) for rest in (list(lines), list(followed))]
    assert all("event: done" in end and end.rstrip().endswith(CLOSE) for end in ends)
    assert "event: delta" not in ends[1]
    assert now(turn).state == Turn.State.STOPPED
    assert tasks(endless) == before + 1


@pytest.fixture
def page(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """A browser page of a viewer, as wide as a phone."""
    # Playwright's sync form keeps a loop in this thread, beside which Django refuses its database by default.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    with page_of(person("charlie", "viewer"), address, 390) as tab:
        yield tab


def shown(page: Page) -> str:
    """The answer's text on the page so far."""
    return str(page.evaluate("document.querySelector('.turn-answer')?.textContent ?? ''"))


def words(text: str) -> str:
    """The text without the marks and line ends that Markdown takes away."""
    return re.sub(r"[^\w]+", "", text)


def wait_longer(page: Page, length: int) -> None:
    """Wait until the answer on the page has more than so many characters."""
    wait_for(lambda: len(shown(page)) > length, 60, f"more than {length} characters")


def test_a_question_is_asked_and_answered_with_the_keyboard(engine: Server, page: Page) -> None:
    ready_profile(engine.port)
    streams: list[str] = []
    page.on("request", lambda request: streams.append(request.url) if "/stream" in request.url else None)
    page.goto(reverse("playground"))
    page.keyboard.type("first line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    page.keyboard.press("Enter")
    page.wait_for_selector('.turn[data-state="done"]', timeout=60_000)
    turn = Turn.objects.get()
    assert turn.prompt == "first line\nsecond line"
    assert shown(page).strip() == turn.answer
    assert re.search(
        r"first token .+ · prompt .+ · generation .+ · accepted 50 % \(39/78\) · context .+",
        page.inner_text(".turn-numbers"),
    )
    # The second question stays on the page and comes to its end there.
    page.fill("#prompt", "more")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector('.turn:nth-of-type(2)[data-state="done"]', timeout=60_000)
    assert page.input_value("#prompt") == "" and page.evaluate("document.activeElement.id") == "prompt"
    assert len(streams) == 2
    root = "document.scrollingElement"
    assert page.evaluate(f"{root}.scrollHeight - {root}.scrollTop - {root}.clientHeight") < 2
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_stop_ends_the_answer_and_continue_goes_on(endless: Server, page: Page) -> None:
    user = User.objects.get(username="charlie")
    conversation = Conversation.objects.create(user=user, profile=ready_profile(endless.port), title="hi")
    page.goto(reverse("playground-conversation", args=[conversation.pk]))
    page.fill("#prompt", "hi")
    page.keyboard.press("Enter")
    wait_longer(page, 500)
    stop = page.get_by_role("button", name="Stop")
    stop.focus()
    wait_longer(page, len(shown(page)) + 500)
    # What arrives does not take the focus away.
    assert page.evaluate("document.activeElement.textContent") == "Stop"
    page.keyboard.press("Enter")
    page.wait_for_selector('.turn[data-state="stopped"]', timeout=30_000)
    kept = Turn.objects.get().answer
    assert words(shown(page)) == words(kept)
    assert "measured by the panel" in page.inner_text(".turn-numbers")
    page.get_by_role("button", name="Continue").click()
    wait_longer(page, len(kept) + 100)
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector('.turn[data-state="stopped"]', timeout=30_000)
    longer = Turn.objects.get().answer
    assert longer.startswith(kept) and words(shown(page)) == words(longer)


def test_an_empty_question_is_refused_on_the_page(engine: Server, page: Page) -> None:
    ready_profile(engine.port)
    page.goto(reverse("playground"))
    page.get_by_role("button", name="Send").click()
    page.wait_for_selector("#composer-error [role=alert]")
    assert "Write a question first." in page.inner_text("#composer-error")
    page.fill("#prompt", "x" * 400_001)
    page.keyboard.press("Enter")
    wait_for(lambda: "400001 characters" in page.inner_text("#composer-error"), 30, "the refusal")
    assert len(page.input_value("#prompt")) == 400_001


def test_reloading_keeps_the_part_as_stopped(endless: Server, page: Page) -> None:
    ready_profile(endless.port)
    page.goto(reverse("playground"))
    page.fill("#prompt", "hi")
    page.keyboard.press("Enter")
    page.wait_for_url("**/playground/*/")
    wait_longer(page, 500)
    before = tasks(endless)
    page.reload()
    page.wait_for_selector('.turn[data-state="stopped"]', timeout=30_000)
    assert words(shown(page)) == words(Turn.objects.get().answer)
    assert tasks(endless) == before


def test_without_a_ready_server_nothing_can_be_sent(page: Page) -> None:
    page.goto(reverse("playground"))
    assert page.is_disabled("#prompt") and page.is_disabled("#composer button")
    assert page.get_by_role("link", name="Go to the servers").get_attribute("href") == reverse("servers")
