"""Pages of model artifacts: what they show, and what their buttons do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from jobs.models import ModelArtifact
from jobs.services.artifacts import models_folder
from tests.functional import pages
from tests.models import tiny_models

pytestmark = pytest.mark.django_db


def text_of(answer: Any) -> str:
    return answer.content.decode()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tiny_models(tmp_path)[0]


def test_the_list_shows_sizes_contexts_and_heads(charlie: User, signed_in: Any) -> None:
    pages.model("Qwen-MTP")
    pages.projector()
    text = text_of(signed_in(charlie).get(reverse("models")))
    assert "20.0 GiB" in text
    assert "262,144" in text
    assert "qwen3vl_merger" in text
    assert reverse("model-register") not in text


def test_an_incomplete_model_is_shown_as_such_and_why(charlie: User, signed_in: Any) -> None:
    problem = {"text": "%(missing)s parts are missing.", "params": {"missing": 2}}
    model = pages.model(complete=False, problems=[problem])
    assert "incomplete" in text_of(signed_in(charlie).get(reverse("models")))
    assert "2 parts are missing." in text_of(signed_in(charlie).get(reverse("model-detail", args=[model.pk])))


def test_an_admin_registers_a_file_in_any_place(alice: User, signed_in: Any, tiny: Path) -> None:
    answer = signed_in(alice).post(reverse("model-register"), {"path": str(tiny), "name": ""})
    model = ModelArtifact.objects.get()
    assert answer["Location"] == reverse("model-detail", args=[model.pk])
    assert model.name == tiny.stem
    assert model.mtp_heads == 1


def test_an_operator_registers_below_the_models_folder_only(bob: User, signed_in: Any, tiny: Path) -> None:
    client = signed_in(bob)
    answer = client.post(reverse("model-register"), {"path": str(tiny), "name": ""})
    assert list(answer.context["form"].errors) == ["path"]
    inside = models_folder() / "for-bob.gguf"
    inside.write_bytes(tiny.read_bytes())
    try:
        assert (
            client.post(reverse("model-register"), {"path": str(inside), "name": "Mine"}).status_code == 302
        )
    finally:
        inside.unlink()
    assert ModelArtifact.objects.get().name == "Mine"


def test_a_file_that_is_no_gguf_is_refused_in_words(alice: User, signed_in: Any, tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("no model")
    answer = signed_in(alice).post(reverse("model-register"), {"path": str(path), "name": ""})
    assert answer.status_code == 200
    assert "GGUF" in str(answer.context["form"].errors["path"])


def test_the_page_shows_the_header(charlie: User, signed_in: Any) -> None:
    text = text_of(signed_in(charlie).get(reverse("model-detail", args=[pages.model().pk])))
    assert "35,100,000,000" in text
    assert "21,474,836,480" in text


def test_reading_again_stores_what_the_file_says_now(bob: User, signed_in: Any, tiny: Path) -> None:
    model = pages.model(path=str(tiny), mtp_heads=0)
    answer = signed_in(bob).post(reverse("model-refresh", args=[model.pk]), follow=True)
    model.refresh_from_db()
    assert model.mtp_heads == 1
    assert "was read again" in text_of(answer)


def test_reading_a_file_that_is_gone_says_so_and_changes_nothing(bob: User, signed_in: Any) -> None:
    model = pages.model()
    answer = signed_in(bob).post(reverse("model-refresh", args=[model.pk]), follow=True)
    assert model.path in text_of(answer)
    assert ModelArtifact.objects.get().mtp_heads == 1


def test_a_model_that_a_profile_uses_stays_and_the_reason_is_shown(bob: User, signed_in: Any) -> None:
    profile = pages.profile("Daily")
    answer = signed_in(bob).post(reverse("model-delete", args=[profile.model.pk]), follow=True)
    assert "Profiles use this model: Daily" in text_of(answer)
    assert ModelArtifact.objects.exists()


def test_an_unused_model_is_deleted(bob: User, signed_in: Any) -> None:
    answer = signed_in(bob).post(reverse("model-delete", args=[pages.model().pk]))
    assert answer["Location"] == reverse("models")
    assert not ModelArtifact.objects.exists()
