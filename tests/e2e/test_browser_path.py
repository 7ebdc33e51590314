"""The main path in a real browser: sign in, register, write a profile, start, chat, stop."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.e2e.panel import CHROMIUM, CHROMIUM_ARGS
from tests.e2e.whole import Panel
from tests.engines import engine_path
from tests.models import tiny_models
from tests.waiting import wait_for

SLOW = 60_000  # ms; a machine under load must not fail the path


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Panel]:
    """An empty panel on a data folder whose path is long."""
    folder = tmp_path_factory.mktemp("long")
    data = folder / ("d" * (120 - len(str(folder)) - 1))
    assert len(str(data)) == 120
    with Panel(data) as running:
        running.start()
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield found
        found.close()


@pytest.fixture(params=[(1440, "light"), (390, "dark")], ids=["wide light", "narrow dark"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """A tab whose console must stay free of errors."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(SLOW)
    tab = context.new_page()
    wrong: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            wrong.append(message.text)

    tab.on("console", note)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    yield tab
    context.close()
    assert not wrong


def test_from_signing_in_to_a_streamed_answer_and_a_stop(page: Page, panel: Panel, tmp_path: Path) -> None:
    name = "wide" if page.viewport_size and page.viewport_size["width"] > 1000 else "narrow"
    folder = panel.data / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    text, _projector = tiny_models(folder)

    page.goto(panel.url + "/")
    expect(page).to_have_url(re.compile("/accounts/login/"))
    page.get_by_label("User name").fill("admin")
    page.locator("input[type=password]").fill(panel.password)
    page.keyboard.press("Enter")
    expect(page.locator("#connection")).to_have_text("live", timeout=SLOW)

    page.goto(panel.url + "/builds/register/")
    page.locator("[name=name]").fill(f"Engine {name}")
    page.locator("[name=path]").fill(str(engine_path()))
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("draft-mtp", timeout=SLOW)

    page.goto(panel.url + "/models/register/")
    page.locator("[name=path]").fill(str(text))
    page.locator("[name=name]").fill(f"Tiny {name}")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("qwen35")

    page.goto(panel.url + "/profiles/new/")
    page.locator("[name=name]").fill(f"Chat {name}")
    page.locator("[name=build]").select_option(label=f"Engine {name}")
    page.locator("[name=model]").select_option(
        page.locator("[name=model] option", has_text=f"Tiny {name}").get_attribute("value")
    )
    page.locator("[name=speculation]").select_option("mtp")
    page.locator("[name=ctx_size]").fill("2048")
    expect(page.locator("main")).to_contain_text("--spec-type draft-mtp")
    page.get_by_role("button", name="Save profile").click()

    slug = f"chat-{name}"
    pk = panel.value(slug, "instance.profile_id")
    page.goto(f"{panel.url}/servers/{pk}/")
    page.get_by_role("button", name="Start", exact=True).click()
    server = page.locator(f"#server-{pk}")
    expect(server).to_contain_text("ready", timeout=SLOW)
    expect(page.locator("main")).to_contain_text("listening on", timeout=SLOW)
    # The word "ready" also names the last step of the rail, so the row has to say it.
    wait_for(lambda: panel.server(slug)["observed"] == "ready", 60, "the ready server")
    assert panel.server(slug)["facts"] == {"mtp": True, "vision": False, "n_ctx": 2048}

    page.goto(panel.url + "/playground/")
    page.locator("#profile").select_option(slug)
    page.locator("#prompt").fill("hi")
    page.keyboard.press("Enter")
    expect(page.locator("#turns")).to_contain_text("Goodbye.", timeout=SLOW)
    expect(page.locator("#turns")).to_contain_text("39/78", timeout=SLOW)
    page.reload()
    expect(page.locator("#turns")).to_contain_text("Goodbye.")

    page.goto(f"{panel.url}/servers/{pk}/")
    page.get_by_role("button", name="Stop", exact=True).click()
    page.locator("#confirm-yes").click()
    expect(server).to_contain_text("stopped", timeout=SLOW)
    width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0
