"""Blocks of numbers: stored and read again, thinned, merged; what is unknown stays unknown."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.domain.series import FIELDS, Block, Column, kind_of, known, merged, pack, raised, thinned, unpack

KINDS = st.sampled_from(sorted(FIELDS))
VALUES = st.none() | st.floats(0, 1e6, width=32)
BEGIN = 1_800_000_000


@st.composite
def blocks(draw: st.DrawFn, kind: str, count: int, step: int = 1, start: int = BEGIN) -> Block:
    """A block as the panel makes them: a point is known in all its parts or in none."""

    def part(by: float) -> dict[str, Column]:
        return {
            name: [None if value is None else value + by for value in column] for name, column in mean.items()
        }

    mean = {name: draw(st.lists(VALUES, min_size=count, max_size=count)) for name in FIELDS[kind]}
    if step == 1:
        return Block(start, step, mean)
    # Whole numbers of this size are exact in a float32.
    mean = {name: [None if v is None else float(int(v)) for v in column] for name, column in mean.items()}
    return Block(start, step, part(0), part(-draw(st.integers(0, 9))), part(draw(st.integers(0, 9))))


@settings(max_examples=40, deadline=None)
@given(st.data(), KINDS, st.integers(1, 12), st.sampled_from((1, 10, 300)))
def test_a_stored_block_is_read_as_it_was(data: st.DataObject, kind: str, count: int, step: int) -> None:
    block = data.draw(blocks(kind, count, step))
    assert unpack(kind, pack(kind, block)) == block
    # At its own step it is also thinned to itself, with nothing known around it.
    [wider] = [thinned(kind, [pack(kind, block)], step, BEGIN - 2 * step, count + 3)]
    name = FIELDS[kind][0]
    assert wider.mean[name] == [None, None, *block.mean[name], None]
    assert (wider.low is None) == (step == 1)


@settings(max_examples=40, deadline=None)
@given(st.data(), KINDS, st.sampled_from(((1, 10), (10, 30), (10, 300))))
def test_a_thin_point_is_mean_lowest_and_highest_of_what_is_known(
    data: st.DataObject, kind: str, steps: tuple[int, int]
) -> None:
    fine, coarse = steps
    ratio = coarse // fine
    first = data.draw(blocks(kind, ratio, fine))
    later = data.draw(blocks(kind, ratio, fine, BEGIN + 2 * coarse))
    thin = thinned(kind, [pack(kind, later), pack(kind, first)], coarse, BEGIN, 3)
    assert thin.low is not None and thin.high is not None
    for name in FIELDS[kind]:
        for place, block in ((0, first), (1, None), (2, later)):
            found = thin.mean[name][place], thin.low[name][place], thin.high[name][place]
            parts = [
                [v for v in ((part or block.mean)[name] if block else []) if v is not None]
                for part in ((block.mean, block.low, block.high) if block else (None, None, None))
            ]
            if not parts[0]:
                assert found == (None, None, None)
            else:
                mean, low, high = found
                assert mean == pytest.approx(math.fsum(parts[0]) / len(parts[0]))
                assert (low, high) == (min(parts[1]), max(parts[2]))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_thinning_in_two_steps_keeps_the_extremes_of_all_seconds(data: st.DataObject) -> None:
    seconds = [data.draw(blocks("host", 10, 1, BEGIN + n * 10)) for n in range(6)]
    middle = raised("host", [pack("host", block) for block in seconds], 1, BEGIN)
    assert len(middle.mean["cpu"]) == 60
    thin = raised("host", [pack("host", middle)], 2, BEGIN)
    assert len(thin.mean["cpu"]) == 12
    all_known = [v for block in seconds for v in block.mean["cpu"] if v is not None]
    assert thin.low is not None and thin.high is not None
    assert thin.low["cpu"][0] == (min(all_known) if all_known else None)
    assert thin.high["cpu"][0] == (max(all_known) if all_known else None)
    assert set(thin.mean["cpu"][1:]) == {None}


@settings(max_examples=30, deadline=None)
@given(st.data(), KINDS, st.sampled_from((1, 10)))
def test_merging_forgets_nothing_and_prefers_the_new(data: st.DataObject, kind: str, step: int) -> None:
    old, new = data.draw(blocks(kind, 5, step)), data.draw(blocks(kind, 5, step))
    both = merged(old, new)
    for name in FIELDS[kind]:
        for was, now, is_ in zip(old.mean[name], new.mean[name], both.mean[name], strict=True):
            assert is_ == (was if now is None else now)
    assert merged(both, new) == both and (both.low is None) == (step == 1)


def test_a_zero_is_known_and_what_is_no_number_is_not() -> None:
    assert known(0) == 0 and known(-1.5) == -1.5
    assert [known(value) for value in (None, math.nan, math.inf, -math.inf, 1e39)] == [None] * 5
    zeros = Block(BEGIN, 1, {name: [0.0] * 10 for name in FIELDS["host"]})
    thin = thinned("host", [pack("host", zeros)], 10, BEGIN, 2)
    assert thin.mean["cpu"] == [0.0, None]


@settings(max_examples=60, deadline=None)
@given(KINDS, st.binary(max_size=80))
def test_other_bytes_are_refused_and_leave_a_hole(kind: str, data: bytes) -> None:
    try:
        unpack(kind, data)
    except ValueError:
        assert set(thinned(kind, [data], 10, BEGIN, 2).mean[FIELDS[kind][0]]) == {None}


def test_a_row_of_another_version_gives_the_fields_that_it_has() -> None:
    fields = len(FIELDS["host"])
    block = Block(BEGIN, 1, {name: [float(n), 7.0] for n, name in enumerate(FIELDS["host"])})
    data = pack("host", block)
    head, numbers = data[:16], struct.unpack(f"<{2 * fields}f", data[16:])
    points = numbers[:fields], numbers[fields:]

    older = head + b"".join(struct.pack(f"<{fields - 1}f", *point[:-1]) for point in points)
    last = FIELDS["host"][-1]
    assert unpack("host", older) == replace(block, mean={**block.mean, last: [None, None]})
    newer = head + b"".join(struct.pack(f"<{fields + 1}f", *point, 99.0) for point in points)
    assert unpack("host", newer) == block
    with pytest.raises(ValueError, match="no block"):
        unpack("host", bytes([2]) + data[1:])
    with pytest.raises(ValueError, match="no block"):
        unpack("host", data[:-4])


def test_a_subject_has_a_known_kind_and_steps_fit() -> None:
    assert [kind_of(text) for text in ("host", "gpu:GPU-1", "server:5")] == ["host", "gpu", "server"]
    with pytest.raises(ValueError, match="disk:1"):
        kind_of("disk:1")
    row = pack("host", Block(BEGIN, 10, {name: [1.0] for name in FIELDS["host"]}))
    with pytest.raises(ValueError, match="do not fit"):
        thinned("host", [row], 15, BEGIN, 1)
