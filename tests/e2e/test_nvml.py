"""The host agent and NVIDIA cards: changes, errors, a lost card, a driver that hangs, none at all."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from playwright.sync_api import sync_playwright

from jobs.domain.gpu import GpuSample, Sample
from tests.e2e.agent import STREAM, AgentPanel
from tests.e2e.panel import CHROMIUM, CHROMIUM_ARGS
from tests.fakes.nvml import FakeNvml, nvml_library  # noqa: F401
from tests.waiting import wait_for

MEMORY = "nvmlDeviceGetMemoryInfo_v2"
HANG = 12  # seconds
LINES, PACE = 8000, 400  # lines of the flood, and how many a second

FLOOD = f"""
import time
began = time.time()
for number in range({LINES}):
    print(number, f"{{time.time():.3f}}", flush=True)
    time.sleep(max(0, began + (number + 1) / {PACE} - time.time()))
"""


@pytest.fixture(scope="module")
def cards(nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:  # noqa: F811
    """The cards that the agent of this module sees."""
    return FakeNvml(nvml_library, tmp_path_factory.mktemp("state") / "nvml.state")


@pytest.fixture(scope="module")
def agent(cards: FakeNvml) -> Iterator[AgentPanel]:
    """A running agent."""
    with AgentPanel(cards) as panel:
        panel.start_agent()
        yield panel


@pytest.fixture(autouse=True)
def two_idle_cards(cards: FakeNvml) -> None:
    """What each test begins with."""
    cards.reset()


def working(sample: Sample) -> bool:
    """Whether two cards answer in full."""
    return sample.since is None and [card.memory_used_mib for card in sample.gpus.gpus] == [300, 300]


def card(sample: Sample | None, index: int) -> GpuSample:
    assert sample is not None
    return sample.gpus.gpus[index]


def test_a_change_of_a_card_reaches_the_stream(agent: AgentPanel, cards: FakeNvml) -> None:
    agent.until(working, "two cards")
    before = agent.events()
    cards.card(1, used=21000, util=97, temp=71, power=287400, smclock=1695, memclock=9501, fan=62)
    cards.card(1, throttle="0x44", pciegen=1, pcierx=2048)
    sample = agent.until(lambda found: card(found, 1).memory_used_mib == 21000, "the change")
    found = card(sample, 1)
    assert (found.utilization, found.temperature, found.power_w, found.power_limit_w) == (97, 71, 287.4, 350)
    assert (found.clock_mhz, found.memory_clock_mhz, found.fan) == (1695, 9501, 62)
    assert (found.pcie_gen, found.pcie_width, found.pcie_width_max, found.pcie_rx_mib_s) == (1, 8, 16, 2)
    assert found.throttle == ("power_limit", "hardware_heat")
    assert card(sample, 0).memory_used_mib == 300
    assert (sample.gpus.driver, sample.gpus.cuda) == ("580.95.05", "13.0")
    wait_for(lambda: agent.events() > before, 10, "pages to be told")
    entries: Any = agent.redis.xrange(STREAM)
    assert len(entries) == 1
    assert abs(float(entries[0][1][b"time"]) - time.time()) < 30


def test_samples_that_say_nothing_new_are_fresh_but_wake_no_page(agent: AgentPanel) -> None:
    first = agent.until(working, "two cards")
    # A sample is in the stream before pages are told of it: the next one says that this is over.
    second = agent.until(lambda found: found.time > first.time, "the next sample")
    told = agent.events()
    agent.until(lambda found: found.time > second.time + 3, "later samples")
    assert agent.events() == told


def test_a_value_that_the_driver_does_not_give_is_unknown_and_the_others_go_on(
    agent: AgentPanel, cards: FakeNvml
) -> None:
    cards.card(0, {"error.nvmlDeviceGetFanSpeed": 3, "error.nvmlDeviceGetUtilizationRates": 999})
    cards.card(0, {f"error.nvmlDeviceGet{kind}RunningProcesses_v3": 3 for kind in ("Compute", "Graphics")})
    cards.card(0, {"error.nvmlDeviceGetTemperature": 3, "temp": 66})
    cards.card(1, {f"error.{MEMORY}": 13})
    sample = agent.until(lambda found: card(found, 0).fan is None, "the unknown fan")
    found = card(sample, 0)
    assert (found.fan, found.utilization, found.processes) == (None, None, None)
    assert (found.temperature, found.memory_used_mib, found.lost, found.error) == (66, 300, False, None)
    older = card(agent.until(lambda found: card(found, 1).memory_used_mib == 650, "the older call"), 1)
    assert (older.memory_total_mib, older.memory_reserved_mib, older.fan) == (24576, None, 0)


def test_a_card_is_lost_and_comes_back_while_the_other_goes_on(agent: AgentPanel, cards: FakeNvml) -> None:
    agent.until(working, "two cards")
    cards.card(1, error=15)
    sample = agent.until(lambda found: card(found, 1).lost, "the lost card")
    lost = card(sample, 1)
    assert (lost.error, lost.name, lost.memory_used_mib) == ("GPU is lost", "NVIDIA GeForce RTX 3090", None)
    cards.card(0, used=12000)
    sample = agent.until(lambda found: card(found, 0).memory_used_mib == 12000, "the other card")
    assert card(sample, 1).lost
    cards.card(1, error=None)
    agent.until(lambda found: card(found, 1).memory_used_mib == 300, "the card to come back")


def test_a_card_may_be_lost_in_the_middle_of_a_reading(agent: AgentPanel, cards: FakeNvml) -> None:
    cards.card(0, {"error.nvmlDeviceGetPowerUsage": 15})
    sample = agent.until(lambda found: card(found, 0).lost, "the lost card")
    assert card(sample, 0).memory_used_mib is None
    assert card(sample, 1).memory_used_mib == 300


def test_a_driver_that_goes_away_is_found_again(agent: AgentPanel, cards: FakeNvml) -> None:
    agent.until(working, "two cards")
    cards.set(init_error=18)
    cards.function("error.nvmlDeviceGetCount_v2", 999)
    sample = agent.until(lambda found: found.gpus.problem == "mismatch", "the driver to be gone")
    assert sample.gpus.gpus == ()
    assert "version mismatch" in str(sample.gpus.error)
    cards.reset()
    agent.until(working, "two cards again")


def test_eight_cards_are_read_in_time(agent: AgentPanel, cards: FakeNvml) -> None:
    cards.set(count=8)
    cards.card(7, used=9000)
    sample = agent.until(lambda found: len(found.gpus.gpus) == 8, "eight cards")
    assert sample.since is None
    assert [found.index for found in sample.gpus.gpus] == list(range(8))
    assert card(sample, 7).memory_used_mib == 9000
    assert len({found.uuid for found in sample.gpus.gpus}) == 8
    later = agent.until(lambda found: found.time > sample.time + 2, "the next ones")
    assert later.since is None


def test_processes_have_names_and_ours_are_known(agent: AgentPanel, cards: FakeNvml) -> None:
    _, own = agent.spawn("/bin/sleep", "60")
    assert agent.agent is not None
    other, gone = agent.agent.pid, 4_194_000
    cards.card(0, {f"proc.{own}": 18000, f"proc.{other}": 700, f"gfx.{other}": 700, f"proc.{gone}": 12})

    def listed(sample: Sample) -> list[tuple[int, str | None, int | None, bool | None]]:
        found = card(sample, 0).processes
        return [(item.pid, item.name, item.memory_mib, item.ours) for item in found or ()]

    comm = Path(f"/proc/{other}/comm").read_text().strip()
    expected = [(own, "sleep", 18000, True), (other, comm, 700, False), (gone, None, 12, False)]
    agent.until(lambda sample: listed(sample) == expected, "the processes")
    # The command asks the driver itself.
    answer = json.loads(agent.manage("gpus", "--json"))
    assert [item["ours"] for item in answer["gpus"][0]["processes"]] == [True, False, False]


class Follower(threading.Thread):
    """Reads a run's stream as a web process does, and notes how late each line comes."""

    def __init__(self, panel: AgentPanel, run_id: str) -> None:
        super().__init__(daemon=True)
        self.text = b""
        self.latest = 0.0
        self._stream = f"log:{run_id}"
        self._client = redis.Redis(unix_socket_path=str(panel.socket), socket_timeout=30)

    def run(self) -> None:
        place: dict[Any, Any] = {self._stream: "0-0"}
        while True:
            found: Any = self._client.xread(place, block=1000)
            now = time.time()
            for entry, fields in found[0][1] if found else ():
                place[self._stream] = entry
                if b"eof" in fields:
                    return
                self.text += fields[b"data"]
                lines = fields[b"data"].split(b"\n")
                if len(lines) > 2:  # the first of them may be cut
                    self.latest = max(self.latest, now - float(lines[1].split()[1]))


@pytest.mark.slow
def test_a_driver_that_hangs_delays_no_line_of_a_log_and_no_heartbeat(
    agent: AgentPanel, cards: FakeNvml
) -> None:
    agent.until(working, "two cards")
    run_id, _ = agent.spawn(sys.executable, "-u", "-c", FLOOD)
    follower = Follower(agent, run_id)
    follower.start()
    wait_for(lambda: follower.text, 30, "the log")
    cards.card(0, {f"hang.{MEMORY}": HANG, "used": 5000})
    sample = agent.until(lambda found: found.since is not None, "the sample to be old")
    seen, shipped = agent.heartbeat(), len(follower.text)
    assert sample.gpus.problem == "silent"
    assert card(sample, 0).memory_used_mib == 300
    assert sample.since is not None and sample.time - sample.since < HANG
    cards.card(0, {f"hang.{MEMORY}": None})
    wait_for(lambda: agent.heartbeat() != seen, 60, "the next heartbeat")
    assert len(follower.text) > shipped
    still = agent.sample()
    assert still is not None and still.since == sample.since, "the driver must still hang"
    agent.until(lambda found: found.since is None and card(found, 0).memory_used_mib == 5000, "samples")
    follower.join(120)
    numbers = [int(line.split()[0]) for line in follower.text.decode().splitlines()]
    assert numbers == list(range(LINES))
    assert follower.latest < HANG / 3


def test_an_agent_whose_driver_hangs_ends_at_once(agent: AgentPanel, cards: FakeNvml) -> None:
    agent.until(working, "two cards")
    cards.card(1, {f"hang.{MEMORY}": 90})
    agent.until(lambda found: found.since is not None, "the sample to be old")
    database = sqlite3.connect(agent.data / "db.sqlite3", isolation_level=None, timeout=20)
    database.execute("begin immediate")  # nor does it get a place to store the last seconds in
    began = time.monotonic()
    agent.stop_agent()
    assert time.monotonic() - began < 10
    database.close()
    cards.reset()
    agent.start_agent()
    agent.until(working, "two cards")


def test_a_host_without_a_driver_says_so() -> None:
    with AgentPanel(None) as panel:
        panel.start_agent()
        sample = panel.until(lambda found: True, "a sample")
        assert (sample.gpus.gpus, sample.gpus.problem, sample.since) == ((), "no_driver", None)
        answer = json.loads(panel.manage("gpus", "--json"))
    assert answer["gpus"] == [] and answer["driver"] is None
    assert "no NVIDIA driver" in answer["error"]


def test_the_command_answers_with_the_agreed_fields(agent: AgentPanel, cards: FakeNvml) -> None:
    cards.card(0, used=21000)
    answer = json.loads(agent.manage("gpus", "--json"))
    assert (answer["driver"], answer["cuda"], answer["error"]) == ("580.95.05", "13.0", None)
    first = answer["gpus"][0]
    assert first["name"] == "NVIDIA GeForce RTX 3090"
    assert (first["memory_total_mib"], first["memory_used_mib"]) == (24576, 21000)
    for key in ("index", "uuid", "utilization", "temperature", "power_w", "power_limit_w", "processes"):
        assert first[key] is not None
    assert "21000 / 24576 MiB" in agent.manage("gpus")


@pytest.mark.parametrize(
    "state,words",
    [
        ({"init_error": 9}, "not loaded"),
        ({"init_error": 18}, "version mismatch"),
        ({"init_error": 4}, "may not read"),
        ({"init_error": 999}, "Unknown Error"),
        ({"count": 0}, "finds no card"),
    ],
)
def test_a_driver_that_does_not_work_is_named_in_words(
    agent: AgentPanel, cards: FakeNvml, state: dict[str, int], words: str
) -> None:
    cards.set(**state)
    answer = json.loads(agent.manage("gpus", "--json"))
    assert answer["gpus"] == []
    assert words in answer["error"]
    assert answer["remedy"]


@pytest.mark.slow
def test_an_open_page_follows_the_cards_and_says_when_they_are_old(
    agent: AgentPanel, cards: FakeNvml
) -> None:
    agent.until(working, "two cards")
    agent.start_web()
    said: list[str] = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        page = chromium.new_page(viewport={"width": 390, "height": 844})
        page.on("console", lambda note: said.append(note.text) if note.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.context.add_cookies([agent.browser_cookie()])  # type: ignore[list-item]
        page.goto(f"{agent.url}/gpus/")
        page.wait_for_selector("#connection[data-state=live]", timeout=30_000)
        cards.card(1, used=21504, temp=83)
        page.wait_for_selector("#gpus >> text=21.0 / 24.0 GiB", timeout=30_000)
        page.wait_for_selector("#gpu-strip >> text=83 °C", timeout=30_000)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        agent.stop_agent()
        page.wait_for_selector("#gpus .is-stale >> text=/Stale since [0-9:]{8}/", timeout=120_000)
        page.wait_for_selector("#gpu-strip .is-stale", timeout=30_000)
        agent.start_agent()
        page.wait_for_selector("#gpus .card:not(.is-stale)", timeout=60_000)
        chromium.close()
    assert said == []
