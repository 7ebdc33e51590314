"""Every page in a real browser: wide and narrow, dark and light, in each language, with the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, expect, sync_playwright

from controlpanel.lib.streams import publish
from jobs.models import Host, Job
from jobs.services.hosts import local_host
from servers.models import Instance, ServerProfile
from servers.services.instances import STOP
from tests.e2e.furnish import UNKNOWN, furnish
from tests.e2e.panel import CHROMIUM, CHROMIUM_ARGS
from tests.functional import pages
from tests.waiting import wait_for
from tests.web import cookies, web

pytestmark = pytest.mark.django_db(transaction=True)
SLOW = 30_000  # ms
# One thing changes from look to look.
LOOKS = [(1440, "light"), (1440, "dark"), (390, "dark"), (390, "light")]
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# What a person operates needs a name that a screen reader can say.
OPERATED = {
    *("button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "switch", "menuitem"),
    *("spinbutton", "slider", "tab", "DisclosureTriangle"),
}


@pytest.fixture(autouse=True)
def rows_beside_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Playwright keeps an event loop in this thread, in which Django refuses to ask the database."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


def signed_in(browser: Browser, url: str, user: User | None, language: str = "en") -> BrowserContext:
    """A browser of its own in which the user (or nobody) is signed in."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(SLOW)
    kept = {**(cookies(user) if user else {}), settings.LANGUAGE_COOKIE_NAME: language}
    context.add_cookies([{"name": name, "value": value, "url": url} for name, value in kept.items()])
    return context


def nameless(session: CDPSession) -> list[str]:
    """What can be operated and has no name in the browser's accessibility tree."""
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return [
        f"{node['role']['value']} {node.get('properties')}"
        for node in nodes
        if not node.get("ignored")
        and node.get("role", {}).get("value") in OPERATED
        and not str(node.get("name", {}).get("value", "")).strip()
    ]


def listened(context: BrowserContext) -> tuple[Page, list[str]]:
    """A page, and what its console says that it should not."""
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(f"{page.url}: {error}"))
    page.on(
        "console",
        lambda message: (
            message.type in {"error", "warning"}
            # The browser itself says of the page that is not there that it is not there.
            and not (message.location["url"].endswith(UNKNOWN) and "status of 404" in message.text)
            and said.append(f"{page.url}: {message.text}")
        ),
    )
    return page, said


def wear(page: Page, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")


def look_at(page: Page, name: str, address: str, language: str = "en") -> list[str]:
    """Load a page once, then look at it in all widths and colours; returns what is wrong.

    Names and live updates are the same in all languages: only the first is asked for them.
    """
    wrong: list[str] = []
    looks = LOOKS if language == "en" else LOOKS[::2]
    wear(page, *looks[0])
    page.goto(address)
    if page.locator("html").get_attribute("lang") != language:
        wrong.append(f"{name}: is not in {language}")
    if language == "en" and page.locator("#connection").count():
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    for width, scheme in looks:
        wear(page, width, scheme)
        # The browser tells the page of it after the call has returned.
        page.wait_for_function("scheme => document.documentElement.dataset.bsTheme === scheme", arg=scheme)
        if (excess := page.evaluate(SIDEWAYS)) > 0:
            wrong.append(f"{name} in {language} at {width} px: {excess} px too wide")
        if language == "en" and scheme == "light":
            session = page.context.new_cdp_session(page)
            wrong += [f"{name} at {width} px: without a name: {element}" for element in nameless(session)]
            session.detach()
    if page.locator("[tabindex]:not([tabindex='0']):not([tabindex='-1'])").count():
        wrong.append(f"{name}: changes the order of the Tab key")
    return wrong


def test_every_page_in_every_look_and_language(
    alice: User, redis_server: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    found = furnish(alice)
    with pages.hub(tmp_path, monkeypatch, settings), web() as url, chromium() as browser:
        wrong: list[str] = []
        for language, _word in settings.LANGUAGES:
            # One tab for all: a new one for each page costs as much as the page.
            page, said = listened(signed_in(browser, url, alice, language))
            for name, address in found.items():
                wrong += look_at(page, name, url + address, language)
            nobody, also_said = listened(signed_in(browser, url, None, language))
            wrong += look_at(nobody, "account_login", url + reverse("account_login"), language)
            wrong += [*said, *also_said]
        assert wrong == []


def test_a_button_without_a_name_would_be_noticed() -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.set_content("<button><i></i></button><a href=x>named</a>")
        assert len(nameless(page.context.new_cdp_session(page))) == 1


def focused(page: Page) -> dict[str, Any]:
    """The element that has the keyboard: what it is, where it lies, and whether that can be seen."""
    return page.evaluate(
        """() => {
          const element = document.activeElement, box = element.getBoundingClientRect()
          return {
            what: element.className + ' ' + (element.id || element.textContent.trim().slice(0, 40)),
            skip: element.matches('.skip-link'),
            content: element.id === 'content',
            main: Boolean(element.closest('#content')) && element.id !== 'content',
            action: Boolean(element.closest('.page-top-actions')),
            seen: box.width > 0 && box.height > 0 && getComputedStyle(element).outlineStyle !== 'none',
          }
        }"""
    )


def test_the_tab_key_reaches_what_a_page_is_for(alice: User, redis_server: redis.Redis) -> None:
    found = furnish(alice)
    with web() as url, chromium() as browser:
        page = signed_in(browser, url, alice).new_page()
        for name in ("overview", "servers", "profiles", "models", "builds", "activity", "profile-new"):
            page.goto(url + found[name])
            page.keyboard.press("Tab")
            assert focused(page)["skip"], name
            page.keyboard.press("Enter")
            assert focused(page)["content"], name
            page.keyboard.press("Tab")
            inside = focused(page)
            assert (inside["main"], inside["seen"]) == (True, True), (name, inside)
        page.goto(url + found["servers"])
        passed = []
        for _ in range(30):
            page.keyboard.press("Tab")
            passed.append(focused(page))
            if passed[-1]["action"]:
                break
        assert passed[-1]["action"], [step["what"] for step in passed]
        assert all(step["seen"] for step in passed)
        page.keyboard.press("Enter")
        expect(page).to_have_url(url + found["profile-new"])
        page.locator("#content").focus()
        page.keyboard.press("g")
        page.keyboard.press("s")
        expect(page).to_have_url(url + found["servers"])
        page.keyboard.press("/")
        page.keyboard.type("daily")
        expect(page.locator("#servers tbody tr")).to_have_count(1)
        disabled = page.locator("#servers [aria-disabled=true]").first

        def reason() -> bool:
            # The filtered list may come in between.
            disabled.focus()
            content = disabled.evaluate("e => getComputedStyle(e, '::after').content")
            return bool(content == '"The server is ready already."')

        wait_for(reason, 10, "the reason of a disabled button that has the focus")


def test_a_list_stays_sorted_and_filtered_while_rows_change(bob: User, redis_server: redis.Redis) -> None:
    build, model = pages.build(), pages.model()
    for name in ("alpha", "beta", "gamma"):
        pages.profile(name, build=build, model=model)
    with web() as url, chromium() as browser:
        page = signed_in(browser, url, bob).new_page()
        page.goto(f"{url}/servers/")
        titles = page.locator("#servers .title")
        page.get_by_role("link", name="Name").click()
        expect(titles).to_have_text(["gamma", "beta", "alpha"])
        expect(page).to_have_url(f"{url}/servers/?sort=-name")
        assert focused(page)["what"].endswith("sort-servers-name")
        page.get_by_role("searchbox").fill("a")
        page.get_by_role("searchbox").press_sequentially("l")
        expect(titles).to_have_text(["alpha"])
        expect(page).to_have_url(f"{url}/servers/?q=al&sort=-name")
        page.get_by_role("searchbox").fill("ta")
        expect(titles).to_have_text(["beta"])
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        ServerProfile.objects.filter(name="beta").update(name="beta two")
        ServerProfile.objects.filter(name="gamma").update(name="delta")
        publish("instance", 1)
        expect(titles).to_have_text(["delta", "beta two"])
        expect(page.get_by_role("searchbox")).to_have_value("ta")
        page.get_by_role("link", name="Show all").click()
        expect(titles).to_have_text(["delta", "beta two", "alpha"])
        page.go_back()
        expect(titles).to_have_text(["delta", "beta two"])
        expect(page.get_by_role("searchbox")).to_have_value("ta")


def test_a_list_is_filtered_and_sorted_without_scripts(bob: User, redis_server: redis.Redis) -> None:
    build, model = pages.build(), pages.model()
    pages.profile("alpha", "ready", build=build, model=model)
    pages.profile("beta", build=build, model=model)
    with web() as url, chromium() as browser:
        context = browser.new_context(java_script_enabled=False)
        context.set_default_timeout(SLOW)
        context.add_cookies([{"name": k, "value": v, "url": url} for k, v in cookies(bob).items()])
        page = context.new_page()
        page.goto(f"{url}/servers/")
        page.get_by_role("link", name="Name").click()
        expect(page.locator("#servers .title")).to_have_text(["beta", "alpha"])
        page.get_by_label("Filter by state").select_option("running")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator("#servers .title")).to_have_text(["alpha"])


def test_a_stop_asks_with_the_requests_that_are_in_flight_at_the_click(
    bob: User, redis_server: redis.Redis
) -> None:
    profile = pages.profile("Daily", "ready", {"port": 1})
    pages.run_of(profile)
    answers = ["Stop the server Daily? 2 requests are in flight."]
    with web() as url, chromium() as browser:
        page = signed_in(browser, url, bob).new_page()
        asked: list[str] = []

        def answer(route: Any) -> None:
            asked.append(route.request.url)
            route.fulfill(body=answers[0], content_type="text/plain") if answers else route.abort()

        page.route("**/question/**", answer)
        page.goto(f"{url}/servers/")
        stop = page.get_by_role("button", name="Stop Daily")
        stop.click()
        expect(page.locator("#confirm-question")).to_have_text(answers[0])
        assert asked == [f"{url}/servers/{profile.pk}/question/?do=stop"]
        page.keyboard.press("Escape")
        expect(page.locator("#confirm")).not_to_be_visible()
        answers.clear()
        stop.click()
        expect(page.locator("#confirm-question")).to_contain_text("Stop the server")
        page.locator("#confirm-yes").click()
        wait_for(lambda: Instance.objects.get().observed == "stopping", 30, "the stop to be asked for")
        assert Job.objects.get(kind=STOP).params["wait"] == 600


def test_the_strip_shows_what_has_ended_for_some_seconds_only(bob: User, redis_server: redis.Redis) -> None:
    Host.objects.filter(pk=local_host().pk).update(agent_seen_at=timezone.now() + timedelta(hours=1))
    build = pages.build()
    with web() as url, chromium() as browser:
        page = signed_in(browser, url, bob).new_page()
        page.goto(f"{url}/models/")
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        # In the future, so that it is the page that takes the line away, however slow this machine is.
        end = timezone.now() + timedelta(minutes=5)
        ended = {"state": "succeeded", "started_at": timezone.now(), "ended_at": end}
        subject = {"subject_kind": "build", "subject_id": str(build.pk)}
        Job.objects.create(kind="build.probe", host=build.host, **subject, **ended)
        publish("job", 1)
        strip = page.locator("#jobs-strip .strip")
        expect(strip).to_contain_text("Probe of a build")
        expect(strip).to_have_count(0, timeout=20_000)


def test_mtp_is_chosen_with_one_click(bob: User, redis_server: redis.Redis) -> None:
    pages.build()
    pages.model()
    with web() as url, chromium() as browser:
        page = signed_in(browser, url, bob).new_page()
        page.goto(f"{url}/profiles/new/")
        command = page.locator("#preview-command")
        expect(command).not_to_contain_text("--spec-type")
        page.get_by_role("button", name="Use MTP").click()
        expect(command).to_contain_text("--spec-type draft-mtp")
        expect(page.locator("[name=speculation]")).to_have_value("mtp")
        expect(page.get_by_role("button", name="Use MTP")).to_have_count(0)
