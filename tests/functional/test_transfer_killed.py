"""A real process that downloads is killed again and again; the file that results is right."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jobs.adapters.transfer import read_state
from jobs.domain.transfer import CHUNK
from tests.fakes.hub import Hub
from tests.functional.fetching import NAME, PROBE, REPO

KILLS = 20
CONNECTIONS = 4
SIZE = 32 * CHUNK + 777
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub with a larger model, slow enough that it can be interrupted often."""
    with Hub(rate=40e6) as running:
        running.add(REPO, NAME, b"GGUF" + os.urandom(SIZE - 4))
        yield running


def start(hub: Hub, target: Path) -> subprocess.Popen[str]:
    """A process that fetches; it is at work when this returns."""
    stored = hub.repository(REPO).files[NAME]
    url = hub.resolve_url(REPO, NAME)
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "controlpanel.settings",
        "PANEL_DATA": str(target.parent / "data"),
        "PANEL_PRIVATE_HOSTS": hub.private,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.functional.fetching", url, str(target)]
        + [str(stored.size), stored.sha256, str(CONNECTIONS)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


@pytest.mark.slow
def test_a_download_that_is_killed_twenty_times_ends_right_and_fetches_little_twice(
    hub: Hub, tmp_path: Path
) -> None:
    target = tmp_path / NAME
    luck = random.Random(time.time_ns())
    kills = 0
    for _ in range(KILLS):
        process = start(hub, target)
        with suppress(subprocess.TimeoutExpired):
            process.wait(luck.uniform(0, 1.0))
        if process.poll() is None:
            process.kill()
            process.wait()
            kills += 1
        assert not target.exists() or read_state(target) is None
    process = start(hub, target)
    assert process.wait(120) == 0
    assert target.read_bytes() == bytes(hub.repository(REPO).files[NAME].data)
    assert {path.name for path in tmp_path.iterdir()} == {NAME, "data"}
    assert kills == KILLS
    allowed = SIZE + kills * CONNECTIONS * CHUNK + (kills + 1) * PROBE
    assert hub.bytes_sent <= allowed
