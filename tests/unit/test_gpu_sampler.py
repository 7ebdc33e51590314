"""The thread that reads the GPUs: a driver that hangs delays nobody, and one call is under way at most."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from jobs.domain.gpu import FAILED, SILENT, Gpus, GpuSample
from jobs.runtime.gpus import GpuSampler
from tests.waiting import wait_for

DEADLINE = 0.2


class Driver:
    """Answers with the number of the call as the card's index; hangs while `free` is not set."""

    def __init__(self) -> None:
        self.calls = 0
        self.free = threading.Event()
        self.free.set()

    def read(self) -> Gpus:
        self.calls += 1
        number = self.calls
        assert self.free.wait(60)
        return Gpus(gpus=(GpuSample(number),))


@pytest.fixture
def driver() -> Iterator[Driver]:
    """A driver that answers; it is let go at the end."""
    driver = Driver()
    yield driver
    driver.free.set()


def clock(*times: float) -> Callable[[], float]:
    """A clock that shows these times, one after the other."""
    left = iter(times)
    return lambda: next(left)


def test_a_driver_that_answers_gives_a_sample_of_now(driver: Driver) -> None:
    sampler = GpuSampler(driver.read, 60, clock(100.0, 101.0))
    assert [
        (item.time, item.since, item.gpus.gpus[0].index) for item in (sampler.sample(), sampler.sample())
    ] == [
        (100.0, None, 1),
        (101.0, None, 2),
    ]


def test_a_driver_that_hangs_makes_the_sample_old_and_is_called_once(driver: Driver) -> None:
    sampler = GpuSampler(driver.read, DEADLINE, clock(100.0, 103.0, 105.0, 107.0, 108.0))
    assert sampler.sample().since is None
    driver.free.clear()
    threads = threading.active_count()
    began = time.monotonic()
    samples = [sampler.sample() for _ in range(3)]
    assert time.monotonic() - began < 3 * DEADLINE + 5
    assert [(item.time, item.since, item.gpus.problem) for item in samples] == [
        (103.0, 100.0, SILENT),
        (105.0, 100.0, SILENT),
        (107.0, 100.0, SILENT),
    ]
    assert {item.gpus.gpus[0].index for item in samples} == {1}
    assert driver.calls == 2
    assert threading.active_count() == threads


def test_what_a_driver_says_too_late_is_not_shown(driver: Driver) -> None:
    sampler = GpuSampler(driver.read, DEADLINE)
    driver.free.clear()
    assert sampler.sample().gpus == Gpus(problem=SILENT)
    driver.free.set()
    sampler._deadline = 60
    sample = sampler.sample()
    assert (sample.since, sample.gpus.gpus[0].index) == (None, 2)


def test_a_driver_that_never_answered_is_silent_since_the_first_question(driver: Driver) -> None:
    driver.free.clear()
    sampler = GpuSampler(driver.read, DEADLINE, clock(100.0, 102.0))
    assert [sampler.sample().since, sampler.sample().since] == [100.0, 100.0]


def test_an_error_of_our_own_does_not_end_the_sampling() -> None:
    answers: list[Gpus | Exception] = [RuntimeError("broken"), Gpus(driver="580")]

    def read() -> Gpus:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    sampler = GpuSampler(read, 60)
    first = sampler.sample().gpus
    assert (first.problem, first.words) == (FAILED, "broken")
    assert sampler.sample().gpus == Gpus(driver="580")


def test_a_hanging_thread_does_not_keep_the_process(driver: Driver) -> None:
    driver.free.clear()
    GpuSampler(driver.read, DEADLINE).sample()
    wait_for(lambda: driver.calls == 1, 10, "the call")
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "nvml"].count(False) == 0
