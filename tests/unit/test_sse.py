"""Reading llama-server's event stream: any split of the bytes gives the same events."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.domain.chat import AnswerReader, Delta
from servers.domain.sse import EventReader, ServerEvent, StreamBroken


def chunk(**delta: object) -> str:
    """One event of a streamed chat answer."""
    choice = {"index": 0, "finish_reason": delta.pop("finish_reason", None), "delta": delta}
    return "data: " + json.dumps({"choices": [choice]}, ensure_ascii=False) + "\n\n"


# In the form of a real answer: role, prompt progress, reasoning, text, end, usage with timings, [DONE].
STREAM = "".join(
    [
        chunk(role="assistant", content=None),
        ":\n\n",
        'data: {"choices":[{"index":0,"delta":{"content":null}}],'
        '"prompt_progress":{"total":59,"cache":0,"processed":55,"time_ms":13}}\n\n',
        chunk(reasoning_content="Paris — 巴黎"),
        chunk(content="Grüße, 世界 🙂\n"),
        chunk(content='"data: [DONE]"'),
        chunk(finish_reason="stop"),
        'data: {"choices":[],"usage":{"completion_tokens":8},"timings":{"prompt_n":39,"predicted_n":8}}\n\n',
        "data: [DONE]\n\n",
    ]
).encode()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes cut at the places."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def deltas(parts: list[bytes]) -> list[Delta]:
    """What a reader makes of the parts."""
    reader = AnswerReader()
    found = [delta for part in parts for delta in reader.feed(part)]
    assert reader.end() is None
    return found


@given(st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_any_split_of_the_bytes_gives_the_same_deltas(places: list[int]) -> None:
    assert deltas(cut(STREAM, places)) == deltas([STREAM])


@given(st.lists(st.integers(0, 2 * len(STREAM)), max_size=40))
def test_lines_that_end_with_carriage_return_and_line_feed_mean_the_same(places: list[int]) -> None:
    assert deltas(cut(STREAM.replace(b"\n", b"\r\n"), places)) == deltas([STREAM])


def test_the_whole_answer_is_read() -> None:
    found = deltas([STREAM])
    assert "".join(delta.content for delta in found) == 'Grüße, 世界 🙂\n"data: [DONE]"'
    assert "".join(delta.reasoning for delta in found) == "Paris — 巴黎"
    assert [delta.finish_reason for delta in found if delta.finish_reason] == ["stop"]
    assert [delta.progress.processed for delta in found if delta.progress] == [55]
    assert found[-1].timings == {"prompt_n": 39, "predicted_n": 8}
    assert found[-1].usage == {"completion_tokens": 8}


@given(st.text(), st.integers(0, 1000))
def test_every_text_arrives_unchanged(text: str, place: int) -> None:
    data = f"data: {json.dumps(text)}\n\n".encode()
    reader = EventReader()
    events = [event for part in cut(data, [place]) for event in reader.feed(part)]
    assert [json.loads(event.data) for event in events] == [text]


def test_several_data_lines_are_one_event() -> None:
    reader = EventReader()
    assert reader.feed(b"event: x\nid: 7\ndata: a\ndata:b\n\n") == [ServerEvent("data", "a\nb")]
    assert reader.feed(b"\n\n: nothing\n\n") == []


def test_nothing_counts_after_done() -> None:
    reader = EventReader()
    assert reader.feed(b"data: [DONE]\n\ndata: {}\n\n") == []
    assert reader.done


def test_a_stream_that_breaks_off_is_no_complete_answer() -> None:
    reader = AnswerReader()
    reader.feed(STREAM[: STREAM.index(b"data: [DONE]\n")])
    problem = reader.end()
    assert problem is not None and "closed the connection" in str(problem)


@pytest.mark.parametrize(
    "data",
    [
        b'data: {"error":{"code":500,"message":"out of memory","type":"server_error"}}\n\n',
        b'error: {"code":500,"message":"out of memory","type":"server_error"}\n\n',
    ],
    ids=["today's form", "the older form"],
)
def test_an_error_within_the_stream_is_told_once(data: bytes) -> None:
    reader = AnswerReader()
    found = reader.feed(data)
    assert [str(delta.error) for delta in found] == ["The server said: out of memory"]
    assert reader.end() is None


@pytest.mark.parametrize("data", [b"x" * 101, b"data: " + b"x" * 90 + b"\ndata: " + b"x" * 20 + b"\n"])
def test_a_line_or_event_without_end_is_refused(data: bytes) -> None:
    reader = EventReader(max_line=100)
    with pytest.raises(StreamBroken):
        for byte in data:
            reader.feed(bytes([byte]))


@pytest.mark.parametrize(
    "payload",
    ["null", "7", "[]", "{}", '{"choices":null}', '{"choices":[null]}', '{"choices":[{"delta":[]}]}']
    + ['{"choices":[{"delta":{"content":5}}]}', '{"prompt_progress":{"total":0}}', '{"timings":"x"}'],
)
def test_unknown_shapes_count_as_nothing(payload: str) -> None:
    assert AnswerReader().feed(f"data: {payload}\n\n".encode()) == [Delta()]


def test_an_event_that_is_not_json_is_an_error() -> None:
    [delta] = AnswerReader().feed(b"data: {broken\n\n")
    assert delta.error is not None
