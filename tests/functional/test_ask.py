"""`manage.py ask`: one question to a ready server from the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command

from servers.models import ServerProfile, Turn
from tests.chat import Fake, fake_server, ready_profile
from tests.fakes.llama_flags import REPLY
from tests.models import solid_png

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    """A stand-in for llama-server."""
    with fake_server(tmp_path) as server:
        yield server


@pytest.fixture
def profile(fake: Fake) -> ServerProfile:
    """A profile whose ready server is the stand-in."""
    return ready_profile(fake.port)


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """The one JSON value on stdout."""
    value = json.loads(capsys.readouterr().out)
    assert isinstance(value, dict)
    return value


def test_the_command_prints_answer_and_timings(
    fake: Fake, profile: ServerProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("ask", "tiny", "hi", "--json", "--max-tokens", "3")
    value = said(capsys)
    assert value.keys() == {"answer", "timings"} and value["answer"] == "This reply comes"
    assert fake.bodies()[0]["max_tokens"] == 3
    assert not Turn.objects.exists()
    call_command("ask", "tiny", "hi")
    assert capsys.readouterr().out.strip() == REPLY


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["nothing", "hi"], "no_such_profile", "tiny"),
        (["tiny", " "], "empty_prompt", "Write a question"),
        (["tiny", "hi", "--image", "no-such.png"], "bad_image", "No such file"),
        (["tiny", "hi", "--image", __file__], "bad_image", "PNG, JPEG, GIF or WebP"),
        (["tiny", "hi", "--max-tokens", "0"], "bad_option", "at least 1"),
    ],
)
def test_the_command_refuses_in_words(
    profile: ServerProfile,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    error: str,
    words: str,
) -> None:
    with pytest.raises(SystemExit) as end:
        call_command("ask", *arguments, "--json")
    value = said(capsys)
    assert (end.value.code, value["error"]) == (1, error) and words in str(value["detail"])


def test_a_picture_for_a_server_without_projector_is_refused_in_words(
    profile: ServerProfile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture"
    picture.write_bytes(solid_png((255, 0, 0)))
    with pytest.raises(SystemExit):
        call_command("ask", "tiny", "Which colour?", "--image", str(picture), "--json")
    assert "no vision projector" in str(said(capsys)["detail"])
