"""The chat request, and what timings and errors of the answer mean."""

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.domain.chat import (
    MAX_IMAGE,
    AnswerReader,
    ChatOptions,
    Exchange,
    build_request,
    error_in_words,
    image_data_uri,
    timings_summary,
)
from tests.models import solid_png

TIMINGS = {
    "cache_n": 5,
    "prompt_n": 16,
    "prompt_per_second": 512.4,
    "predicted_n": 66,
    "predicted_per_second": 52.3,
    "draft_n": 78,
    "draft_n_accepted": 39,
}


def test_a_request_streams_with_usage_and_progress_and_uses_the_cache() -> None:
    request = build_request([], "hi")
    assert request == {
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "cache_prompt": True,
    }


def test_earlier_exchanges_come_first_and_unanswered_ones_are_left_out() -> None:
    turns = [Exchange("a", "A"), Exchange("lost", ""), Exchange("b", "B")]
    messages = build_request(turns, "c", (), ChatOptions(system="be brief"))["messages"]
    assert [(m["role"], m["content"]) for m in messages] == [
        ("system", "be brief"),
        ("user", "a"),
        ("assistant", "A"),
        ("user", "b"),
        ("assistant", "B"),
        ("user", "c"),
    ]


def test_images_travel_as_data_uris_with_the_question() -> None:
    uri = image_data_uri(solid_png((255, 0, 0)))
    [message] = build_request([], "Which colour?", [uri])["messages"]
    assert message["content"] == [
        {"type": "image_url", "image_url": {"url": uri}},
        {"type": "text", "text": "Which colour?"},
    ]


def test_a_kept_part_is_the_assistant_s_last_message_with_thinking_off() -> None:
    request = build_request([], "hi", (), ChatOptions(prefill="Hello, I", thinking=True))
    assert request["messages"][-1] == {"role": "assistant", "content": "Hello, I"}
    assert request["chat_template_kwargs"] == {"enable_thinking": False}


def test_options_that_are_not_set_are_not_sent() -> None:
    request = build_request([], "hi", (), ChatOptions(max_tokens=7, temperature=0.0))
    assert (request["max_tokens"], request["temperature"]) == (7, 0.0)
    assert not {"seed", "chat_template_kwargs"} & request.keys()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (solid_png((0, 0, 0)), "png"),
        (b"\xff\xd8\xff\xe0rest", "jpeg"),
        (b"GIF89arest", "gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "webp"),
    ],
)
def test_an_image_is_known_by_its_first_bytes(data: bytes, kind: str) -> None:
    head, _, body = image_data_uri(data).partition(",")
    assert head == f"data:image/{kind};base64"
    assert base64.b64decode(body) == data


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"RIFF\x10\0\0\0WAVEfmt ", b"\x89PN"])
def test_other_files_are_no_images(data: bytes) -> None:
    with pytest.raises(ValueError, match="PNG, JPEG, GIF or WebP"):
        image_data_uri(data)


def test_an_image_above_10_mb_is_refused() -> None:
    head = b"\xff\xd8\xff"
    assert image_data_uri(head + bytes(MAX_IMAGE - len(head)))
    with pytest.raises(ValueError, match="10 MB"):
        image_data_uri(head + bytes(MAX_IMAGE - len(head) + 1))


def test_timings_give_acceptance_and_the_context_used() -> None:
    summary = timings_summary(TIMINGS)
    assert summary["acceptance"] == 0.5
    assert summary["context_used"] == 87
    assert summary["prompt_per_second"] == 512.4


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, "7", True, [], {}])
def test_numbers_that_are_none_are_unknown_not_zero(value: Any) -> None:
    summary = timings_summary(dict.fromkeys(TIMINGS, value))
    assert set(summary.values()) == {None}


def test_absurd_numbers_do_not_become_infinite() -> None:
    assert timings_summary({"draft_n": 2.2e-309, "draft_n_accepted": 1.0})["acceptance"] is None
    assert timings_summary({"prompt_n": 10**400, "predicted_n": 1})["context_used"] is None


def test_nothing_drafted_has_no_acceptance() -> None:
    assert timings_summary({"draft_n": 0, "draft_n_accepted": 0})["acceptance"] is None
    assert timings_summary({"draft_n": 4, "draft_n_accepted": 0})["acceptance"] == 0


@given(st.dictionaries(st.sampled_from(sorted(TIMINGS)), st.floats() | st.integers() | st.none() | st.text()))
def test_a_summary_is_always_plain_json(timings: dict[str, Any]) -> None:
    json.dumps(timings_summary(timings), allow_nan=False)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (
            400,
            '{"error":{"code":400,"message":"request (717 tokens) exceeds the available context size",'
            '"type":"exceed_context_size_error","n_prompt_tokens":717,"n_ctx":512}}',
            "has 717 tokens, 205 more than the server's context of 512",
        ),
        (400, '{"error":{"type":"exceed_context_size_error"}}', "longer than the server's context"),
        (
            500,
            '{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, '
            'you may need to provide the mmproj","type":"server_error"}}',
            "no vision projector",
        ),
        (401, '{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}', "key"),
        (503, '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', "still loading"),
        (500, '{"error":{"code":500,"message":"something else"}}', "The server said: something else"),
        (502, "<html>bad gateway</html>", "The server said: <html>bad gateway</html>"),
        (404, "", "error 404"),
        (500, '{"error":"plain text"}', "The server said: plain text"),
    ],
)
def test_an_http_error_is_told_in_words(status: int, body: str, words: str) -> None:
    assert words in str(error_in_words(status, body))
    assert words in str(error_in_words(status, body.encode()))


@given(st.integers(100, 599), st.binary() | st.text())
def test_any_error_body_gives_words(status: int, body: bytes | str) -> None:
    assert str(error_in_words(status, body))


def test_text_that_no_database_can_hold_is_cleaned() -> None:
    [delta] = AnswerReader().feed(b'data: {"choices":[{"delta":{"content":"a\\u0000b\\ud83dc\\u00e9"}}]}\n\n')
    assert delta.content == "ab?c\u00e9"
