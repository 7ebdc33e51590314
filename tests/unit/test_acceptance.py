"""What a log says of the answers of a running server: drafts in vain, answers that slow down."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from servers.domain.acceptance import Acceptance, Collapse
from servers.domain.drift import Drift, Speeds
from servers.domain.living import QUALITY, REQUEST, sign_of_collapse, signs
from servers.domain.timings import Answer, Timings

DATA = Path(__file__).parent.parent / "data"
TOO_LONG = (
    b"srv    send_error: task id = 7, error: request (5000 tokens) exceeds the available context size "
    b"(2048 tokens), try increasing it\n"
)


def drafted(share: float, number: int = 200) -> Answer:
    """An answer of which this share of the drafts was accepted."""
    return Answer(300, 3.0, 0, "draft acceptance", accepted=round(share * number), drafted=number)


def collapses(shares: list[float], number: int = 200) -> list[Collapse]:
    sums = Acceptance()
    return [found for share in shares if (found := sums.add(drafted(share, number)))]


def timed(speed: float, depth: int = 3000, *, alone: bool = True, tokens: int = 200) -> Answer:
    """An answer with so many tokens per second."""
    return Answer(tokens, tokens / speed, 0, "eval time", depth=depth, alone=alone)


def drifts(answers: list[Answer]) -> list[Drift]:
    speeds = Speeds()
    return [found for answer in answers if (found := speeds.add(answer))]


def test_answers_are_read_from_both_dialects_also_across_pieces() -> None:
    fork = (DATA / "diagnosis" / "mtp-ok-fork-stopped.txt").read_bytes()
    [one] = Timings().read(fork)
    assert (one.tokens, one.accepted, one.drafted) == (72, 58, 208)
    assert fork[one.offset :].startswith(one.line.encode()) and "208 generated" in one.line
    upstream = (DATA / "logs" / "ok-upstream-mtp.log").read_bytes()
    whole = list(Timings().read(upstream))
    assert [(answer.drafted, answer.alone) for answer in whole] == [(78, True)]
    reader, at = Timings(), 0
    pieces: list[Answer] = []
    for line in upstream.splitlines(keepends=True):
        pieces += reader.read(line, at)
        at += len(line)
    assert pieces == whole


def test_an_answer_beside_which_another_slot_works_is_not_alone() -> None:
    lines = [
        "slot launch_slot_: id  0 | task 1 | processing task, is_child = 0",
        "slot launch_slot_: id  1 | task 2 | processing task, is_child = 0",
        "       eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)",
        "slot      release: id  1 | task 2 | stop processing: n_tokens = 500, truncated = 0",
        "       eval time =    2000.00 ms /   100 tokens (   20.00 ms per token,    50.00 tokens per second)",
        "slot      release: id  0 | task 1 | stop processing: n_tokens = 600, truncated = 0",
        "slot launch_slot_: id  0 | task 3 | processing task, is_child = 0",
        "prompt eval time =    9000.00 ms /   900 tokens (   10.00 ms per token,   100.00 tokens per second)",
        "       eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)",
        "slot      release: id  0 | task 3 | stop processing: n_tokens = 700, truncated = 0",
        '{"content": "eval time = 1.00 ms / 1 tokens"}',
        "slot      release: id  1 | task 4 | stop processing: n_tokens = 700, truncated = 0",
    ]
    found = list(Timings().read("\n".join(lines).encode()))
    assert [(one.seconds, one.depth, one.alone) for one in found] == [
        (1.0, 500, False),
        (2.0, 600, False),
        (1.0, 700, True),
    ]


def test_drafts_in_vain_are_a_collapse_whatever_was_before_and_told_once() -> None:
    [found] = collapses([0.01] * 30)
    assert found.before is None and found.share == pytest.approx(0.01)
    assert len(found.answers) == 4
    [later] = collapses([0.7] * 20 + [0.02] * 30)
    assert later.before == pytest.approx(0.7, abs=0.01)


def test_far_less_than_before_is_a_collapse_and_may_come_again_after_it_was_over() -> None:
    assert len(collapses([0.7] * 20 + [0.2] * 30)) == 1
    assert len(collapses([0.7] * 20 + [0.2] * 30 + [0.7] * 10 + [0.2] * 10)) == 2


@pytest.mark.parametrize(
    "shares, number",
    [
        ([0.75, 0.35] * 40, 200),  # code and prose in turn
        ([0.7] * 20 + [0.4] * 20, 200),  # a conversation about something else
        ([0.7] * 20 + [0.1] * 2 + [0.7] * 20, 200),  # two odd answers
        ([0.0] * 40, 2),  # short answers say nothing
        ([0.3] * 40, 200),  # it was never better
    ],
)
def test_ordinary_changes_are_no_collapse(shares: list[float], number: int) -> None:
    assert collapses(shares, number) == []


def test_a_drift_is_many_answers_in_a_row_that_are_slower_than_like_ones_before() -> None:
    chance = random.Random(1)
    well = [timed(40 * chance.uniform(0.8, 1.2)) for _ in range(60)]
    slow = [timed(18 * chance.uniform(0.8, 1.2)) for _ in range(40)]
    [found] = drifts(well + slow)
    assert 15 < found.speed < 21 and 37 < found.before < 43 and found.depth == 3000
    assert len(drifts(well + slow + well[:20] + slow)) == 2


@pytest.mark.parametrize(
    "then",
    [
        [timed(18, depth=60_000)] * 40,  # longer conversations
        [timed(18, alone=False)] * 40,  # several slots at work
        [timed(18, tokens=20)] * 40,  # short answers
        [timed(18), timed(40)] * 40,  # now and then
        [timed(26)] * 40,  # a little slower
        [timed(18)] * 9,  # for a while
    ],
)
def test_other_reasons_to_be_slower_are_no_drift(then: list[Answer]) -> None:
    assert drifts([timed(40)] * 60 + then) == []


def test_fewer_accepted_drafts_alone_are_no_drift() -> None:
    """Each step takes as long as before, and brings fewer tokens."""
    many = Answer(300, 3.0, 0, "", accepted=200, drafted=300, depth=3000, alone=True)
    few = Answer(150, 3.0, 0, "", accepted=50, drafted=300, depth=3000, alone=True)
    assert drifts([many] * 60 + [few] * 40) == []


def test_only_new_lines_count_and_each_of_them() -> None:
    facts = {"settings": {"ctx_size": 2048}, "n_ctx": 2048}
    text = TOO_LONG * 4 + b"srv  update_slots: all slots are idle\n" + TOO_LONG * 3
    new = len(TOO_LONG * 4)
    [sign] = signs(text, new, facts, base=1000)
    assert (sign.diagnosis.cause_key, sign.quality, sign.times) == ("context_overflow", False, 3)
    first = sign.diagnosis.evidence[0].offset
    assert text[first - 1000 :].startswith(b"srv    send_error") and first - 1000 >= new
    assert signs(text[: new + 38], new, facts) == []


def test_what_only_ends_a_server_is_not_said_of_one_that_lives() -> None:
    assert {"killed", "crashed", "ended_from_outside", "assertion_failed"}.isdisjoint(REQUEST | QUALITY)
    assert {"host_oom", "server_segfault", "model_not_loaded", "port_in_use"}.isdisjoint(REQUEST | QUALITY)
    assert {"context_overflow", "step_failed", "illegal_memory_access", "xid79", "xid31"} <= REQUEST
    assert {"turboquant_garbage", "mtp_vision"} <= QUALITY
    ended = b"main: server is listening on http://127.0.0.1:1\nGGML_ASSERT(n > 0) failed\n[New LWP 4712]\n"
    assert signs(ended, 0, {}) == []


def test_drafts_in_vain_with_a_quantised_cache_are_the_known_bug() -> None:
    line = "draft acceptance rate = 0.00000 (    0 accepted /   412 generated)"
    found = Collapse(0.0, None, (Answer(10, 1.0, 50, line, drafted=412),))
    known = sign_of_collapse(found, line.encode(), {"settings": {"cache_type_k": "q8_0"}}, 50)
    assert known.diagnosis.cause_key == "mtp_zero_acceptance_kv"
    assert known.diagnosis.evidence[0].offset == 50
    plain = sign_of_collapse(found, line.encode(), {}, 50)
    assert plain.diagnosis.cause_key == "acceptance_collapse" and plain.quality
    assert str(plain.diagnosis.title) == "Of the last 1 answers, only 0 % of the drafts were accepted"
