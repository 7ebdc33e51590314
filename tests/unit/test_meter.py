"""What is read of /metrics, /slots and a log, and the meter that comes of it."""

from __future__ import annotations

import pytest

from servers.domain.meter import ServerMeter, SlotUse, dumped, loaded
from servers.domain.meter_log import LogReader, News
from servers.domain.meter_state import IDLE_EVERY, KEPT, MeterState
from servers.domain.scrape import MOST_BYTES, Metrics, SlotWork, read_json, read_metrics, read_slots
from servers.domain.timings import Answer

UPSTREAM = b"""# HELP llamacpp:tokens_predicted_total Number of generation tokens processed
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 900
llamacpp:prompt_tokens_total 320
llamacpp:prompt_seconds_total 0.09043
llamacpp:spec_decode_num_draft_tokens_total 1077
llamacpp:spec_decode_num_accepted_tokens_total 540
llamacpp:spec_decode_num_drafts_total 359
llamacpp:predicted_tokens_seconds 301.744
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 200
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 180
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 160
"""
FORK = b"""llamacpp:prompt_tokens_total 21
llamacpp:tokens_predicted_total 6
llamacpp:prompt_tokens_seconds nan
llamacpp:n_busy_slots_per_decode inf
llamacpp:requests_processing 0
llamacpp:requests_deferred 0
"""
NEW_LOG = b"""\
0.05.1.1 I slot launch_slot_: id  1 | task 2 | processing task, is_child = 0
0.05.483.111 I slot print_timing: id  1 | task 2 | prompt eval time =      91.14 ms /   320 tokens (0.28 ms)
0.05.483.150 I slot print_timing: id  1 | task 2 |        eval time =    2979.35 ms /   900 tokens (3.31 ms)
0.05.483.187 I slot print_timing: id  1 | task 2 | draft acceptance = 0.501 (  540 accepted /  1077 generated)
0.05.483.542 I slot      release: id  1 | task 2 | stop processing: n_tokens = 1219, truncated = 0
"""
FORK_LOG = b"""\
slot launch_slot_: id  0 | task 77 | processing task, is_child = 0
slot print_timing: id  0 | task 77 |
prompt eval time =       0.61 ms /     1 tokens (    0.61 ms per token,  1631.32 tokens per second)
       eval time =     544.89 ms /   600 tokens (    0.91 ms per token,  1101.13 tokens per second)
draft acceptance rate = 0.24948 (  479 accepted /  1920 generated)
srv  log_server_r: done request: GET /slots 127.0.0.1 200
slot      release: id  0 | task 77 | stop processing: n_tokens = 600, truncated = 0
"""


def metrics(predicted: float, prompt: float = 0, busy: float = 0, **more: float) -> Metrics:
    values = {"tokens_predicted_total": predicted, "prompt_tokens_total": prompt, "requests_processing": busy}
    return Metrics({**values, "requests_deferred": 0, **more})


def slot(decoded: int | None, processed: int = 0, used: int = 0) -> tuple[SlotWork, ...]:
    """One slot, idle without a number."""
    return (SlotWork(SlotUse(0, used, 4096, decoded is not None), 1, processed, decoded or 0),)


def test_both_dialects_of_metrics_are_read() -> None:
    found = read_metrics(UPSTREAM)
    assert found is not None
    assert found.values["tokens_predicted_total"] == 900
    assert found.per_position == (200, 180, 160)
    assert (found.count("requests_processing"), found.count("requests_deferred")) == (1, 2)
    fork = read_metrics(FORK)
    assert fork is not None
    assert fork.per_position == ()
    assert "prompt_tokens_seconds" not in fork.values
    assert "n_busy_slots_per_decode" not in fork.values


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>not found</html>",
        b"\xff\xfe\x00" * 1000,
        b"llamacpp:tokens_predicted_total 1e400\nllamacpp:x -3\nllamacpp:y 1 2 3\n",
        b"llamacpp:tokens_predicted_total 5\n" * (MOST_BYTES // 30),
        b'llamacpp:tokens_predicted_total{a="' + b"x" * 100_000 + b'"} 5\n',
    ],
)
def test_what_is_no_metrics_tells_nothing(body: bytes) -> None:
    assert read_metrics(body) is None


def test_positions_of_a_draft_are_told_without_a_hole() -> None:
    name = b"llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    found = read_metrics(b"llamacpp:x 1\n" + name + b'{position="0"} 9\n' + name + b'{position="99"} 8\n')
    assert found is not None
    assert found.per_position == (9,)


def test_a_slot_tells_the_context_that_it_uses() -> None:
    token = {"has_next_token": True, "n_decoded": 760}
    busy = {"id": 1, "n_ctx": 2048, "is_processing": True, "id_task": 2, "n_prompt_tokens_processed": 320}
    busy |= {"n_prompt_tokens_cache": 0, "next_token": [token]}
    never = {"id": 0, "n_ctx": 2048, "is_processing": False}
    # Some count what they wrote among the prompt's tokens, some do not.
    for counted in (1080, 320):
        found = read_slots([never, {**busy, "n_prompt_tokens": counted}])
        assert found is not None
        assert [work.use for work in found] == [SlotUse(0, 0, 2048, False), SlotUse(1, 1080, 2048, True)]
        assert (found[1].task, found[1].processed, found[1].decoded) == (2, 320, 760)
    rests = {**busy, "is_processing": False, "n_prompt_tokens": 1819, "n_prompt_tokens_processed": 0}
    found = read_slots([rests])
    assert found is not None
    assert found[0].use == SlotUse(1, 1819, 2048, False)
    assert found[0].decoded == 0


@pytest.mark.parametrize(
    "found", [None, {}, [], [1], "slots", [{"id": 0}, None], [{}] * 1000, {"error": {"code": 501}}]
)
def test_what_are_no_slots_tells_nothing(found: object) -> None:
    assert read_slots(found) is None


def test_odd_values_of_a_slot_are_unknown() -> None:
    odd = {"id": True, "n_ctx": -1, "is_processing": "yes", "n_prompt_tokens": 1e300, "next_token": [[]]}
    found = read_slots([odd, {"n_ctx": float("nan"), "next_token": {"n_decoded": "many"}}])
    assert found is not None
    assert [work.use for work in found] == [SlotUse(0), SlotUse(1)]
    assert read_json(b"[" * 100_000) is None
    found = read_slots(read_json(b'[{"n_ctx": 1' + b"0" * 4000 + b"}]"))
    assert found is not None
    assert found[0].use == SlotUse(0)


@pytest.mark.parametrize(("text", "tokens", "prompt"), [(NEW_LOG, 900, 320), (FORK_LOG, 600, 1)])
def test_a_log_that_comes_in_pieces_tells_its_answers(text: bytes, tokens: int, prompt: int) -> None:
    reader = LogReader()
    news = [reader.read(text[at : at + 50]) for at in range(0, len(text), 50)]
    assert [answer.tokens for part in news for answer in part.answers] == [tokens]
    assert [count for part in news for count, _seconds in part.prompts] == [prompt]
    assert [sum(part.begun for part in news), sum(part.ended for part in news)] == [1, 1]


def test_odd_numbers_in_a_log_are_passed_over() -> None:
    long = b"1" * 5000
    line = b"I slot print_timing: id  1 | task 2 | "
    text = line + b"eval time = 1.2.3 ms / 9 tokens\n" + line + b"eval time = 1 ms / " + long + b" tokens\n"
    text += b"prompt eval time = 1.2.3 ms / 9 tokens\n"
    text += line + b"stop processing: n_tokens = " + long + b"\n"
    assert LogReader().read(text) == News(ended=1)


def test_slots_that_share_a_cache_have_its_size_once() -> None:
    slots = (SlotUse(0, 100, 4096), SlotUse(1, 20, 4096))
    assert ServerMeter(1.0, slots=slots).context_size == 8192
    assert ServerMeter(1.0, slots=slots, shared=True).context_size == 4096
    assert ServerMeter(1.0, slots=(*slots, SlotUse(2))).context_size is None


def test_a_server_that_sleeps_is_left_alone_until_it_works() -> None:
    state = MeterState(sleeper=True)
    assert state.may_sleep
    state.note_asleep(100)
    assert not state.due(1000)
    assert state.meter(1000).busy is None
    state.note_log(News(begun=1), 1001)
    assert state.due(1001)
    assert not state.may_sleep
    state.note_reading(1001, metrics(7), slot(None))
    assert not state.due(2000)


def test_what_people_write_is_no_sign() -> None:
    quoted = b'srv  request: {"content": "| processing task prompt eval time = 1 ms / 9 tokens"}\n'
    assert LogReader().read(quoted) == News()


def test_rates_come_from_what_goes_on_and_an_end_is_counted_once() -> None:
    state = MeterState()
    assert state.due(100)
    state.note_reading(100, metrics(0), slot(None))
    assert (state.meter(100).predicted_tps, state.meter(100).busy) == (0, 0)
    state.note_log(News(begun=1), 101)
    assert not state.due(101) and state.due(103)
    state.note_reading(101, metrics(0, busy=1), slot(0, processed=320))
    assert state.meter(101).prompt_tps == 320
    state.note_reading(102, metrics(0, 320, busy=1), slot(50, processed=320))
    state.note_reading(103, metrics(0, 320, busy=1), slot(100, processed=320, used=420))
    now = state.meter(103)
    assert now.predicted_tps == pytest.approx(50)
    assert (now.busy, now.waiting, now.context_used) == (1, 0, 420)
    state.note_reading(104, metrics(130, 320), slot(None, used=450))
    assert state.meter(104).predicted_tps == pytest.approx(30)
    state.rest(105)
    now = state.meter(105)
    assert (now.predicted_tps, now.prompt_tps, now.busy, now.context_used) == (0, 0, 0, 450)
    assert now.totals["predicted_tokens"] == 130


def test_a_request_that_ends_between_the_two_questions_makes_no_false_rate() -> None:
    state = MeterState()
    state.note_reading(100, metrics(0, busy=1), slot(900))
    state.note_reading(101, metrics(0, busy=1), slot(950))
    state.note_reading(102, metrics(0, busy=1), slot(None))  # the counter was asked a moment before its end
    assert state.meter(102).predicted_tps == 50
    assert state.due(105)
    state.note_reading(103, metrics(1000), slot(None))
    assert state.meter(103).predicted_tps == 25


def test_counters_that_begin_anew_give_no_negative_rate() -> None:
    state = MeterState()
    for second in range(3):
        state.note_reading(100 + second, metrics(5000 + 10 * second, busy=1), slot(0))
    for second in range(3, 10):
        state.note_reading(100 + second, metrics(20 * (second - 3), busy=1), slot(0))
        assert (state.meter(100 + second).predicted_tps or 0) >= 0
    assert state.meter(109).predicted_tps == pytest.approx(20)


def test_an_idle_server_is_asked_rarely_and_a_sleeper_never() -> None:
    for sleeper in (False, True):
        state = MeterState(sleeper=sleeper)
        state.note_reading(100, metrics(7), slot(None))
        assert not state.due(100 + IDLE_EVERY - 1)
        assert state.due(100 + IDLE_EVERY) is not sleeper
        state.rest(150)
        assert (state.meter(150).busy, state.meter(150).predicted_tps) == (0, 0)
        state.note_log(News(begun=1), 151)
        assert state.due(151)


def test_the_end_of_all_work_is_read_soon() -> None:
    state = MeterState()
    state.note_reading(100, metrics(0), slot(None))
    state.note_log(News(begun=2), 110)
    state.note_reading(110, metrics(0, busy=2), slot(1))
    state.note_log(News(ended=1), 111)
    assert not state.due(111)
    state.note_log(News(ended=1), 111.5)
    assert state.due(111.5)
    state.note_log(News(begun=1), 111.6)
    assert not state.due(111.6) and state.due(113)


def test_a_server_that_does_not_answer_is_unknown_after_a_while() -> None:
    state = MeterState()
    state.note_reading(100, metrics(0, busy=1), slot(1))
    state.note_failed(101)
    assert not state.due(103)
    assert state.due(106)
    assert state.meter(106).busy == 1
    late = state.meter(101 + KEPT)
    assert (late.busy, late.predicted_tps, late.slots, late.waiting) == (None, None, (), None)


def test_without_metrics_the_log_takes_their_place() -> None:
    state = MeterState(whole_log=True)
    state.note_reading(100, None, slot(None))
    state.note_log(News(begun=1), 101)
    state.note_reading(101, None, slot(40, processed=10))
    state.note_reading(102, None, slot(90, processed=10))
    assert state.meter(102).predicted_tps == pytest.approx(50)
    answer = Answer(100, 2.0, 0, "", accepted=50, drafted=100)
    state.note_log(News(begun=1, answers=(answer,), prompts=((10, 0.5),)), 103)
    state.note_reading(103, None, slot(None, used=110))
    now = state.meter(103)
    assert (now.busy, now.waiting, now.acceptance, now.per_position) == (0, None, 0.5, None)
    assert now.mean_length == 2
    assert (now.last_predicted_tps, now.last_prompt_tps) == (50, 20)
    assert now.totals == {
        "requests": 1,
        "predicted_tokens": 100,
        "predicted_seconds": 2,
        "drafted": 100,
        "accepted": 50,
        "prompt_tokens": 10,
        "prompt_seconds": 0.5,
    }
    assert state.meter(500).acceptance == 0.5  # the last one that is known


def test_without_slots_a_rate_is_not_known_while_it_works() -> None:
    state = MeterState()
    state.note_reading(100, metrics(0), None)
    assert state.meter(100).predicted_tps == 0
    state.note_reading(101, metrics(0, busy=1), None)
    assert (state.meter(101).predicted_tps, state.meter(101).busy) == (None, 1)
    state.note_reading(102, None, None)
    assert (state.meter(102).predicted_tps, state.meter(102).busy) == (None, None)


def test_acceptance_is_that_of_the_last_minute() -> None:
    def reading(at: float, drafted: int, accepted: int, *positions: float) -> None:
        names = {
            "spec_decode_num_draft_tokens_total": drafted,
            "spec_decode_num_accepted_tokens_total": accepted,
            "spec_decode_num_drafts_total": drafted / 2,
        }
        state.note_reading(at, Metrics({**metrics(0).values, **names}, positions), slot(None))

    state = MeterState()
    reading(100, 1000, 900, 480, 420)
    assert state.meter(100).acceptance == 0.9  # all that is known
    reading(200, 1100, 920, 495, 425)
    now = state.meter(200)
    assert (now.acceptance, now.mean_length) == (0.2, 1.4)
    assert now.per_position == (0.3, 0.1)


def test_a_meter_travels_as_json() -> None:
    state = MeterState()
    state.note_reading(100, read_metrics(UPSTREAM), slot(5, processed=3, used=8))
    meter = state.meter(101)
    assert loaded(dumped({7: meter})) == {7: meter}
    assert meter.per_position == pytest.approx((200 / 359, 180 / 359, 160 / 359))
