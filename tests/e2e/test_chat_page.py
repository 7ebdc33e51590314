"""The playground in a browser: list, settings, editing, reasoning, code, and a page that does not jump."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, expect

from servers.models import Conversation, ServerProfile, Turn
from tests.chat import Fake, fake_server, ready_profile
from tests.conftest import person
from tests.e2e.browsing import page_of
from tests.waiting import wait_for
from tests.web import web

pytestmark = pytest.mark.django_db(transaction=True)
DONE = '.turn[data-state="done"]'
CODE = "```python\nprint( 1 )\n```\n\n"


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
def user() -> User:
    """The viewer at the browser."""
    return person("charlie", "viewer")


@pytest.fixture(params=[390, 1280], ids=["phone", "desktop"])
def page(
    request: pytest.FixtureRequest, valkey: Path, user: User, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Page]:
    """A browser page of the viewer."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    with web() as address, page_of(user, address, request.param) as tab:
        yield tab


def talk(user: User, profile: ServerProfile, title: str, *questions: str) -> Conversation:
    """A conversation with finished turns."""
    row = Conversation.objects.create(user=user, profile=profile, title=title)
    for number, prompt in enumerate(questions, 1):
        Turn.objects.create(conversation=row, position=number, prompt=prompt, answer="yes", state="done")
    return row


def open_list(page: Page) -> None:
    """Open the drawer with the list where the page is narrow."""
    button = page.get_by_role("button", name="Conversations", exact=True)
    if button.is_visible():
        button.click()


def test_a_conversation_is_found_renamed_and_deleted(user: User, profile: ServerProfile, page: Page) -> None:
    talk(user, profile, "About whales", "what?")
    row = talk(user, profile, "Second", "what is a whale?")
    talk(user, profile, "Third", "hm")
    page.goto(reverse("playground-conversation", args=[row.pk]))
    open_list(page)
    page.fill("#conversation-search", "WHALE")
    wait_for(lambda: page.locator(".chat-row").count() == 2, 20, "the rows that match")
    entry = page.locator(f"#conversation-{row.pk}")
    entry.hover()
    entry.get_by_role("button", name="Rename Second").click()
    page.wait_for_selector(".chat-rename input:focus")
    page.keyboard.press("Escape")
    entry.get_by_role("button", name="Rename Second").click()
    page.wait_for_selector(".chat-rename input:focus")
    page.keyboard.press("Control+A")
    page.keyboard.type("Blue")
    page.keyboard.press("Enter")
    wait_for(lambda: page.text_content("#chat-title") == "Blue", 20, "the new title")
    entry.hover()
    entry.get_by_role("button", name="Delete Blue").click()
    expect(page.locator("#confirm")).to_contain_text("Delete “Blue”?")
    page.click("#confirm-yes")
    page.wait_for_url(f"**{reverse('playground')}")
    assert not Conversation.objects.filter(pk=row.pk).exists()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_settings_are_made_before_and_within_a_conversation(
    fake: Fake, profile: ServerProfile, page: Page
) -> None:
    page.goto(reverse("playground"))
    page.get_by_role("button", name="Sampling").click()
    page.fill("#sampling-temperature", "9")
    page.keyboard.press("Escape")
    page.fill("#prompt", "hi")
    page.keyboard.press("Enter")
    page.wait_for_selector("#composer-error [role=alert]")
    assert "Temperature: enter a number from 0 to 5" in page.inner_text("#composer-error")
    page.get_by_role("button", name="Sampling").click()
    assert page.get_attribute("#sampling-temperature", "placeholder") == "0.8"
    page.fill("#sampling-temperature", "0.5")
    page.keyboard.press("Escape")
    page.locator("#prompt").press("Enter")
    page.wait_for_selector(DONE, timeout=30_000)
    page.get_by_role("button", name="Sampling · 1 set").click()
    page.wait_for_selector("#sampling-seed")
    assert page.input_value("#sampling-temperature") == "0.5"
    page.fill("#sampling-seed", "7")
    page.keyboard.press("Tab")
    page.wait_for_selector("#sampling-note .calm-note")
    page.get_by_role("button", name="Empty all fields").click()
    wait_for(lambda: Conversation.objects.get().sampling == {}, 20, "the emptied settings")
    assert [body.get("temperature") for body in fake.bodies()] == [0.5]


def test_an_earlier_question_is_changed_with_the_keyboard_and_asked_once(
    user: User, profile: ServerProfile, page: Page
) -> None:
    row = talk(user, profile, "one", "one", "two", "three")
    page.goto(reverse("playground-conversation", args=[row.pk]))
    page.get_by_role("button", name="Edit the question").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".turn-edit textarea:focus")
    page.keyboard.press("Control+A")
    page.keyboard.type("uno")
    page.keyboard.press("Enter")
    page.wait_for_selector("#confirm[open]")
    assert "2 later questions and their answers are removed" in page.inner_text("#confirm")
    page.keyboard.press("Escape")
    assert Turn.objects.count() == 3
    page.locator(".turn-edit textarea").press("Enter")
    page.click("#confirm-yes")
    wait_for(lambda: page.locator(".turn").count() == 1, 20, "the removal of what followed")
    page.wait_for_selector(DONE, timeout=30_000)
    expect(page.locator(".turn-prompt .turn-text")).to_have_text("uno")
    wait_for(lambda: Turn.objects.get().answer.startswith("This reply"), 20, "the new answer")


def test_reasoning_stays_as_the_reader_left_it(fake: Fake, profile: ServerProfile, page: Page) -> None:
    fake.behave(reasoning="let me think about it", reply="yes, so it is", token_delay=0.2)
    page.goto(reverse("playground"))
    page.fill("#prompt", "hi")
    page.keyboard.press("Enter")
    summary = page.locator(".turn-reasoning > summary")
    summary.wait_for(timeout=30_000)
    assert not page.is_visible(".turn-thought")
    summary.click()
    wait_for(lambda: "let me" in page.inner_text(".turn-thought"), 20, "the reasoning as it comes")
    page.wait_for_selector(DONE, timeout=30_000)
    assert page.is_visible(".turn-thought") and "22 characters" in summary.inner_text()
    page.get_by_role("button", name="Regenerate").click()
    page.wait_for_selector('.turn[data-state="pending"]')
    page.wait_for_selector(".turn-thought", state="visible", timeout=30_000)
    page.wait_for_selector(DONE, timeout=30_000)
    summary.click()
    page.reload()
    assert not page.is_visible(".turn-thought")


def test_code_is_copied_and_blocks_do_not_jump(fake: Fake, profile: ServerProfile, page: Page) -> None:
    fake.behave(reply=CODE * 24 + "the end", token_delay=0.02)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(reverse("playground"))
    page.fill("#prompt", "hi")
    page.keyboard.press("Enter")
    page.wait_for_selector(".turn-blocks .code:nth-of-type(12)", timeout=30_000)
    # The first block stays where it is, and the page as it was scrolled, while more is appended below.
    page.evaluate("window.scrollTo({ top: 0, behavior: 'instant' })")
    page.evaluate("window.before = document.querySelector('.code').getBoundingClientRect().top")
    page.wait_for_selector(DONE, timeout=60_000)
    assert page.evaluate("window.scrollY") == 0
    assert page.evaluate("Math.abs(document.querySelector('.code').getBoundingClientRect().top - before)") < 2
    assert page.locator(".turn-answer .code").count() == 24
    page.locator("[data-copy-code]").first.click()
    wait_for(lambda: page.locator("[data-copy-code]").first.inner_text() == "Copied", 10, "the word Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "print( 1 )\n"
