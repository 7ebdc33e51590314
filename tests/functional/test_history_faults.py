"""The history when the database is locked or full, and when an agent ends: what was recorded is not lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from django.db import OperationalError, connection

from jobs.models import Host
from jobs.runtime.agent import AT_END, run_agent
from jobs.runtime.duties import Duty, duties
from jobs.services import history, history_live
from tests.samples import T, cpu, levels, new_agent, record
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def fresh(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    new_agent(monkeypatch)
    monkeypatch.setattr(history_live, "_next_try", 0.0)


@contextmanager
def locked() -> Iterator[None]:
    """Somebody else writes to the database for as long as this lasts."""
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite has one lock for all who write")
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    try:
        other.execute("begin immediate")
        yield
        other.execute("rollback")
    finally:
        other.close()


def test_a_locked_database_loses_no_second(host: Host) -> None:
    with connection.cursor() as cursor:
        cursor.execute("pragma busy_timeout = 50")
    record(T, T + 10, 1)
    with locked():
        with pytest.raises(OperationalError, match="locked"):
            history.write(host)
        record(T + 10, T + 20, 2)
    history.write(host)
    assert list(cpu(host, T, T + 20, T + 20).values()) == [1] * 10 + [2] * 10
    connection.close()  # the next test has the usual patience

    # For a moment: the one call waits.
    record(T + 20, T + 30, 3)
    with locked():
        writing = threading.Thread(target=history.write_history)
        writing.start()
        time.sleep(0.2)
        assert writing.is_alive()
    writing.join(20)
    assert list(cpu(host, T + 20, T + 30, T + 30).values()) == [3] * 10


def test_a_full_disk_loses_no_second(host: Host) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("a limit that a test can set")
    with connection.cursor() as cursor:
        cursor.execute("vacuum")  # rows of earlier tests have left room
        cursor.execute("pragma max_page_count = 1")  # as many as there are
    subjects = ["host", *(f"host:{n}" for n in range(30))]
    for subject in subjects:
        record(T, T + 200, 1, subject)
    with pytest.raises(OperationalError, match="full"):
        history.write(host)
    assert levels(host) == [0, 0, 0]
    connection.close()  # there is room again
    record(T + 200, T + 210, 2)
    history.write(host)
    assert levels(host) == [20 * len(subjects) + 1, 0, 0]
    assert list(cpu(host, T, T + 210, T + 210).values()) == [1] * 200 + [2] * 10


def end_of_agent() -> float:
    """Run an agent that records one second of the host and is told to end; return how long its end took."""
    at_end = [
        Duty(duty.name, 60, lambda: None, at_end=duty.at_end) for duty in duties() if duty.at_end is not None
    ]
    told = 0.0

    async def measure() -> None:
        nonlocal told
        history.record("host", time.time(), {"cpu": 5})
        told = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)

    async def ship() -> None:
        await asyncio.sleep(60)

    measuring = Duty("measure", 60, measure)
    asyncio.run(run_agent([measuring, *at_end], lambda: asyncio.create_task(ship())))
    return time.monotonic() - told


def test_an_agent_that_is_told_to_end_publishes_and_stores_its_last_seconds(host: Host) -> None:
    began = int(time.time())
    end_of_agent()
    [(second, values)] = history.live_since(host, began - 1)
    assert began <= second <= time.time()
    assert values["host"]["cpu"] == 5
    assert list(cpu(host, second, second + 1, second + 100).values()) == [5]


def test_a_locked_database_does_not_hold_an_agent_that_is_told_to_end(host: Host) -> None:
    with locked():
        took = end_of_agent()
        assert AT_END <= took < AT_END + 2
        assert levels(host) == [0, 0, 0]
    # Here the process goes on, and so does the thread.
    wait_for(lambda: levels(host) == [1, 0, 0], 25, "the last second to be stored")
