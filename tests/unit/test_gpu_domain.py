"""Samples of GPUs as values: what is unknown stays unknown, and what NVML's numbers mean."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jobs.domain import gpu
from jobs.domain.gpu import GpuProcess, Gpus, GpuSample, Sample, Xid
from jobs.domain.gpu_memory import shares
from jobs.domain.xid import told

CARD = GpuSample(
    index=0,
    uuid="GPU-1",
    name="NVIDIA GeForce RTX 3090",
    memory_total_mib=24576,
    memory_used_mib=21000,
    power_w=287.4,
    fan=0,
    throttle=("power_limit",),
    xids=(Xid(900.5, 79),),
    processes=(GpuProcess(12, "llama-server", 20000, True), GpuProcess(13, None, None, False)),
)


def sample(**values: object) -> Sample:
    return replace(Sample(1000.0, Gpus("580.95.05", "13.0", (CARD,))), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        sample(),
        sample(since=998.5),
        Sample(1.5, Gpus(problem=gpu.NO_DRIVER)),
        Sample(1.5, Gpus(gpus=(GpuSample(3, lost=True, error="GPU is lost"),))),
    ],
)
def test_a_sample_survives_the_stream(value: Sample) -> None:
    assert gpu.from_json(gpu.to_json(value)) == value


def test_unknown_is_null_and_zero_is_zero_in_the_stream() -> None:
    card = json.loads(gpu.to_json(sample()))["gpus"]["gpus"][0]
    assert card["temperature"] is None
    assert card["fan"] == 0


def test_a_sample_of_another_version_is_read_as_far_as_it_is_known() -> None:
    found = json.loads(gpu.to_json(sample()))
    found["gpus"]["gpus"][0]["new_fact"] = 1
    del found["gpus"]["gpus"][0]["fan"], found["since"]
    read = gpu.from_json(json.dumps(found))
    assert read.gpus.gpus[0] == replace(CARD, fan=None)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"time": 1, "gpus": []}', '{"time": "x"}', "{"])
def test_what_is_no_sample_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        gpu.from_json(text)


@pytest.mark.parametrize("number,text", [(13000, "13.0"), (12080, "12.8"), (11040, "11.4"), (None, None)])
def test_a_cuda_version_is_written_as_people_write_it(number: int | None, text: str | None) -> None:
    assert gpu.cuda_version(number) == text


def test_bits_of_throttling_become_words_and_unknown_bits_do_not_vanish() -> None:
    assert gpu.throttle_reasons(None) is None
    assert gpu.throttle_reasons(0) == ()
    assert gpu.throttle_reasons(0x1) == ("idle",)
    assert gpu.throttle_reasons(0x4 | 0x40) == ("power_limit", "hardware_heat")
    assert gpu.throttle_reasons(0x20 | 0x8000) == ("software_heat", "other")
    every = gpu.throttle_reasons(0xFFFFFFFF)
    assert every is not None and set(every) == set(gpu.THROTTLE_WORDS)
    assert set(gpu.THROTTLE_WORDS) >= gpu.THROTTLE_ALARMS


def test_a_process_in_both_lists_of_the_driver_counts_once() -> None:
    found = gpu.merged([GpuProcess(5, "a", 10), GpuProcess(9, "b", 300), GpuProcess(5, "a", 40)])
    assert found == (GpuProcess(9, "b", 300), GpuProcess(5, "a", 40))
    assert gpu.merged([GpuProcess(5, "a", 10), GpuProcess(5, "a", None)]) == (GpuProcess(5, "a", 10),)


def test_processes_are_ours_by_their_pid_or_not_known_to_be() -> None:
    processes = gpu.marked(sample().gpus, {13: "instance:5"}).gpus[0].processes
    assert processes is not None
    assert [(process.ours, process.subject) for process in processes] == [(False, None), (True, "instance:5")]
    unknown = gpu.marked(sample().gpus, None).gpus[0]
    assert unknown.processes is not None
    assert {process.ours for process in unknown.processes} == {None}
    without = Gpus(gpus=(GpuSample(0), GpuSample(1, processes=())))
    assert gpu.marked(without, {1: "instance:1"}) == without


def test_own_memory_is_known_only_when_every_part_of_it_is() -> None:
    assert gpu.own_memory_mib(CARD) == 20000
    assert gpu.own_memory_mib(replace(CARD, processes=())) == 0
    assert gpu.own_memory_mib(replace(CARD, processes=None)) is None
    assert gpu.own_memory_mib(gpu.marked(sample().gpus, None).gpus[0]) is None
    assert gpu.own_memory_mib(gpu.marked(sample().gpus, {12: "a:1", 13: "a:1"}).gpus[0]) is None


def parts(card: GpuSample) -> list[tuple[str, int, str]]:
    """The shares of a card; they add up to the whole whatever the driver says."""
    found = shares(card)
    assert not found or sum(share.mib for share in found) == card.memory_total_mib
    return [(share.kind, share.mib, share.subject) for share in found]


def test_the_memory_of_a_card_is_divided_among_its_holders_and_adds_up() -> None:
    own = GpuProcess(12, "llama-server", 12000, True, subject="instance:2")
    other, foreign = (
        replace(own, pid=14, subject="instance:1", memory_mib=6000),
        GpuProcess(9, "X", 600, False),
    )
    card = replace(CARD, memory_reserved_mib=350, processes=(own, other, replace(own, pid=15), foreign))
    assert parts(card) == [  # more than the 21000 in use, which then end in the last
        ("own", 6000, "instance:1"),
        ("own", 15000, "instance:2"),
        ("reserved", 350, ""),
        ("free", 3226, ""),
    ]
    unknown = replace(own, pid=16, memory_mib=None)
    assert parts(replace(card, processes=(other, unknown, foreign))) == [
        ("own", 6000, "instance:1"),
        ("foreign", 600, ""),
        ("rest", 14400, ""),
        ("reserved", 350, ""),
        ("free", 3226, ""),
    ]
    # Whose they are is not known: nobody's.
    assert parts(replace(CARD, processes=(replace(own, ours=None),)))[0] == ("rest", 21000, "")
    assert parts(replace(CARD, processes=None, memory_used_mib=30000)) == [("rest", 24576, "")]
    assert parts(replace(CARD, memory_total_mib=None)) == parts(replace(CARD, memory_used_mib=None)) == []


def test_rows_of_memory_out_of_use_are_counted_and_a_repair_that_failed_is_said_first() -> None:
    assert gpu.row_repairs(None) == (None, None)
    assert gpu.row_repairs((0, 0, 0, 0)) == (0, None)
    assert gpu.row_repairs((1, 2, 1, 0)) == (3, "pending")
    assert gpu.row_repairs((1, 2, 1, 1)) == (3, "failed")


@pytest.mark.parametrize("number", [8, 13, 31, 43, 45, 48, 63, 64, 74, 94, 95, 119, 140])
def test_the_drivers_numbers_of_errors_have_words(number: int) -> None:
    what, remedy = told(number)
    assert f"Xid {number}" in str(what) and str(remedy)


def test_an_error_without_words_of_its_own_has_its_number_and_79_is_a_card_that_vanished() -> None:
    assert "(Xid 777)" in str(told(777)[0])
    assert "vanished" in str(told(79)[0])


def test_a_sample_is_stale_when_none_came_or_when_the_driver_is_silent() -> None:
    assert sample().stale_since(1000.0 + gpu.STALE_AFTER) is None
    assert sample().stale_since(1000.1 + gpu.STALE_AFTER) == 1000.0
    assert sample(since=900.0).stale_since(1000.0) == 900.0


@pytest.mark.parametrize("problem", gpu.ERRORS)
def test_every_problem_has_words_and_a_next_step(problem: str) -> None:
    found = Gpus(problem=problem, words="Unknown Error")
    assert str(found.error)
    assert str(found.remedy)
    assert ("Unknown Error" in str(found.error)) == (problem == gpu.FAILED)


def test_nothing_wrong_has_no_words() -> None:
    assert Gpus().error is None
    assert Gpus().remedy is None


def test_a_problem_of_a_newer_version_is_still_a_problem() -> None:
    assert "%(" not in str(Gpus(problem="melted").error)
