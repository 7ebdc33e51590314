"""The charts of the GPU page in a browser: live points, pause, zoom, ranges, holes, marks, no network."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import redis
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Locator, Page, Request, expect, sync_playwright

from jobs.domain.gpu import GpuSample
from jobs.models import Host, Run
from tests.cards import publish_cards
from tests.e2e.panel import CHROMIUM, CHROMIUM_ARGS
from tests.functional import pages
from tests.samples import say_second, store
from tests.waiting import wait_for
from tests.web import cookies, web

CARDS = ("gpu:GPU-5c0f1a2b", "gpu:GPU-77aa01ff")
RANGE = 300  # seconds that are shown first
OLD = 90  # seconds since which nothing is stored
PATIENCE = 15_000  # ms

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


class Agent:
    """Says each second what the cards do, once it was started."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.load = 42.0
        self.last = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        while not self._end.wait(0.1):
            now = int(time.time())
            if now > self.last:
                cards = {card: {"utilization": self.load, "power_w": 100.0} for card in CARDS}
                say_second(self.host, now, {**cards, "host": {"cpu": 5.0}})
                self.last = now

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        if self._thread.ident:
            self._thread.join(10)


class Charts:
    """The open page: its charts, and when they asked the panel for what."""

    def __init__(self, page: Page, host: Host) -> None:
        self.page = page
        self.host = host
        self.section = page.locator(f"#history-{host.pk}")
        self.state = self.section.locator(".history-state")
        self.whole = self.section.locator("[data-whole]")
        self.asked: list[tuple[float, str]] = []
        page.on("request", self._note)

    def _note(self, request: Request) -> None:
        if "subject=" in request.url:
            self.asked.append((time.monotonic(), request.url))

    def chart(self, title: str) -> Locator:
        return self.section.locator(".chart").filter(has=self.page.get_by_text(title, exact=True))

    def value(self, title: str) -> Locator:
        """The first value of a chart in words."""
        return self.chart(title).locator(".chart-value b").first

    def x_of(self, seconds_ago: float) -> float:
        box = self.chart("Load").locator(".u-over").bounding_box()
        assert box
        return box["x"] + box["width"] * (1 - seconds_ago / RANGE)

    def point(self, seconds_ago: float) -> None:
        """Put the pointer on the chart of the load at a moment."""
        box = self.chart("Load").locator(".u-over").bounding_box()
        assert box
        self.page.mouse.move(self.x_of(seconds_ago), box["y"] + box["height"] / 2, steps=3)

    def drag(self) -> None:
        self.point(280)
        self.page.mouse.down()
        self.point(150)
        self.page.mouse.up()

    def leave(self) -> None:
        self.page.mouse.move(2, 2)


@contextmanager
def opened(user: User, address: str) -> Iterator[Page]:
    """The GPU page; an error fails the test, except that the network is away."""
    said: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        context = browser.new_context(base_url=address, viewport={"width": 1440, "height": 900})
        context.add_cookies([{"name": n, "value": v, "url": address} for n, v in cookies(user).items()])
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda note: said.append(note.text) if note.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto("/gpus/")
        yield page
        browser.close()
    assert [text for text in said if "ERR_INTERNET_DISCONNECTED" not in text] == []


@pytest.fixture
def charts(
    redis_server: redis.Redis, host: Host, charlie: User, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Charts]:
    """The page of two cards whose last sample is old, and of a server that was started."""
    # Playwright keeps an event loop in this thread, in which Django refuses to ask the database.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    publish_cards(*(GpuSample(number, uuid=card[4:]) for number, card in enumerate(CARDS)))
    now = int(time.time())
    for card in CARDS:
        store(host, card, 0, now - OLD - 230, 23, lambda at, field: 30.0)
    row = pages.profile("Qwen", "ready", instance={"ready_at": timezone.now() - timedelta(seconds=180)})
    Run.objects.filter(pk=pages.run_of(row).pk).update(created_at=timezone.now() - timedelta(seconds=200))
    expect.set_options(timeout=PATIENCE)
    with web() as address, opened(charlie, address) as page:
        yield Charts(page, host)


@pytest.fixture
def agent(charts: Charts) -> Iterator[Agent]:
    made = Agent(charts.host)
    yield made
    made.end()


def test_charts_of_a_card_follow_it_pause_zoom_keep_holes_and_outlast_the_network(
    charts: Charts, agent: Agent
) -> None:
    page, state = charts.page, charts.state
    page.evaluate(
        """(element) => {
          window.states = []
          new MutationObserver(() => {
            const state = element.dataset.state
            if (states[states.length - 1] !== state) states.push(state)
          }).observe(element, { attributes: true, attributeFilter: ['data-state'] })
        }""",
        state.element_handle(),
    )
    page.locator(f"#charts-{charts.host.pk}-0").click()
    expect(charts.section).to_have_attribute("open", "")
    expect(state).to_contain_text("not current since ")
    expect(charts.value("Load")).to_have_text("–")
    expect(charts.chart("Load").locator(".chart-value")).to_have_count(1)

    # Nothing new: what is drawn stays, and the panel is asked for all of it only now and then.
    agent.start()
    expect(state).to_have_text("live")
    assert page.evaluate("states") == ["loading", "stale", "live"]
    times = [at for at, _url in charts.asked]
    assert times[1] - times[0] > 9
    agent.load = 77.0
    expect(charts.value("Load")).to_have_text("77 %")
    expect(charts.value("CPU of the host")).to_have_text("5 %")

    # A pointer on one chart: all say their values of its moment, a hole has none, and nothing moves.
    charts.point(200)
    expect(state).to_contain_text("paused")
    before, second = len(charts.asked), agent.last
    expect(charts.value("Load")).to_have_text("30 %")
    expect(charts.value("Temperature")).to_have_text("30 °C")
    expect(charts.value("CPU of the host")).to_have_text("–")
    charts.point(OLD - 40)
    expect(charts.value("Load")).to_have_text("–")
    wait_for(lambda: agent.last >= second + 3, 10, "three more seconds")
    assert len(charts.asked) == before
    agent.load = 12.0
    charts.leave()
    expect(state).to_have_text("live")
    expect(charts.value("Load")).to_have_text("12 %")

    charts.drag()
    expect(charts.whole).to_be_visible()
    charts.chart("Load").locator(".u-over").dblclick()
    expect(charts.whole).to_be_hidden()
    charts.drag()
    expect(charts.whole).to_be_visible()
    charts.leave()
    expect(state).to_have_text("a part is shown")
    charts.whole.click()
    expect(charts.whole).to_be_hidden()

    marks = charts.section.locator(".history-marks")
    marks.locator("summary").click()
    expect(marks.locator("li")).to_contain_text(["Qwen: ready", "Qwen: started"])

    charts.section.get_by_role("button", name="5 min", exact=True).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(charts.section.get_by_role("button", name="15 min")).to_have_attribute("aria-pressed", "true")
    assert "range=900" in charts.asked[-1][1]
    charts.leave()
    expect(state).to_have_text("live")

    page.context.set_offline(True)
    expect(state).to_contain_text("not current since ")
    expect(charts.section.get_by_role("alert")).to_be_visible()
    expect(charts.value("Load")).to_have_text("12 %")
    page.context.set_offline(False)
    expect(state).to_have_text("live")
    expect(charts.section.get_by_role("alert")).to_be_hidden()
