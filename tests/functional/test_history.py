"""The history: recorded each second, stored each ten, thinned, read at each level; holes stay holes."""

from __future__ import annotations

import json

import pytest
import redis
from django.db import DatabaseError

from jobs.domain.gpu import Gpus, GpuSample, Sample
from jobs.domain.series import FIELDS, Block, pack, unpack
from jobs.models import Host, SampleBlock
from jobs.services import gpus, history, history_live
from tests.samples import DAY, T, cpu, levels, new_agent, record


@pytest.fixture(autouse=True)
def fresh(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    new_agent(monkeypatch)
    monkeypatch.setattr(history_live, "_next_try", 0.0)


def row(host: Host, level: int, start: int, value: float, subject: str = "host") -> SampleBlock:
    """A stored row of one value."""
    step, count = ((1, 10), (10, 60), (300, 12))[level]
    part: dict[str, list[float | None]] = {name: [value] * count for name in FIELDS["host"]}
    block = Block(start, step, part, *((part, part) if level else ()))
    return SampleBlock(host=host, subject=subject, level=level, start=start, data=pack("host", block))


def test_a_lost_agent_leaves_a_hole_and_each_level_tells_the_same_story(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Written at odd moments, so that rows are stored in two pieces.
    for begin, end in ((T, T + 7), (T + 7, T + 17), (T + 17, T + 27)):
        record(begin, end)
        history.write(host)
    record(T + 27, T + 33)
    new_agent(monkeypatch)  # killed: 27 to 32 were not stored
    record(T + 35, T + 40)
    history.write(host)
    assert levels(host) == [4, 0, 0]
    seconds = cpu(host, T, T + 45, T + 45)
    assert [at - T for at, value in seconds.items() if value is None] == [*range(27, 35), *range(40, 45)]
    assert all(value == at % DAY for at, value in seconds.items() if value is not None)
    chart = history.read(host, ["host", "gpu:0"], T, T + 45, now=T + 45)
    assert (chart.step, chart.times[0]) == (1, T)
    assert chart.series["host"]["cpu"]["low"] is None
    assert set(chart.series["host"]["load_1m"]["mean"] or ()) == {None}
    assert set(chart.series["gpu:0"]["fan"]["mean"] or ()) == {None}

    # Nothing is thinned yet, and a chart of hours shows it all the same.
    history.thin(host, T + 60)
    assert levels(host) == [4, 0, 0]
    expected = {0: 4.5, 10: 14.5, 20: 23.0, 30: 37.0, 40: None}  # of 20 to 26, and of 35 to 39

    def tens(now: int) -> dict[int, float | None]:
        found = cpu(host, T, T + 3600, now)
        return {
            at - T: value if value is None else value - T % DAY for at, value in found.items() if at < T + 50
        }

    assert tens(T + 60) == expected
    record(T + 600, T + 610, 50)
    history.write(host)
    history.thin(host, T + 629)
    assert levels(host) == [5, 0, 0]  # the last seconds of these ten minutes may still come
    history.thin(host, T + 630)
    assert levels(host) == [5, 1, 0]
    assert tens(T + 630) == expected

    # The late ones of the first ten minutes are added when its seconds are removed.
    record(T + 100, T + 110, 70)
    history.write(host)
    history.thin(host, T + 600 + 900)
    assert levels(host) == [6, 2, 0]  # 15 minutes of seconds are kept whole
    now = T + 3600 + 60
    history.thin(host, now)
    assert levels(host) == [0, 2, 1]
    assert tens(now) == expected
    assert cpu(host, T, T + 600, now)[T + 100] == 70  # 15 minutes, but too long ago for seconds

    # A range of days: five minutes, or as many as give 1,500 points.
    chart = history.read(host, ["host"], T, T + 7 * DAY, now=T + 7 * DAY)
    assert (chart.step, len(chart.times)) == (600, 1008)
    found = chart.series["host"]["cpu"]
    assert found["low"] is not None and found["high"] is not None and found["mean"] is not None
    assert (found["low"][0], found["high"][0]) == (70, T % DAY + 39)
    assert (found["low"][1], found["mean"][1], found["high"][1]) == (50, 50, 50)
    assert set(found["mean"][2:]) == {None}
    assert history.read(host, ["host"], T, T + 30 * DAY, now=T + 30 * DAY).step == 1800
    with pytest.raises(ValueError, match="disk"):
        history.read(host, ["disk"], T, T + 10)


def test_after_days_away_each_call_does_a_part_and_all_is_caught_up(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "BATCH", 6)
    monkeypatch.setattr(history, "FORGOTTEN", 10)
    subjects = ["host", "host:2"]
    end = T + DAY  # the agent went away
    rows = [row(host, 0, start, 5, name) for start in range(end - 1500, end, 10) for name in subjects]
    rows += [row(host, 1, start, 4, name) for start in range(T, end - 1800, 600) for name in subjects]
    rows += [row(host, 2, T - 31 * DAY + n * 3600, 3) for n in range(25)]
    SampleBlock.objects.bulk_create(rows)
    now = end + 5 * DAY
    record(now - 10, now, 9)
    history.write(host)

    before = history.read(host, subjects, T, now, now=now)
    calls = 0
    while levels(host)[:2] != [1, 0]:
        at_first = levels(host)
        history.thin(host, now)
        calls += 1
        after = levels(host)
        # A row of level 2 is made of six, one of level 1 of sixty.
        assert at_first[0] - after[0] <= 6 * 60 and at_first[1] - after[1] <= 6 * 6, calls
        assert history.read(host, subjects, T, now, now=now) == before, calls
        assert calls < 20
    assert calls > 3
    history.thin(host, now)
    history.thin(host, now)
    made = SampleBlock.objects.filter(level=2, start__gte=T)
    assert made.count() == 48
    # What is older than 30 days is gone.
    assert SampleBlock.objects.filter(level=2, start__lt=now - 30 * DAY - 3600).count() == 0
    hole = before.series["host"]["cpu"]["mean"]
    assert hole is not None and hole[-1] == 9 and set(hole) == {4, 5, 9, None}
    rows_now = list(SampleBlock.objects.order_by("pk").values_list("pk", "data"))
    history.thin(host, now)
    assert list(SampleBlock.objects.order_by("pk").values_list("pk", "data")) == rows_now


def test_a_clock_that_is_set_back_loses_only_the_seconds_it_tells_twice(host: Host) -> None:
    for begin in range(T, T + 600, 300):
        record(begin, begin + 300, 1)
        history.write(host)
    history.thin(host, T + 700)
    record(T + 700, T + 705, 2)
    record(T + 305, T + 315, 3)  # set back
    history.write(host)
    history.thin(host, T + 320)
    seconds = cpu(host, T, T + 900, T + 320)
    threes = [at - T for at, value in seconds.items() if value == 3]
    assert threes == list(range(305, 315))
    assert [at - T for at, value in seconds.items() if value == 2] == list(range(700, 705))
    assert sum(value == 1 for value in seconds.values()) == 590
    # Later the coarser levels know it too.
    history.thin(host, T + 2000)
    tens = cpu(host, T, T + 1200, T + 2000)
    assert [tens[T + at] for at in (290, 300, 310, 320, 700)] == [1, 2, 2, 1, 2]


def test_what_the_database_did_not_take_is_stored_later(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise DatabaseError("away")

    record(T, T + 400, 1)
    put = history._put
    monkeypatch.setattr(history, "_put", away)
    with pytest.raises(DatabaseError):
        history.write(host)
    record(T + 400, T + 410, 2)
    monkeypatch.setattr(history, "_put", put)
    history.write(host)
    found = cpu(host, T, T + 410, T + 410)
    # No more than five minutes wait.
    assert [at - T for at, value in found.items() if value is None] == list(range(110))
    # A row that cannot be read is a hole, and takes what comes.
    SampleBlock.objects.filter(start=T + 400).update(data=b"?")
    assert cpu(host, T + 400, T + 410, T + 410) == dict.fromkeys(range(T + 400, T + 410))
    record(T + 405, T + 406, 8)
    history.write(host)
    assert unpack("host", bytes(SampleBlock.objects.get(start=T + 400).data)).mean["cpu"][4:7] == [
        None,
        8,
        None,
    ]


def test_a_reading_a_little_later_than_a_second_leaves_no_hole_but_a_missed_one_does(host: Host) -> None:
    for at, value in ((T + 0.9, 1), (T + 2.0, 2), (T + 4.9, 5), (T + 5.1, 0)):
        history.record("host", at, {"cpu": value, "load_1m": None})
    history.record("host", T + 7, {"cpu": None})
    history.write(host)
    assert list(cpu(host, T, T + 8, T + 8).values()) == [1, 2, 2, None, 5, 0, None, None]


def test_pages_get_the_last_seconds_and_a_chart_ends_with_them(
    host: Host, redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(T, T + 20)
    card = GpuSample(0, uuid="GPU-a", utilization=0, power_w=0.1, fan=None)
    gpus.record_cards(Sample(T + 19.5, Gpus(gpus=(card, GpuSample(1, lost=True)))))
    gpus.record_cards(Sample(T + 20.5, Gpus(gpus=(card,)), since=T + 19.5))  # the driver fell silent
    history_live.publish_seconds(host.slug, T + 10.0)
    assert [second for second, _values in history.live_since(host, 0)] == list(range(T, T + 9))
    history.write(host)
    record(T + 20, T + 25)
    history_live.publish_seconds(host.slug, T + 26.9)
    [(second, values), (last, _values)] = history.live_since(host, T + 22.5)
    assert (second, last, values) == (
        T + 23,
        T + 24,
        {"host": dict.fromkeys(FIELDS["host"]) | {"cpu": second % DAY}},
    )
    [at_19] = [values for second, values in history.live_since(host, T + 18) if second == T + 19]
    assert sorted(at_19) == ["gpu:GPU-a", "host"]
    assert at_19["gpu:GPU-a"] == dict.fromkeys(FIELDS["gpu"]) | {"utilization": 0, "power_w": 0.1}
    redis_server.xadd(history_live.stream_of(host.slug), {"time": "soon", "data": "{}"})
    assert len(history.live_since(host, T)) == 24

    # 20 to 24 are not stored yet.
    assert list(cpu(host, T + 17, T + 27, T + 27).values()) == [
        *((T + n) % DAY for n in range(17, 25)),
        None,
        None,
    ]
    found = cpu(host, T - 3600, T + 30, T + 30)
    assert [found[T + n] for n in (10, 20)] == [T % DAY + 14.5, T % DAY + 22]

    # An agent that is lost with them leaves a hole as soon as something newer is stored.
    new_agent(monkeypatch)
    record(T + 28, T + 30)
    history.write(host)
    assert [at - T for at, value in cpu(host, T, T + 30, T + 30).items() if value is None] == list(
        range(20, 28)
    )

    # Never more than a minute; with a clock that is set back it goes on.
    record(T + 30, T + 130)
    history_live.publish_seconds(host.slug, T + 132)
    assert redis_server.xlen(history_live.stream_of(host.slug)) == 60
    record(T + 80, T + 83, 4)
    history_live.publish_seconds(host.slug, T + 85)
    twice = history.live_since(host, T + 79)
    assert [second - T for second, _values in twice] == list(range(80, 130))
    assert [values["host"]["cpu"] for _second, values in twice[:3]] == [4, 4, 4]


@pytest.mark.django_db(transaction=True)
def test_the_duties_store_what_is_recorded_now(host: Host) -> None:
    history.record("host", 1_000_000.0, {"cpu": 1})
    history.write_history()
    assert levels(host) == [1, 0, 0]
    history_live.publish_history()
    assert [second for second, _values in history.live_since(host, 0)] == [1_000_000]
    history.thin_history()
    assert levels(host) == [0, 0, 0]  # of 1970


@pytest.mark.parametrize("data", ["[]", "3", "null", '"x"', '{"host": 3}', '{"host": [1]}', "{", ""])
def test_a_second_that_something_else_wrote_is_left_out(
    host: Host, redis_server: redis.Redis, data: str
) -> None:
    record(T, T + 1, 7)
    history_live.publish_seconds(host.slug, T + 2)
    redis_server.xadd(history_live.stream_of(host.slug), {"time": str(T + 1), "data": data})
    assert [second for second, _values in history.live_since(host, 0)] == [T]
    assert list(cpu(host, T, T + 2, T + 2).values()) == [7, None]


def test_a_value_that_is_no_number_is_unknown(host: Host, redis_server: redis.Redis) -> None:
    values = {"cpu": "much", "load_1m": float("nan"), "swap_used_mib": float("inf"), "disk_free_mib": 4}
    data = json.dumps({"host": values | {"memory_used_mib": [1]}})
    redis_server.xadd(history_live.stream_of(host.slug), {"time": str(T), "data": data})
    [(second, found)] = history.live_since(host, 0)
    assert (second, found) == (T, {"host": dict.fromkeys(FIELDS["host"]) | {"disk_free_mib": 4}})
    chart = history.read(host, ["host"], T, T + 1, now=T + 1)
    assert {name: of["mean"] for name, of in chart.series["host"].items()} == {
        name: [4 if name == "disk_free_mib" else None] for name in FIELDS["host"]
    }
