"""A browser on the GPU page while cards change, fail, hang, are lost and come back: no reload in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.e2e.agent import AgentPanel
from tests.e2e.panel import CHROMIUM, CHROMIUM_ARGS
from tests.fakes.nvml import FakeNvml, nvml_library  # noqa: F401

MEMORY = "nvmlDeviceGetMemoryInfo_v2"
HANG = 7  # seconds
PATIENCE = 30_000  # ms

pytestmark = pytest.mark.slow


@pytest.fixture
def cards(nvml_library: Path, tmp_path: Path) -> FakeNvml:  # noqa: F811
    """Two idle cards."""
    return FakeNvml(nvml_library, tmp_path / "nvml.state")


@pytest.fixture
def tab(cards: FakeNvml) -> Iterator[Page]:
    """The GPU page of a running panel with these cards; what its console says fails the test."""
    said: list[str] = []
    with AgentPanel(cards) as panel, sync_playwright() as playwright:
        panel.start_agent()
        panel.start_web()
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        page = chromium.new_page(viewport={"width": 390, "height": 844})
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda note: said.append(note.text) if note.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.context.add_cookies([panel.browser_cookie()])  # type: ignore[list-item]
        panel.until(lambda sample: len(sample.gpus.gpus) == 2, "two cards")
        page.goto(f"{panel.url}/gpus/")
        page.wait_for_selector("#connection[data-state=live]")
        page.evaluate("window.loadedOnce = true")
        yield page
        assert page.evaluate("window.loadedOnce"), "the page was loaded again"
        chromium.close()
    assert said == []


def value(card: Locator, label: str) -> Locator:
    """One cell of a card."""
    return card.locator(f"td[data-label='{label}']")


def test_an_open_page_follows_cards_that_change_fail_hang_and_are_lost(tab: Page, cards: FakeNvml) -> None:
    expect.set_options(timeout=PATIENCE)
    first, second = (tab.locator(f"#gpus tbody[data-label='{index}']") for index in (0, 1))
    strip = tab.locator("#gpu-strip .gpu-mini")

    cards.card(1, {"used": 21504, "temp": 83, "util": 97, "proc.1": 20000, "eccon": 1, "uecc": 2})
    expect(value(second, "Memory")).to_contain_text("21.0 / 24.0 GiB")
    expect(value(second, "Programs")).to_contain_text("pid 1, root 20,000 MiB")
    expect(value(second, "Programs")).to_contain_text("driver and unknown 1,504 MiB")
    expect(value(second, "Programs")).to_contain_text("uncorrected 2")
    expect(strip.nth(1)).to_contain_text("83 °C")
    expect(value(first, "Memory")).to_contain_text("0.3 / 24.0 GiB")

    cards.card(1, {"error.nvmlDeviceGetFanSpeed": 3, "error.nvmlDeviceGetPowerUsage": 999})
    expect(value(second, "Fan")).to_have_text("–")
    expect(value(second, "Power / limit")).to_have_text("– / 350 W")
    expect(value(second, "State")).to_have_text("works")

    cards.card(0, {f"hang.{MEMORY}": HANG, "used": 5120})
    expect(tab.locator("#gpus .is-stale")).to_contain_text("The NVIDIA driver does not answer.")
    expect(tab.locator("#gpus .gpu-note time")).to_contain_text("Stale since ")
    expect(value(second, "State")).to_have_text("not current")
    expect(value(second, "Memory")).to_contain_text("21.0 / 24.0 GiB")
    cards.card(0, {f"hang.{MEMORY}": None})
    expect(value(first, "Memory")).to_contain_text("5.0 / 24.0 GiB")
    expect(tab.locator("#gpus .is-stale")).to_have_count(0)

    cards.card(1, error=15, xid="79@1")
    expect(value(second, "State")).to_have_text("lost")
    expect(value(second, "Memory")).to_have_text("–")
    expect(value(second, "Programs")).to_contain_text("A card vanished from the PCIe bus")
    expect(strip.nth(1)).to_contain_text("lost")
    expect(value(first, "State")).to_have_text("works")
    cards.card(1, error=None)
    expect(value(second, "State")).to_have_text("works")
    expect(value(second, "Memory")).to_contain_text("21.0 / 24.0 GiB")
    expect(value(second, "Programs")).to_contain_text("Xid 79 at ")

    cards.set(count=8)
    expect(strip).to_have_count(8)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
