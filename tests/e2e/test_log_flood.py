"""A log under flood, with a shipper that is killed again and again, reaches socket and browser whole."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.e2e.panel import CHROMIUM, CHROMIUM_ARGS, ROOT, LogPanel, log_panel  # noqa: F401
from tests.waiting import wait_for

MOST, PACE = 400_000, 2_000  # lines in all, and a second
KILLS = 12
PAUSE = 18.0  # seconds of SIGSTOP: longer than a shipper waits for an answer of Valkey
TAG = re.compile(r"<[^>]*>")
PIECE = re.compile(r'<span class="lf" data-start="(\d+)" data-end="(\d+)"[^>]*>(.*)</span>', re.DOTALL)
GAP = re.compile(r'class="log-gap" data-start="(\d+)" data-end="(\d+)"')
SHOWN = "id => [...document.getElementById(id).children].map(line => line.textContent)"


def text_of(markup: str) -> str:
    return unescape(TAG.sub("", markup))


class Reader(threading.Thread):
    """A page without a browser: collects the log's text by its bytes."""

    def __init__(self, panel: LogPanel) -> None:
        super().__init__(daemon=True)
        self.pieces: list[tuple[int, int, str]] = []
        self.gaps: list[tuple[int, int]] = []
        self.frames: list[tuple[float, int]] = []
        self.end = -1
        self._panel = panel
        self._left = threading.Event()

    def run(self) -> None:
        cookie = {"Cookie": "=".join(self._panel.cookie)}
        address, origin = self._panel.socket_url, self._panel.url
        with connect(address, origin=origin, additional_headers=cookie, max_size=None, proxy=None) as socket:
            while not self._left.is_set():
                try:
                    message = socket.recv(timeout=0.5)
                except TimeoutError:
                    continue
                except ConnectionClosed:
                    return
                assert isinstance(message, str)
                if f'id="log-{self._panel.run_id}"' in message:
                    self.frames.append((time.monotonic(), len(message.encode())))
                    self.take(message)

    def leave(self) -> None:
        self._left.set()
        self.join(10)

    def take(self, message: str) -> None:
        self.gaps += [(int(start), int(end)) for start, end in GAP.findall(message)]
        for start, end, markup in PIECE.findall(message):
            self.pieces.append((int(start), int(end), text_of(markup)))
            self.end = int(end)

    def whole(self, client: httpx.Client, run_id: str) -> str:
        """The log's text from its first byte on: what came, and gaps and older text from the range call."""
        pieces = list(self.pieces)
        for start, end in [*self.gaps, (0, pieces[0][0])]:
            while start < end:
                answer = client.get(f"/runs/{run_id}/log/range/", params={"start": start, "end": end})
                (_, reached, markup) = PIECE.findall(answer.text)[0]
                pieces.append((start, int(reached), text_of(markup)))
                start = int(reached)
        pieces.sort()
        assert [piece[1] for piece in pieces[:-1]] == [piece[0] for piece in pieces[1:]]
        return "".join(text for _, _, text in pieces)


@contextmanager
def flood(panel: LogPanel, lines: int, pace: int) -> Iterator[subprocess.Popen[bytes]]:
    """A child that writes into the log; a test that fails does not leave it behind."""
    argv = [sys.executable, "-m", "tests.e2e.flood", str(lines), str(pace)]
    with panel.log.open("ab") as log, subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.fixture
def browser() -> Iterator[BrowserContext]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield chromium.new_context(viewport={"width": 1200, "height": 800})
        chromium.close()


@pytest.fixture
def messages() -> list[str]:
    """What the browser's console said that it should not."""
    return []


def open_log(browser: BrowserContext, panel: LogPanel, messages: list[str]) -> Page:
    browser.add_cookies([panel.browser_cookie()])  # type: ignore[list-item]
    page = browser.new_page()
    page.on("console", lambda note: messages.append(note.text) if note.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(f"{panel.url}/runs/{panel.run_id}/log/")
    return page


def shown(page: Page, panel: LogPanel) -> list[str]:
    found: list[str] = page.evaluate(SHOWN, f"log-{panel.run_id}")
    return found


def as_in_a_terminal(line: str) -> str:
    """A line after its carriage returns."""
    return line.split("\r")[-1] + "\n"


@pytest.mark.slow
def test_the_log_reaches_socket_and_browser_whole_while_the_shipper_is_killed(
    log_panel: LogPanel,  # noqa: F811
    browser: BrowserContext,
    messages: list[str],
) -> None:
    reader = Reader(log_panel)
    reader.start()
    page = open_log(browser, log_panel, messages)
    wait_for(lambda: reader.end == 0, 30, "the snapshot")
    with flood(log_panel, MOST, PACE) as child:
        for kill in range(KILLS):
            size = log_panel.log.stat().st_size
            wait_for(lambda size=size: log_panel.shipped() > size, 60, "the shipper to ship")  # type: ignore[misc]
            log_panel.kill_shipper()
            log_panel.start_shipper()
            if kill == KILLS // 2:
                assert log_panel.shipper is not None
                log_panel.shipper.send_signal(signal.SIGSTOP)
                page.wait_for_timeout(PAUSE * 1000)
                log_panel.shipper.send_signal(signal.SIGCONT)
        assert child.poll() is None, "the child must write until after the last kill"
        child.terminate()
        assert child.wait(60) == 0
    log_panel.end_run(3)
    data = log_panel.log.read_bytes()
    assert data.endswith(b"\n") and data.count(b"\n") > PAUSE * PACE / 2
    wait_for(lambda: reader.end == len(data), 60, f"all of the log\n{log_panel.said()}")
    with log_panel.client() as client:
        assert reader.whole(client, log_panel.run_id).encode() == data
    # A busy machine may deliver two frames at once, but never more than ten a second in all.
    assert len(reader.frames) <= 10 * (reader.frames[-1][0] - reader.frames[0][0]) + 5
    assert max(size for _, size in reader.frames) < 257 * 1024
    expected = [as_in_a_terminal(line) for line in data.decode().split("\n")[-2001:-1]]
    wait_for(lambda: shown(page, log_panel)[-1:] == expected[-1:], 60, "the last line in the browser")
    assert shown(page, log_panel) == expected
    page.wait_for_selector("text=ended with exit code 3", timeout=30_000)
    assert messages == []
    reader.leave()


LOG = [f"line {number}\n" for number in range(12_000)]


def scroll(page: Page, panel: LogPanel, where: str) -> None:
    page.eval_on_selector(f"#log-{panel.run_id}", f"pre => {{ pre.scrollTop = {where} }}")


def append(panel: LogPanel, first: int, last: int) -> None:
    with panel.log.open("a") as log:
        log.write("".join(LOG[first:last]))


def test_older_text_loads_from_the_file_and_new_text_waits_for_the_reader(
    log_panel: LogPanel,  # noqa: F811
    browser: BrowserContext,
    messages: list[str],
) -> None:
    append(log_panel, 0, 8000)
    page = open_log(browser, log_panel, messages)
    wait_for(lambda: shown(page, log_panel) == LOG[7500:8000], 30, "the snapshot")

    scroll(page, log_panel, "0")
    wait_for(lambda: shown(page, log_panel) == LOG[6500:8000], 30, "older text")
    assert page.get_attribute(".log-follow", "aria-pressed") == "false"
    scroll(page, log_panel, "0")
    wait_for(lambda: shown(page, log_panel) == LOG[5500:7500], 30, "still older text")

    pre = f"#log-{log_panel.run_id}"
    before = page.eval_on_selector(pre, "pre => pre.scrollTop")
    append(log_panel, 8000, 8010)
    wait_for(lambda: page.inner_text(".log-new").split()[:1] == ["10"], 30, "the count of new lines")
    assert page.eval_on_selector(pre, "pre => pre.scrollTop") == before
    assert shown(page, log_panel) == LOG[5500:7500]

    scroll(page, log_panel, "pre.scrollHeight")
    wait_for(lambda: shown(page, log_panel) == LOG[6010:8010], 30, "the text up to the end")
    scroll(page, log_panel, "pre.scrollHeight")
    page.wait_for_selector(".log-follow[aria-pressed=true]", timeout=30_000)
    append(log_panel, 8010, 9000)
    wait_for(lambda: shown(page, log_panel) == LOG[7000:9000], 30, "the end of the log")
    left = "pre => pre.scrollHeight - pre.scrollTop - pre.clientHeight"
    wait_for(lambda: page.eval_on_selector(pre, left) < 2, 30, "the page to be at the end")
    assert messages == []


def test_text_that_was_left_out_shows_as_a_gap_that_fills_from_the_file(
    log_panel: LogPanel,  # noqa: F811
    browser: BrowserContext,
    messages: list[str],
) -> None:
    append(log_panel, 0, 8000)
    page = open_log(browser, log_panel, messages)
    wait_for(lambda: shown(page, log_panel) == LOG[7500:8000], 30, "the snapshot")
    for first in (6500, 5500):
        scroll(page, log_panel, "0")
        wait_for(lambda first=first: shown(page, log_panel)[0] == LOG[first], 30, "older text")  # type: ignore[misc]
    page.click(".log-follow")
    append(log_panel, 8000, 8010)
    gap = page.locator(".log-gap")
    wait_for(lambda: shown(page, log_panel)[-11:] == ["", *LOG[8000:8010]], 30, "a gap before the new lines")
    assert gap.get_attribute("data-label")
    gap.click()
    wait_for(lambda: shown(page, log_panel) == LOG[6010:8010], 30, "the gap to be filled")
    assert gap.count() == 0
    assert messages == []


def test_the_log_goes_on_when_valkey_comes_back_empty(
    log_panel: LogPanel,  # noqa: F811
) -> None:
    reader = Reader(log_panel)
    reader.start()
    with flood(log_panel, 8000, 2000) as child:
        wait_for(lambda: reader.end > 100_000, 60, "the flood")
        log_panel.restart_valkey(lambda: log_panel.log.stat().st_size > 300_000)
        assert child.wait(60) == 0
    data = log_panel.log.read_bytes()
    wait_for(lambda: reader.end == len(data), 60, f"all of the log\n{log_panel.said()}")
    wait_for(lambda: log_panel.shipped() == len(data), 60, "all of the log in the stream")
    with log_panel.client() as client:
        assert reader.whole(client, log_panel.run_id).encode() == data
    reader.leave()


def test_the_page_says_that_it_reconnects_and_goes_on(
    log_panel: LogPanel,  # noqa: F811
    browser: BrowserContext,
    messages: list[str],
) -> None:
    log_panel.log.write_text("before\n")
    page = open_log(browser, log_panel, messages)
    page.wait_for_selector("#connection[data-state=live]", timeout=30_000)
    wait_for(lambda: shown(page, log_panel) == ["before\n"], 30, "the snapshot")
    assert messages == []
    assert log_panel.web is not None
    log_panel.web.kill()
    log_panel.web.wait(10)
    page.wait_for_selector("#connection[data-state=reconnecting]", timeout=30_000)
    with log_panel.log.open("a") as log:
        log.write("meanwhile\n")
    log_panel.start_web()
    page.wait_for_selector("#connection[data-state=live]", timeout=30_000)
    wait_for(lambda: shown(page, log_panel) == ["before\n", "meanwhile\n"], 30, "what came meanwhile")
