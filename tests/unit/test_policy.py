"""How a server is kept running: what follows an end, and what is stored, wrong or doubtful in a policy."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlpanel.llamacpp.problems import errors
from servers.domain.policy import (
    AFTER_BOOT,
    DEFAULT,
    FIELDS,
    LIMITS,
    RESTARTS,
    End,
    Policy,
    decide,
    policy_of,
    values_of,
)
from servers.domain.policy_problems import problems_of
from servers.domain.policy_words import WORDS, differences

CRASH = End(exit_code=-11, ready_s=1.0)
HOSTILE: tuple[Any, ...] = ("", "x" * 9000, -1, 0, 2**70, 1.5, float("nan"), True, None, [], {}, ["always"])


def test_starts_follow_a_failure_after_two_ten_and_thirty_seconds_until_the_limit() -> None:
    waits, attempts = [], 0
    while (found := decide(replace(DEFAULT, limit=5), attempts, CRASH)).kind == "retry":
        assert found.attempts == attempts + 1 and found.why is None
        waits.append(found.wait_s)
        attempts = found.attempts
    assert waits == [2, 10, 30, 30, 30]
    assert found.kind == "give_up" and found.attempts == 5
    assert "6 starts in a row have failed" in str(found.why)


def test_a_server_that_was_stable_begins_to_count_anew() -> None:
    for ready, stable in ((None, False), (299.9, False), (300.0, True)):
        found = decide(DEFAULT, 3, End(exit_code=1, ready_s=ready))
        assert (found.kind, found.attempts) == (("retry", 1) if stable else ("give_up", 3))


def test_the_restart_word_decides_with_the_exit_code() -> None:
    for restart, code, kind in (
        ("never", 1, "rest"),
        ("never", 0, "rest"),
        ("on-failure", 0, "rest"),
        ("on-failure", 1, "retry"),
        ("on-failure", None, "retry"),
        ("always", 0, "retry"),
        ("always", -9, "retry"),
    ):
        assert decide(Policy(restart=restart), 0, End(exit_code=code)).kind == kind


def test_what_a_start_cannot_mend_is_not_tried_again() -> None:
    found = decide(Policy(restart="always"), 0, End(exit_code=1, mendable=False))
    assert found.kind == "give_up" and "same way" in str(found.why)
    assert decide(Policy(restart="never"), 0, End(mendable=False)).why is None


def test_after_a_reboot_the_server_comes_back_soon_unless_it_is_never_to() -> None:
    end = End(exit_code=None, rebooted=True)
    for restart in ("on-failure", "always"):
        found = decide(Policy(restart=restart), 3, end)
        assert (found.kind, found.attempts, found.wait_s) == ("retry", 0, AFTER_BOOT)
    assert decide(Policy(restart="never"), 3, end).kind == "rest"


def _value(name: str) -> st.SearchStrategy[Any]:
    if name == "restart":
        return st.sampled_from(list(RESTARTS))
    if name == "on_demand":
        return st.booleans()
    number = st.integers(*LIMITS[name])
    return number | st.none() if asdict(DEFAULT)[name] is None else number


@given(st.builds(Policy, **{name: _value(name) for name in FIELDS}))
def test_a_policy_is_stored_without_defaults_and_read_back(policy: Policy) -> None:
    stored = values_of(policy)
    assert policy_of(stored) == policy
    assert not any(value == asdict(DEFAULT)[name] for name, value in stored.items())
    assert not errors(problems_of(stored))


@pytest.mark.parametrize("name", FIELDS)
def test_what_cannot_be_a_value_is_told_at_its_field_and_read_as_the_default(name: str) -> None:
    impossible = 0
    for value in HOSTILE:
        found = errors(problems_of({name: value}))
        assert {problem.field for problem in found} <= {f"policy_{name}"}
        read = asdict(policy_of({name: value}))[name]
        if found:
            impossible += 1
            assert read == asdict(DEFAULT)[name] and len(str(found[0].message)) < 300
        else:
            assert read == value and type(read) is type(value)
    assert impossible >= len(HOSTILE) - 1
    assert policy_of({"no such thing": 1}) == DEFAULT and errors(problems_of({"no such thing": 1}))


def test_what_has_another_effect_than_one_may_think_is_told_at_its_field() -> None:
    def fields(stored: dict[str, Any], sleep_idle: object = None) -> list[str]:
        found = problems_of(stored, sleep_idle)
        assert all(problem.level == "warning" for problem in found)
        return [problem.field.removeprefix("policy_") for problem in found]

    assert fields({"idle_min": 5}) == ["idle_min"]
    assert fields({"idle_min": 5, "on_demand": True}) == []
    assert fields({"idle_min": 5, "on_demand": True}, 60) == ["idle_min"]
    assert fields({"on_demand": True}, 60) == []
    assert fields({"restart": "never"}) == []
    touched = {"limit": 5, "stable_s": 20, "hang_s": 0, "order": 1, "memory_mib": 900}
    assert fields({"restart": "never", **touched}) == ["limit", "stable_s", "hang_s", "order"]
    assert fields(touched) == []
    both = problems_of({"restart": "never", "limit": 0, "hang_s": 5})
    assert [(one.level, one.field) for one in both] == [
        ("error", "policy_limit"),
        ("warning", "policy_hang_s"),
    ]


def test_a_change_is_said_with_the_default_where_nothing_is_stored() -> None:
    after = {"restart": "always", "memory_mib": 4096, "stable_s": 60, "on_demand": True, "limit": 3}
    found = [(label, str(old), str(new)) for label, old, new in differences({}, after)]
    assert found == [
        ("Restart", "on failure", "always"),
        ("Stable after", "300 seconds", "60 seconds"),
        ("Memory limit", "no limit", "4096 MiB"),
        ("Start on demand", "no", "yes"),
    ]
    assert differences(after, after) == [] and set(WORDS) == set(FIELDS)
