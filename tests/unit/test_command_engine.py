"""Every rendered command passes the argument parser of the real engine.

llama-server reads all arguments, then answers a `--help` among them with 0; a wrong argument ends with 1.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.command import Managed, render
from controlpanel.llamacpp.environment import check_environment
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.problems import errors
from jobs.adapters.probe import probe_binary
from tests.engines import bundled_only, engine_path
from tests.unit.drawn_profiles import environments, extremes, settings_of

MANAGED = Managed("/m/M.gguf", "/m/P.gguf", "NAME", 18080, config_home="/nowhere")


@pytest.fixture(scope="module")
def caps() -> Iterator[Capabilities]:
    """What the engine says of itself."""
    yield probe_binary(engine_path())


def parsed(arguments: list[str], environment: Mapping[str, str], folder: Path) -> str:
    """What the engine says against arguments; empty when it takes them."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **environment}
    ended = subprocess.run(
        [str(engine_path()), *arguments, "--help"], capture_output=True, text=True, env=env, timeout=30
    )
    if ended.returncode == 0:
        assert "--ctx-size" in ended.stdout
        return ""
    assert ended.returncode == 1, ended
    return ended.stderr or "refused"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--temp", "warm"),
        ("--no-such-flag",),
        ("--split-mode", "rows"),
        ("--parallel", "0"),
        ("-fa", "maybe"),
    ],
)
def test_the_engine_refuses_a_wrong_argument_before_it_answers(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    assert parsed(["--jinja", *arguments], {}, tmp_path)


def test_a_profile_that_says_nothing_is_taken(caps: Capabilities, tmp_path: Path) -> None:
    rendered = render(caps, {}, [], MANAGED)
    assert parsed(rendered.argv, rendered.env, tmp_path) == ""


@pytest.mark.parametrize("key", MEANINGS)
def test_every_field_is_taken_with_what_it_offers_and_at_its_bounds(
    key: str, caps: Capabilities, tmp_path: Path
) -> None:
    for value in extremes(key, caps):
        if MEANINGS[key].problem(caps, value) is None:
            rendered = render(caps, {key: value}, [], MANAGED)
            assert parsed(rendered.argv, rendered.env, tmp_path) == "", value


@bundled_only
def test_the_engine_has_every_field(caps: Capabilities) -> None:
    assert [key for key, meaning in MEANINGS.items() if caps.find(*meaning.names) is None] == []


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_profile_without_an_error_of_a_field_or_a_variable_is_taken(
    caps: Capabilities, data: st.DataObject, tmp_path: Path
) -> None:
    values = data.draw(settings_of(caps))
    variables = {
        name: value
        for name, value in data.draw(environments()).items()
        if not errors(check_environment({name: value}, caps))
    }
    rendered = render(caps, values, ["--jinja"], MANAGED, environment=variables)
    assert [line.source for line in rendered.lines].count("passed") == len(values)
    assert parsed(rendered.argv, rendered.env, tmp_path) == ""
