"""Many viewers of the GPU page beside a flooding log, on a whole panel with 8 fake cards and 5 servers.

`python -m tests.benchmarks.gpu_viewers [VIEWERS SECONDS]`. Goals: every sample at every viewer, every line at
every log viewer, and nobody late. The servers are fake ones; one of them writes LINES log lines a second.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from websockets.asyncio.client import connect

from tests.benchmarks.figures import answer, cpu_seconds, percentile, pss_mib
from tests.e2e.whole import Panel
from tests.fakes import llama_flags
from tests.fakes.nvml import FakeNvml, build_library
from tests.models import plain_model
from tests.waiting import wait_for

CARDS, SERVERS, LINES, LOG_VIEWERS = 8, 5, 1000, 5
CALM = 30  # seconds without a viewer in which the agent alone is measured
BASE = 1000  # MHz; the clock of the first card counts the seconds from here on
ROLES = ("web", "agent", "valkey")
CLOCK = re.compile(r"\b(1\d\d\d) MHz")
LINE = re.compile(r"flood line (\d+)")
SEED = """
from pathlib import Path
from jobs.models import Build
from jobs.services.artifacts import register_artifact
from jobs.services.audit import Actor
from jobs.services.builds import register_build
from jobs.services.hosts import local_host
from controlpanel.management.commands.demo import wait_for
from servers.services.profiles import ProfileData, save_profile
actor, folder = Actor.cli(), Path({folder!r})
quiet = register_build(actor, local_host(), "Quiet", str(folder / "quiet" / "llama-server"))
loud = register_build(actor, local_host(), "Loud", str(folder / "loud" / "llama-server"))
wait_for(lambda: not Build.objects.filter(state=Build.State.PROBING).exists(), 120, "the probes")
for number in range({servers}):
    build = quiet if number else loud
    build.refresh_from_db()
    name = f"server-{{number}}"
    model = register_artifact(actor, local_host(), str(folder / f"{{name}}.gguf"), name)
    save_profile(actor, None, ProfileData(name, build, model))
"""


def main(viewers: int, seconds: int) -> None:
    """Measure the agent alone, then everything under load."""
    with tempfile.TemporaryDirectory() as text, running(Path(text)) as (panel, cards):
        pids = {role: panel.processes(role)[0].pid for role in ROLES}
        calm = cores(pids, CALM)
        with panel.client() as client:
            cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        run_id = panel.value("server-0", "instance.run_id")
        before, began = {role: cpu_seconds(pid) for role, pid in pids.items()}, time.monotonic()
        told, seen, logs = asyncio.run(watch(panel, cards, cookie, run_id, viewers, seconds))
        took = time.monotonic() - began
        busy = {role: (cpu_seconds(pid) - before[role]) / took for role, pid in pids.items()}
        memory = {role: round(pss_mib(pid)) for role, pid in pids.items()}
    lags = [viewer[clock] - at for viewer in seen for clock, at in told.items() if clock in viewer]
    answer(
        viewers=viewers,
        samples=len(told),
        viewers_with_all_samples=sum(told.keys() <= viewer.keys() for viewer in seen),
        samples_missed=sum(len(told.keys() - viewer.keys()) for viewer in seen),
        lag_p50_ms=round(percentile(lags, 0.5) * 1000),
        lag_p99_ms=round(percentile(lags, 0.99) * 1000),
        log_lines=[len(numbers) for numbers in logs],
        log_viewers_without_a_hole=sum(whole(numbers) for numbers in logs),
        agent_cores_without_viewers=round(calm["agent"], 3),
        cores={role: round(value, 3) for role, value in busy.items()},
        memory_mib=memory,
    )


@contextmanager
def running(folder: Path) -> Iterator[tuple[Panel, FakeNvml]]:
    """A panel with the cards and servers of this benchmark, all of them ready."""
    files = folder / "files"
    for name, flood in (("quiet", {}), ("loud", {"flood_lines": 10**9, "flood_rate": LINES})):
        (files / name).mkdir(parents=True)
        llama_flags.install(files / name, **flood)
    model = plain_model(files)
    for number in range(SERVERS):
        os.link(model, files / f"server-{number}.gguf")
    cards = FakeNvml(build_library(folder), folder / "nvml.state")
    cards.set(count=CARDS)
    with Panel(folder / "data", **cards.environ) as panel:
        panel.start()
        panel.shell(SEED.format(folder=str(files), servers=SERVERS))
        for number in range(SERVERS):
            panel.manage("start", f"server-{number}")
        wait_for(
            lambda: all(row["observed"] == "ready" for row in panel.manage("servers")),
            120,
            "the servers to be ready",
        )
        yield panel, cards


def cores(pids: dict[str, int], seconds: float) -> dict[str, float]:
    """How many cores each process uses on average."""
    before = {role: cpu_seconds(pid) for role, pid in pids.items()}
    time.sleep(seconds)
    return {role: (cpu_seconds(pid) - before[role]) / seconds for role, pid in pids.items()}


async def watch(
    panel: Panel, cards: FakeNvml, cookie: str, run_id: str, viewers: int, seconds: int
) -> tuple[dict[int, float], list[dict[int, float]], list[list[int]]]:
    """Return when each clock was published, when each viewer got it, and the lines of the log viewers."""
    seen: list[dict[int, float]] = [{} for _ in range(viewers)]
    logs: list[list[int]] = [[] for _ in range(LOG_VIEWERS)]
    there = asyncio.Semaphore(0)

    async def card_viewer(found: dict[int, float]) -> None:
        async with page(panel, cookie, "gpus,hostload,jobs,gpus:strip") as socket:
            there.release()
            async for message in socket:
                now = time.time()
                for clock in CLOCK.findall(str(message)):
                    found.setdefault(int(clock), now)

    async def log_viewer(lines: list[int]) -> None:
        async with page(panel, cookie, f"log:{run_id}") as socket:
            there.release()
            async for message in socket:
                lines.extend(map(int, LINE.findall(str(message))))

    tasks = [asyncio.create_task(card_viewer(found)) for found in seen]
    tasks += [asyncio.create_task(log_viewer(lines)) for lines in logs]
    for _ in tasks:
        await there.acquire()
    await asyncio.sleep(5)
    counting = asyncio.create_task(asyncio.to_thread(count, cards, seconds))
    told = await asyncio.to_thread(published, panel, seconds)
    await counting
    await asyncio.sleep(5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return told, seen, logs


def page(panel: Panel, cookie: str, topics: str) -> connect:
    """The connection of a page."""
    headers = {"Cookie": cookie, "Origin": panel.url}
    address = f"{panel.url.replace('http', 'ws', 1)}/ws/?topics={topics}"
    return connect(address, additional_headers=headers, max_size=None)


def count(cards: FakeNvml, seconds: int) -> None:
    """Change all cards twice a second, so that no sample is like the one before."""
    for number in range(1, 2 * seconds + 1):
        cards.set(**{f"{index}.smclock": BASE + number if index == 0 else 500 for index in range(CARDS)})
        time.sleep(0.5)


def published(panel: Panel, seconds: int) -> dict[int, float]:
    """Return the clocks of the first card that the agent published, with their times."""
    address = panel.shell("from django.conf import settings; print(settings.REDIS_URL)")
    client = redis.Redis.from_url(address, socket_timeout=10)
    told: dict[int, float] = {}
    last: bytes | str = "$"
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _name, entries in client.xread({"gpu:local": last}, block=2000) or ():  # type: ignore[union-attr]
            for name, fields in entries:
                last = name
                found = re.search(rb'"clock_mhz": ?(\d+)', fields[b"data"])
                if found and int(found[1]) > BASE:
                    told.setdefault(int(found[1]), time.time())
    return told


def whole(numbers: list[int]) -> bool:
    """Tell whether a log viewer got lines without a hole between them."""
    return bool(numbers) and numbers == list(range(numbers[0], numbers[-1] + 1))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or ("100", "60")))
