"""Sampling settings: what a form may set, and what a server says it does unasked."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.domain.chat import ChatOptions, build_request
from servers.domain.sampling import NAMES, SETTINGS, read_sampling, server_defaults


def test_what_is_set_becomes_numbers_and_the_rest_is_left_out() -> None:
    values = {"temperature": " 0.70 ", "top_k": "40", "top_p": "", "seed": "7.0", "other": "1"}
    assert read_sampling(values) == ({"temperature": 0.7, "top_k": 40, "seed": 7}, {})


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_the_limits_themselves_are_accepted(setting: Any) -> None:
    for number in (setting.low, setting.high):
        assert read_sampling({setting.name: str(number)}) == ({setting.name: number}, {})


@pytest.mark.parametrize(
    ("name", "text"),
    [("temperature", "5.1"), ("temperature", "-0.1"), ("temperature", "warm"), ("top_k", "1.5")]
    + [("top_p", "1.01"), ("seed", "-1"), ("max_tokens", "0"), ("min_p", "nan"), ("top_k", "inf")]
    + [("repeat_penalty", "0"), ("seed", "4294967295")],
)
def test_what_is_out_of_range_is_named_with_its_range(name: str, text: str) -> None:
    found, wrong = read_sampling({name: text})
    assert not found and list(wrong) == [name]
    assert "enter a" in str(wrong[name]) and "or nothing" in str(wrong[name])


def test_a_system_prompt_that_is_too_long_is_refused() -> None:
    assert read_sampling({"system": " x\r\ny\0 "}) == ({"system": "x\ny"}, {})
    found, wrong = read_sampling({"system": "x" * 20_001})
    assert not found and "20001 characters" in str(wrong["system"])


@given(st.dictionaries(st.sampled_from(sorted(NAMES)), st.text(max_size=12) | st.floats().map(str)))
def test_whatever_was_accepted_can_be_sent(values: dict[str, str]) -> None:
    found, _wrong = read_sampling(values)
    request = build_request([], "hi", (), ChatOptions(**found))
    for name, value in found.items():
        assert name == "system" or (request[name] == value and math.isfinite(value))


def test_the_server_s_own_settings_are_shown_as_people_write_them() -> None:
    params = {"temperature": 0.800000011920929, "top_k": 40, "max_tokens": -1, "seed": 4294967295}
    props = {"default_generation_settings": {"params": {**params, "min_p": True, "top_p": None}}}
    assert server_defaults(props) == {"temperature": "0.8", "top_k": "40", "max_tokens": "", "seed": ""}


@pytest.mark.parametrize("props", [None, [], {}, {"default_generation_settings": 1}])
def test_a_server_that_tells_nothing_has_no_known_settings(props: Any) -> None:
    assert server_defaults(props) == {}
