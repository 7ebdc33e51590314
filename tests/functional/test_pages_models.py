"""Pages of model artifacts: what they show, and what their buttons do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import stored
from jobs.models import Job, ModelArtifact, ModelFolder
from jobs.services.artifacts import models_folder
from jobs.services.model_files import REMOVE, SCAN, VERIFY
from tests.functional import pages
from tests.models import plain_model, tiny_models

pytestmark = pytest.mark.django_db


def text_of(answer: Any) -> str:
    return answer.content.decode()


def detail(client: Any, model: ModelArtifact) -> str:
    return text_of(client.get(reverse("model-detail", args=[model.pk])))


def row_of(client: Any, model: ModelArtifact) -> dict[str, Any]:
    """The model's row as the list shows it."""
    rows = client.get(reverse("models")).context["table"].rows
    return next(row for row in rows if row["artifact"].pk == model.pk)


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
    assert "free of" in text
    for name in ("model-register", "model-find", "hub-tokens"):
        assert reverse(name) not in text


def test_the_list_says_what_goes_with_a_model(charlie: User, signed_in: Any) -> None:
    client = signed_in(charlie)
    mtp = pages.model("with heads")
    plain = pages.model("without", mtp_heads=0)
    other = pages.model("another width", mtp_heads=0, facts={"embedding_length": 5120})
    projector = pages.projector()
    assert row_of(client, mtp)["mtp"] == "heads"
    assert (row_of(client, plain)["mtp"], len(row_of(client, plain)["projectors"])) == ("no", 1)
    assert row_of(client, other)["projectors"] == []
    assert [piece.name for piece in row_of(client, projector)["fits"]] == ["with heads", "without"]
    pages.model("mtp-without", report={"facts": {"content": "mtp heads"}})
    assert row_of(client, plain)["mtp"] == "companion"
    assert row_of(client, other)["mtp"] == "no"
    assert "fits 2 models" in text_of(client.get(reverse("models")))


def test_the_list_says_where_a_file_came_from_and_whether_its_hash_is_right(
    charlie: User, bob: User, signed_in: Any
) -> None:
    source = {"repo": "org/model-GGUF", "revision": pages.COMMIT, "path": "a.gguf"}
    hub = pages.model("from the hub", source=source, sha256=[pages.SHA], verified_at=timezone.now())
    waiting = pages.model("not read", source=source, sha256=[pages.SHA])
    address = pages.model("elsewhere", source={"url": "https://files.example/x.gguf"})
    client = signed_in(charlie)
    assert [row_of(client, model)["hash"]["word"] for model in (hub, waiting, address)] == [
        "verified",
        "unverified",
        "unknown",
    ]
    text = text_of(client.get(reverse("models")))
    repository = reverse("hub-repository", args=["org", "model-GGUF"])
    assert "org/model-GGUF" in text
    assert "files.example" in text
    assert repository not in text
    assert repository in text_of(signed_in(bob).get(reverse("models")))


def test_an_incomplete_model_is_shown_as_such_and_why(charlie: User, signed_in: Any) -> None:
    problem = {"text": "%(missing)s parts are missing.", "params": {"missing": 2}}
    model = pages.model(complete=False, problems=[problem])
    assert "incomplete" in text_of(signed_in(charlie).get(reverse("models")))
    assert "2 parts are missing." in detail(signed_in(charlie), model)


def test_an_admin_registers_a_file_in_any_place(alice: User, signed_in: Any, tiny: Path) -> None:
    answer = signed_in(alice).post(reverse("model-register"), {"path": str(tiny), "name": ""})
    model = ModelArtifact.objects.get()
    assert answer["Location"] == reverse("model-detail", args=[model.pk])
    assert model.name == tiny.stem
    assert model.mtp_heads == 1


def test_an_operator_registers_below_the_models_folder_only(bob: User, signed_in: Any, tiny: Path) -> None:
    client = signed_in(bob)
    assert str(models_folder()) in text_of(client.get(reverse("model-register")))
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


def test_the_page_says_what_the_header_says(charlie: User, signed_in: Any, tiny: Path) -> None:
    text = detail(signed_in(charlie), pages.model_of(tiny))
    assert "1.95 M (1,950,210)" in text
    assert "2 + 1 MTP" in text
    assert "blk.2.nextn.eh_proj.weight" in text
    assert "4,096 tokens" in text
    assert "without tools" in text
    assert 'class="share-own" width="99.' in text
    assert f"{tiny.stat().st_size:,}" in text


def test_a_model_whose_header_was_not_kept_says_how_to_read_it(charlie: User, signed_in: Any) -> None:
    client = signed_in(charlie)
    assert "Reading it again shows" in detail(client, pages.model())
    old = pages.model("of another version", report={"facts": {"content": "model"}})
    assert "Reading it again shows" in detail(client, old)


def test_the_page_says_which_models_a_projector_fits_and_why_not(
    charlie: User, signed_in: Any, tmp_path: Path
) -> None:
    text, projector = tiny_models(tmp_path)
    model, mmproj = pages.model_of(text), pages.model_of(projector)
    other = pages.model_of(plain_model(tmp_path))
    other.report["facts"]["embedding_length"] = 512
    other.save()
    shown = signed_in(charlie).get(reverse("model-detail", args=[mmproj.pk])).context["partners"]
    assert [(item.pk, item.answer) for item in shown] == [(model.pk, True), (other.pk, False)]
    assert "512" in shown[1].reasons[0]
    text_page = detail(signed_in(charlie), model)
    assert reverse("model-detail", args=[mmproj.pk]) in text_page
    assert "Projectors and MTP heads of the library" in text_page


def test_the_builds_are_asked_whether_they_can_run_it(charlie: User, signed_in: Any, tiny: Path) -> None:
    client, model = signed_in(charlie), pages.model_of(tiny)
    address = reverse("model-builds", args=[model.pk])
    assert f'hx-get="{address}" hx-trigger="load"' in detail(client, model)
    assert "There is no build yet" in text_of(client.get(address))
    pages.build("somewhere")
    text = text_of(client.get(address))
    assert "somewhere" in text
    assert "not known" in text


def test_the_builds_of_a_file_that_is_gone_are_not_asked(charlie: User, signed_in: Any) -> None:
    model = pages.model()
    answer = signed_in(charlie).get(reverse("model-builds", args=[model.pk]))
    assert answer.status_code == 200
    assert model.path in text_of(answer) or "no such file" in text_of(answer).lower()


def test_reading_again_stores_what_the_file_says_now(bob: User, signed_in: Any, tiny: Path) -> None:
    model = pages.model(path=str(tiny), mtp_heads=0)
    answer = signed_in(bob).post(reverse("model-refresh", args=[model.pk]), follow=True)
    model.refresh_from_db()
    assert model.mtp_heads == 1
    assert "was read again" in text_of(answer)
    assert "Tensor types by share of bytes" in text_of(answer)


def test_reading_a_file_that_is_gone_says_so_and_changes_nothing(bob: User, signed_in: Any) -> None:
    model = pages.model()
    answer = signed_in(bob).post(reverse("model-refresh", args=[model.pk]), follow=True)
    assert model.path in text_of(answer)
    assert ModelArtifact.objects.get().mtp_heads == 1


def test_a_model_with_a_hash_is_verified_and_its_page_says_how_far(bob: User, signed_in: Any) -> None:
    model = pages.model(sha256=[pages.SHA])
    client = signed_in(bob)
    client.post(reverse("model-verify", args=[model.pk]))
    job = Job.objects.get(kind=VERIFY)
    assert "The file is being verified already." in detail(client, model)
    job.progress = {"done": 2**30, "total": 4 * 2**30, "text": "x"}
    job.state = Job.State.RUNNING
    job.save()
    assert "1.0 GiB of 4.0 GiB verified" in detail(client, model)
    assert "25&nbsp;%" in text_of(client.get(reverse("models")))
    Job.objects.filter(pk=job.pk).delete()
    error = stored(Message(N_("The file is not what it should be.")))
    subject = {"subject_kind": "model", "subject_id": str(model.pk)}
    Job.objects.create(kind=VERIFY, host=model.host, state="failed", error=error, **subject)
    assert "The file is not what it should be." in detail(client, model)
    assert "not right" in text_of(client.get(reverse("models")))


def test_a_model_without_a_hash_cannot_be_verified_and_says_why(bob: User, signed_in: Any) -> None:
    model = pages.model()
    answer = signed_in(bob).post(reverse("model-verify", args=[model.pk]), follow=True)
    assert "No SHA-256 is known for this file" in text_of(answer)
    assert not Job.objects.filter(kind=VERIFY).exists()


def test_a_model_that_a_profile_uses_stays_and_the_reason_is_shown(bob: User, signed_in: Any) -> None:
    profile = pages.profile("Daily")
    client = signed_in(bob)
    assert 'data-reason="Profiles use this model: Daily."' in text_of(client.get(reverse("models")))
    for name in ("model-delete", "model-remove"):
        answer = client.post(reverse(name, args=[profile.model.pk]), follow=True)
        assert answer.context["messages"]
    assert ModelArtifact.objects.exists()


def test_an_unused_model_is_taken_off_the_list(bob: User, signed_in: Any) -> None:
    client, model = signed_in(bob), pages.model()
    text = text_of(client.get(reverse("models")))
    assert reverse("model-delete", args=[model.pk]) in text
    assert reverse("model-remove", args=[model.pk]) not in text
    answer = client.post(reverse("model-delete", args=[model.pk]))
    assert answer["Location"] == reverse("models")
    assert not ModelArtifact.objects.exists()


def test_a_model_in_the_panels_folder_is_deleted_with_its_files_and_its_size_is_named(
    bob: User, signed_in: Any, tiny: Path
) -> None:
    client = signed_in(bob)
    inside = models_folder() / "to-delete.gguf"
    inside.write_bytes(tiny.read_bytes())
    model = pages.model_of(inside)
    asked = "Delete the model to-delete with its files (3.7 MiB)?"
    assert asked in text_of(client.get(reverse("models")))
    assert asked in detail(client, model)
    client.post(reverse("model-remove", args=[model.pk]))
    inside.unlink()
    assert Job.objects.get(kind=REMOVE).params["paths"] == [str(inside)]
    assert not ModelArtifact.objects.exists()


def test_an_admin_adds_scans_and_removes_a_folder(alice: User, signed_in: Any, tmp_path: Path) -> None:
    client = signed_in(alice)
    answer = client.post(reverse("folder-add"), {"path": str(tmp_path)}, follow=True)
    assert "its models are being read" in text_of(answer)
    folder = ModelFolder.objects.get()
    assert "being scanned" in text_of(client.get(reverse("model-folders")))
    answer = client.post(reverse("folder-scan", args=[folder.pk]), follow=True)
    assert "This folder is being scanned already." in text_of(answer)
    assert Job.objects.filter(kind=SCAN).count() == 1
    client.post(reverse("folder-delete", args=[folder.pk]))
    assert not ModelFolder.objects.exists()


def test_a_folder_that_is_none_is_refused_at_its_field(alice: User, signed_in: Any) -> None:
    answer = signed_in(alice).post(reverse("folder-add"), {"path": "/nothing/like/it"})
    assert list(answer.context["form"].errors) == ["path"]


def test_who_may_not_change_folders_sees_them_without_the_buttons(
    charlie: User, bob: User, signed_in: Any
) -> None:
    folder = pages.folder()
    shown = text_of(signed_in(charlie).get(reverse("model-folders")))
    assert folder.path in shown
    assert reverse("folder-scan", args=[folder.pk]) not in shown
    operators = text_of(signed_in(bob).get(reverse("model-folders")))
    assert reverse("folder-scan", args=[folder.pk]) in operators
    assert reverse("folder-delete", args=[folder.pk]) not in operators
    assert reverse("folder-add") not in operators
