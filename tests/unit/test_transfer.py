"""The state of a partial file, how it is cut for connections, speed and pauses."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.domain.transfer import (
    CHUNK,
    LARGEST_REQUEST,
    LONGEST_PAUSE,
    MAX_SIZE,
    Meter,
    PartState,
    chunk_line,
    missing,
    parse_state,
    pause,
    request_length,
)
from jobs.domain.transfer_plan import SLOW, Plan, Span

HASH = "ab" * 32
SIZE = 10 * CHUNK + 5


def state(*chunks: int) -> PartState:
    """The state of a file of eleven chunks of which some are there."""
    return PartState(SIZE, HASH, "mark", dict.fromkeys(chunks, HASH))


def test_a_state_is_read_as_it_was_written() -> None:
    assert parse_state(state(0, 3, 10).text()) == state(0, 3, 10)
    assert parse_state(PartState(SIZE).text()) == PartState(SIZE)


def test_chunks_are_appended_and_the_last_word_on_one_counts() -> None:
    text = state(1).text() + chunk_line(2, HASH) + chunk_line(1, "cd" * 32)
    found = parse_state(text)
    assert found is not None
    assert found.chunks == {1: "cd" * 32, 2: HASH}


@given(st.integers(0, 2000))
def test_a_state_cut_anywhere_names_only_chunks_before_the_cut(cut: int) -> None:
    text = state(*range(11)).text()
    found = parse_state(text[:cut])
    whole_lines = text[:cut].count("\n")
    if found is None:
        assert whole_lines == 0
    else:
        assert whole_lines - 1 <= len(found.chunks) <= whole_lines
        assert all(hash == HASH for hash in found.chunks.values())


@given(st.text(max_size=300))
def test_any_text_is_a_state_or_none(text: str) -> None:
    parse_state(text)
    parse_state(state(1).head_line() + text)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": True},
        {"chunk": 1},
        {"size": 0},
        {"size": -1},
        {"size": MAX_SIZE + 1},
        {"size": True},
        {"size": 1.5},
        {"size": "9"},
        {"sha256": "AB" * 32},
        {"sha256": 7},
        {"etag": []},
    ],
)
def test_a_head_that_makes_no_sense_is_no_state(change: dict[str, object]) -> None:
    head = json.loads(state().head_line()) | change
    if change == {"version": True}:
        head["version"] = None
    assert parse_state(json.dumps(head) + "\n") is None


@pytest.mark.parametrize(
    "line",
    [
        chunk_line(11, HASH),
        chunk_line(-1, HASH),
        chunk_line(3, "no hash"),
        "[1, 2]\n",
        "\0\0\0\n",
        '{"chunk": true, "sha256": "' + HASH + '"}\n',
        "[" * 100_000 + "\n",
    ],
)
def test_nothing_after_a_broken_line_is_believed(line: str) -> None:
    assert parse_state(state(1).text() + line + chunk_line(2, HASH)) == state(1)


@pytest.mark.parametrize(
    ("chunks", "gaps"),
    [
        ((), [(0, 11)]),
        ((0,), [(1, 11)]),
        ((10,), [(0, 10)]),
        ((0, 1, 5), [(2, 5), (6, 11)]),
        (range(11), []),
    ],
)
def test_gaps_are_what_is_not_there(chunks: range, gaps: list[tuple[int, int]]) -> None:
    assert missing(state(*chunks)) == gaps


def test_the_last_chunk_counts_with_its_own_length() -> None:
    assert state(10).done == 5
    assert state(*range(11)).done == SIZE
    assert PartState(CHUNK).count == 1
    assert PartState(CHUNK + 1).count == 2


def test_requests_are_large_first_and_single_chunks_at_the_end() -> None:
    lengths = [request_length(left, 4) for left in range(1, 5000)]
    assert lengths == sorted(lengths)
    assert lengths[0] == 1
    assert lengths[-1] == LARGEST_REQUEST


def finish(span: Span, plan: Plan, chunks: int) -> list[int]:
    """Let the span's owner fetch some chunks; returns which."""
    fetched = []
    for _ in range(chunks):
        fetched.append(span.at // CHUNK)
        span.at = min((span.at // CHUNK + 1) * CHUNK, span.end)
        if not plan.next_chunk(span, span.owner, 0.0):
            break
    return fetched


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 150), st.integers(1, 8))
def test_each_missing_chunk_is_fetched_exactly_once_whatever_the_speeds(
    seed: int, count: int, connections: int
) -> None:
    luck = random.Random(seed)
    size = count * CHUNK - luck.randrange(CHUNK)
    there = {index: HASH for index in range(count) if luck.random() < 0.3}
    known = PartState(size, chunks=there)
    plan = Plan(size, missing(known), connections)
    spans: dict[int, Span | None] = dict.fromkeys(range(connections))
    fetched: list[int] = []
    for _ in range(100_000):
        if len(fetched) == count - len(there):
            break
        owner = luck.randrange(connections)
        span = spans[owner]
        if span is None or not plan.go_on(span, owner):
            spans[owner] = plan.take(owner, 0.0)
        elif luck.random() < 0.1:
            plan.wait(span, owner)
            spans[owner] = None if luck.random() < 0.5 else span
        else:
            fetched += finish(span, plan, 1)
            if span.at >= span.end:
                spans[owner] = None
    assert sorted(fetched) == [index for index in range(count) if index not in there]
    assert all(plan.take(owner, 0.0) is None for owner in range(connections))


def test_an_idle_connection_takes_the_second_half_of_the_longest_span() -> None:
    plan = Plan(100 * CHUNK, [(0, 100)], 1)
    slow = plan.take("slow", 0.0)
    assert slow is not None and slow.end == 25 * CHUNK
    while (span := plan.take("fast", 0.0)) is not None and span.at > slow.at and span.at >= 25 * CHUNK:
        finish(span, plan, 100)
    assert span is not None
    assert (span.at, span.end) == (13 * CHUNK, 25 * CHUNK)
    assert slow.end == 13 * CHUNK


def test_a_chunk_in_progress_is_never_cut() -> None:
    plan = Plan(2 * CHUNK, [(0, 2)], 0)
    slow = plan.take("slow", 0.0)
    assert slow is not None
    slow.at = 5
    other = plan.take("other", 0.0)
    assert other is not None and other.at == CHUNK
    assert plan.take("third", 0.0) is None


def test_a_waiting_owner_loses_its_span_with_what_it_has_hashed() -> None:
    plan = Plan(CHUNK, [(0, 1)], 4)
    span = plan.take("first", 0.0)
    assert span is not None
    span.at = 100
    assert plan.take("second", 0.0) is None
    plan.wait(span, "first")
    assert plan.take("second", 0.0) is span
    assert not plan.go_on(span, "first")
    assert not plan.next_chunk(span, "first", 0.0)
    assert plan.go_on(span, "second")


def test_a_chunk_that_takes_long_is_taken_over_by_who_has_nothing_else_to_do() -> None:
    plan = Plan(2 * CHUNK, [(0, 2)], 4)
    slow, quick = plan.take("slow", 0.0), plan.take("quick", 0.0)
    assert slow is not None and quick is not None
    slow.at += 1000
    quick.at = quick.end
    assert not plan.next_chunk(quick, "quick", 5.0)
    assert plan.take("quick", SLOW - 1) is None
    assert plan.take("quick", SLOW + 1) is slow
    assert not plan.go_on(slow, "slow")
    assert plan.take("slow", 2 * SLOW) is None
    assert slow.at == 1000


def test_a_lost_chunk_comes_first() -> None:
    plan = Plan(SIZE, [(8, 11)], 4)
    plan.lost(2)
    span = plan.take("any", 0.0)
    assert span is not None
    assert (span.at, span.end) == (2 * CHUNK, 3 * CHUNK)


def test_the_speed_is_that_of_the_last_seconds() -> None:
    meter = Meter()
    assert meter.speed == 0.0
    assert meter.eta(100) is None
    for second in range(31):
        meter.add(float(second), 1000 * second if second < 20 else 20_000 + 50 * (second - 20))
    assert meter.speed == pytest.approx(50, rel=0.01)
    assert meter.eta(500) == pytest.approx(10, rel=0.01)


def test_pauses_grow_to_a_limit_and_differ() -> None:
    assert pause(1, 0.0) == 0.25
    assert pause(1, 1.0) == 0.5
    assert pause(3, 1.0) == 2.0
    assert pause(10_000, 1.0) == LONGEST_PAUSE
