"""The log viewer in a browser, on a log of 200,000 lines."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.panel import CHROMIUM, CHROMIUM_ARGS, LogPanel
from tests.waiting import wait_for

LINES = 200_000
MOST = 2000
MIDDLE = LINES // 2
ERRORS = (25_000, 75_000, 175_000)


def text_of(number: int) -> str:
    """The text of a line, counted from 0."""
    if number in ERRORS:
        return f"\x1b[1;31merror:\x1b[0m it broke at {number}"
    if number in {MIDDLE, LINES - 10}:
        return f"0.12.000.000 I here is the \x1b[32mNee\x1b[44mdle\x1b[0m {number}"
    if number % 50 == 3:
        return f"{number} " + "a long line that wraps " * 12
    return f"0.12.{number % 1000:03}.123 I slot print_timing: id  0 | task {number} | draft = 0.5"


def shown_of(number: int) -> str:
    """The same as the page shows it."""
    text = text_of(number)
    for sequence in ("\x1b[1;31m", "\x1b[32m", "\x1b[44m", "\x1b[0m"):
        text = text.replace(sequence, "")
    return text + "\n"


@pytest.fixture(scope="module")
def panel() -> Iterator[LogPanel]:
    """A panel whose one run has written all of its lines."""
    with LogPanel() as started:
        started.log.write_text("".join(text_of(number) + "\n" for number in range(LINES)))
        started.start_web()
        started.start_shipper()
        yield started


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


class Viewer:
    """The page of the log, and what its console said that it should not."""

    def __init__(self, chromium: Browser, panel: LogPanel) -> None:
        self.panel = panel
        self.context = chromium.new_context(viewport={"width": 1200, "height": 800}, locale="en-US")
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.context.add_cookies([panel.browser_cookie()])  # type: ignore[list-item]
        self.messages: list[str] = []
        self.page = self.new_page()

    def new_page(self) -> Page:
        page = self.context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda note: self.messages.append(note.text) if note.type != "log" else None)
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        return page

    def open(self, query: str = "") -> None:
        self.page.goto(f"{self.panel.url}/runs/{self.panel.run_id}/log/{query}")
        self.page.wait_for_selector("pre.log .l[data-n]")

    def lines(self) -> list[tuple[int, str]]:
        """The number and text of each line in the page."""
        found = self.page.eval_on_selector(
            "pre.log", "pre => [...pre.children].map(line => [Number(line.dataset.n || 0), line.textContent])"
        )
        assert len(found) <= MOST
        return [(number, text) for number, text in found]

    def check(self) -> None:
        """The lines are those of the file, without one missing, and each has its number."""

        def right() -> bool:
            lines = self.lines()
            begin = lines[0][0]  # not known yet after a jump: no number equals it
            return lines == [
                (begin + n, shown_of(int(begin) + n - 1)) for n in range(len(lines) if begin else 0)
            ]

        wait_for(right, 30, "the lines of the file with their numbers")

    def first(self) -> int:
        found = self.page.get_attribute("pre.log .l:first-child", "data-n")
        return int(found or 0)

    def scroll(self, where: str) -> None:
        self.page.eval_on_selector("pre.log", f"pre => {{ pre.scrollTop = {where} }}")

    def look_at(self, which: str) -> None:
        """Remember where the first or last line of the page is on the screen."""
        self.page.evaluate(
            """which => {
              window.read = document.querySelector(`pre.log .l:${which}-child`)
              window.place = window.read.getBoundingClientRect().top
            }""",
            which,
        )

    def moved(self) -> float:
        """By how many pixels that line has moved since."""
        found: float = self.page.evaluate("Math.abs(window.read.getBoundingClientRect().top - window.place)")
        return found

    def marked(self) -> str:
        """The text of the line that stands out, when there is one and it is in view."""
        found: str = self.page.evaluate(
            """() => {
              const line = document.querySelector('pre.log .at')
              if (!line) return ''
              const pre = document.querySelector('pre.log').getBoundingClientRect()
              const { top, bottom } = line.getBoundingClientRect()
              return top >= pre.top && bottom <= pre.bottom ? line.textContent : ''
            }"""
        )
        return found

    def wait_marked(self, number: int) -> None:
        wait_for(lambda: self.marked() == shown_of(number), 30, f"line {number} to stand out")

    def follows(self) -> bool:
        return self.page.get_attribute(".log-follow", "aria-pressed") == "true"


@pytest.fixture
def viewer(chromium: Browser, panel: LogPanel) -> Iterator[Viewer]:
    """A page that is not open yet; at the end its console must have been silent."""
    viewer = Viewer(chromium, panel)
    yield viewer
    messages = viewer.messages
    viewer.context.close()
    assert messages == []


def test_a_log_of_200_000_lines_opens_at_once_at_its_end(viewer: Viewer) -> None:
    began = time.monotonic()
    viewer.open()
    assert time.monotonic() - began < 10
    wait_for(lambda: viewer.lines()[-1] == (LINES, shown_of(LINES - 1)), 30, "the last line")
    viewer.check()
    assert viewer.follows()
    wait_for(lambda: "line 200,000" in viewer.page.inner_text(".log-place"), 30, "the place")
    assert viewer.page.inner_text(".log-place").endswith("MiB")


def test_scrolling_loads_what_is_missing_and_never_moves_what_is_read(viewer: Viewer) -> None:
    viewer.open()
    viewer.page.focus("pre.log")
    viewer.page.keyboard.press("Home")
    wait_for(lambda: viewer.first() == 1, 30, "the first line")
    viewer.check()
    assert not viewer.follows()
    for _ in range(4):
        before = viewer.lines()[-1][0]
        viewer.scroll("pre.scrollHeight")
        viewer.look_at("last")
        wait_for(lambda before=before: viewer.lines()[-1][0] > before, 30, "newer lines")  # type: ignore[misc]
        viewer.check()
        assert viewer.moved() < 2
    first = viewer.first()
    assert first > 1
    viewer.scroll("0")
    viewer.look_at("first")
    wait_for(lambda: viewer.first() < first, 30, "older lines")
    viewer.check()
    assert viewer.moved() < 2
    viewer.page.click(".log-end")
    wait_for(lambda: viewer.lines()[-1] == (LINES, shown_of(LINES - 1)), 30, "the end")
    viewer.check()
    assert viewer.follows()


def test_a_search_goes_through_the_whole_file(viewer: Viewer) -> None:
    viewer.open()
    viewer.page.keyboard.press("/")
    viewer.page.keyboard.type("the needle")
    count = viewer.page.locator(".log-count")
    # What is in view comes first.
    wait_for(lambda: count.inner_text() == "line 2 of 2", 30, "a match")
    viewer.wait_marked(LINES - 10)
    viewer.page.keyboard.press("Enter")
    wait_for(lambda: count.inner_text() == "line 1 of 2", 30, "the match in the middle")
    viewer.wait_marked(MIDDLE)
    marks = viewer.page.locator("pre.log .at mark").all_inner_texts()
    assert "".join(marks) == "the Needle"
    viewer.check()
    viewer.page.keyboard.press("Enter")
    wait_for(lambda: count.inner_text() == "line 2 of 2", 30, "the next match")
    viewer.wait_marked(LINES - 10)
    viewer.page.keyboard.press("Enter")
    viewer.wait_marked(MIDDLE)
    viewer.page.keyboard.press("Shift+Enter")
    viewer.wait_marked(LINES - 10)
    viewer.page.click(".log-case")
    wait_for(lambda: count.inner_text() == "not found", 30, "the case to matter")
    viewer.page.fill(".log-query", "slot")
    wait_for(lambda: "more than 10,000 lines" in count.inner_text(), 30, "the bound of the count")
    viewer.page.keyboard.press("Escape")
    wait_for(lambda: viewer.page.locator("pre.log mark").count() == 0, 30, "no marks")
    wait_for(lambda: count.inner_text() == "", 30, "no count")
    viewer.check()


def test_errors_are_counted_over_the_whole_file_and_gone_to(viewer: Viewer) -> None:
    viewer.open()
    count = viewer.page.locator(".log-error-count")
    wait_for(lambda: count.inner_text() == "3 errors", 30, "the errors")
    for place in (2, 1, 0, 2):
        viewer.page.click(".log-errors [data-go=prev]")
        wait_for(lambda place=place: count.inner_text() == f"error {place + 1} of 3", 30, "an error")  # type: ignore[misc]
        viewer.wait_marked(ERRORS[place])
        viewer.page.wait_for_selector(f"pre.log .at[data-n='{ERRORS[place] + 1}']")
    assert viewer.page.locator("pre.log .at.e").count() == 1


def test_a_link_to_a_line_opens_it_in_the_middle(viewer: Viewer, panel: LogPanel) -> None:
    viewer.open()
    viewer.page.focus("pre.log")
    viewer.page.keyboard.press("Home")
    wait_for(lambda: viewer.first() == 1, 30, "the first line")
    viewer.page.locator("pre.log .l").nth(300).scroll_into_view_if_needed()
    viewer.page.locator("pre.log .l").nth(300).click(position={"x": 20, "y": 5})
    viewer.wait_marked(300)
    wait_for(lambda: "copied" in viewer.page.inner_text(".log-said"), 30, "the link to be copied")
    address = viewer.page.url
    assert viewer.page.evaluate("navigator.clipboard.readText()") == address
    offset = sum(len(text_of(number)) + 1 for number in range(300))
    assert address == f"{panel.url}/runs/{panel.run_id}/log/?at={offset}"

    viewer.page = viewer.new_page()
    viewer.page.goto(address)
    viewer.wait_marked(300)
    assert not viewer.follows()
    middle = viewer.page.evaluate(
        """() => {
          const pre = document.querySelector('pre.log').getBoundingClientRect()
          const line = document.querySelector('pre.log .at').getBoundingClientRect()
          return line.top + line.height / 2 - pre.top - pre.height / 2
        }"""
    )
    assert abs(middle) < 40
    wait_for(lambda: viewer.first() == 1, 30, "its number")
    viewer.check()
    for hostile in ("9" * 15, "-5", "%22%3E%3Cb%3E", "1e3", str(offset + 3)):
        viewer.page.goto(f"{panel.url}/runs/{panel.run_id}/log/?at={hostile}")
        viewer.page.wait_for_selector("pre.log .l[data-n]")
        viewer.check()
    viewer.wait_marked(300)


def test_copy_takes_whole_lines_of_the_selection_or_of_what_is_in_view(viewer: Viewer) -> None:
    viewer.open()
    viewer.page.focus("pre.log")
    viewer.page.keyboard.press("Home")
    wait_for(lambda: viewer.first() == 1, 30, "the first line")
    viewer.page.click(".log-copy")
    wait_for(lambda: "copied" in viewer.page.inner_text(".log-said"), 30, "the lines to be copied")
    text: str = viewer.page.evaluate("navigator.clipboard.readText()")
    number = text.count("\n")
    assert number > 10
    assert text == "".join(map(shown_of, range(number)))
    viewer.page.evaluate(
        """() => {
          const lines = document.querySelectorAll('pre.log .l')
          document.getSelection().setBaseAndExtent(lines[4].firstChild, 7, lines[6].firstChild, 3)
        }"""
    )
    viewer.page.click(".log-copy")
    expected = "".join(map(shown_of, (4, 5, 6)))
    wait_for(lambda: viewer.page.evaluate("navigator.clipboard.readText()") == expected, 30, "three lines")


def test_choices_last_and_the_page_fits_a_telephone(viewer: Viewer) -> None:
    viewer.page.set_viewport_size({"width": 390, "height": 844})
    viewer.open()
    height = "document.querySelector('pre.log .l:nth-last-child(46)').offsetHeight"
    assert shown_of(LINES - 47) == viewer.lines()[-47][1]
    assert viewer.page.evaluate("document.documentElement.scrollWidth") <= 390
    wrapped = viewer.page.evaluate(height)
    viewer.page.click(".log-wrap")
    assert viewer.page.evaluate(height) < wrapped
    viewer.page.reload()
    viewer.page.wait_for_selector("pre.log .l[data-n]")
    assert viewer.page.get_attribute(".log-wrap", "aria-pressed") == "false"
    assert viewer.page.evaluate(height) < wrapped
    assert viewer.page.evaluate("document.documentElement.scrollWidth") <= 390


# These change the log: they come last.


def test_follow_ends_on_scroll_up_and_begins_again_at_the_end(viewer: Viewer, panel: LogPanel) -> None:
    viewer.open()
    viewer.page.click(".log-times")
    with panel.log.open("a") as log:
        log.write("\x1b[33mlive one\nlive two\n")
    wait_for(lambda: viewer.lines()[-1] == (LINES + 2, "live two\n"), 30, "live lines")
    line = viewer.page.locator("pre.log .l:last-child")
    assert line.locator(".ansi33").inner_text() == "live two"
    wait_for(lambda: (line.get_attribute("data-time") or "").count(":") == 2, 30, "its time")
    assert viewer.page.locator("pre.log .l[data-time]").count() == 2
    assert viewer.page.eval_on_selector(
        "pre.log .l:last-child", "line => getComputedStyle(line, '::after').content"
    ) not in {"none", '""'}

    viewer.page.hover("pre.log")
    viewer.page.mouse.wheel(0, -300)
    wait_for(lambda: not viewer.follows(), 30, "follow to end")
    place = viewer.page.eval_on_selector("pre.log", "pre => pre.scrollTop")
    with panel.log.open("a") as log:
        log.write("".join(f"more {number}\n" for number in range(5)))
    wait_for(lambda: viewer.page.inner_text(".log-new").startswith("5"), 30, "the count of new lines")
    assert viewer.page.eval_on_selector("pre.log", "pre => pre.scrollTop") == place
    for _ in range(3):
        viewer.page.mouse.wheel(0, 2000)
    wait_for(viewer.follows, 30, "follow to begin again")
    wait_for(lambda: viewer.lines()[-1] == (LINES + 7, "more 4\n"), 30, "the last of the new lines")
    with panel.log.open("a") as log:
        log.write("the end\n")
    wait_for(lambda: viewer.lines()[-1] == (LINES + 8, "the end\n"), 30, "the last line")
    left = "pre => pre.scrollHeight - pre.scrollTop - pre.clientHeight"
    wait_for(lambda: viewer.page.eval_on_selector("pre.log", left) < 2, 30, "the page to be at the end")


def test_the_page_says_that_older_text_was_removed(viewer: Viewer, panel: LogPanel) -> None:
    removed = sum(len(text_of(number)) + 1 for number in range(MIDDLE))
    panel.manage(
        "shell", "-v", "0", "-c", f"from jobs.models import Run; Run.objects.update(log_start={removed})"
    )
    viewer.page.goto(f"{panel.url}/runs/{panel.run_id}/log/")
    viewer.page.wait_for_selector("pre.log .l")
    # The script says it once it knows where the log begins.
    wait_for(lambda: viewer.page.get_attribute("pre.log", "data-removed") == "", 30, "nothing to be said")
    viewer.page.click(".log-start")
    wait_for(lambda: viewer.lines()[0][1] == shown_of(MIDDLE), 30, "the first line that is left")
    wait_for(
        lambda: "MiB) was removed" in (viewer.page.get_attribute("pre.log", "data-removed") or ""),
        30,
        "a line",
    )
    assert "line" not in viewer.page.inner_text(".log-place")
    wait_for(lambda: viewer.page.inner_text(".log-error-count") == "1 error", 30, "the errors that are left")
