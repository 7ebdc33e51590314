"""Pages of downloads: what they show while files arrive, and what their buttons do."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import stored
from jobs.live import subscriptions
from jobs.models import Download, Job
from jobs.registry import Subject
from jobs.services.downloads import CLEAR, LOAD
from jobs.views.rows import download_subjects, folder_subjects, model_subjects
from tests.functional import pages

pytestmark = pytest.mark.django_db
GIB = 2**30


def text_of(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def detail(client: Any, row: Download) -> str:
    return text_of(client.get(reverse("download-detail", args=[row.pk])))


def under_way(**fields: Any) -> Download:
    """A download of 4 GiB of which one has arrived."""
    return pages.download(job=pages.loading(GIB, 4 * GIB, 50 * 2**20, 61.4), state="loading", **fields)


def test_a_download_under_way_is_shown_above_the_models(charlie: User, bob: User, signed_in: Any) -> None:
    row = under_way()
    text = text_of(signed_in(charlie).get(reverse("models")))
    assert "Downloads under way" in text
    for words in ("1.0 GiB of 4.0 GiB", "50.0 MiB/s", "1 min 1 s left", 'max="100" value="25"'):
        assert words in text
    pause = reverse("download-pause", args=[row.pk])
    assert pause not in text
    operators = text_of(signed_in(bob).get(reverse("models")))
    assert pause in operators
    assert "What has arrived (1.0 GiB) is deleted." in operators


def test_models_without_downloads_have_nothing_above_them(charlie: User, signed_in: Any) -> None:
    pages.download(state="complete")
    assert "Downloads under way" not in text_of(signed_in(charlie).get(reverse("models")))


def test_a_download_that_stands_still_says_so(charlie: User, signed_in: Any) -> None:
    row = pages.download(job=pages.loading(GIB, 4 * GIB, 0.0), state="loading")
    assert "nothing arrives just now" in detail(signed_in(charlie), row)


def test_a_download_whose_size_is_not_known_shows_what_has_arrived(charlie: User, signed_in: Any) -> None:
    files = [
        {"path": "https://files.example/x.gguf?key=secret", "name": "x.gguf", "size": None, "sha256": None}
    ]
    row = pages.download(
        job=pages.loading(0, 0),
        state="loading",
        repo="",
        files=[{**files[0], "done": False}],
        received=5 * 2**20,
    )
    text = detail(signed_in(charlie), row)
    assert "5.0 MiB" in text
    assert "<progress" not in text
    assert "https://files.example/x.gguf" in text
    assert "secret" not in text


def test_the_page_shows_each_file_with_what_is_here_of_it(charlie: User, signed_in: Any) -> None:
    model = pages.model("arrived")
    row = under_way()
    row.files[0] |= {"done": True, "hashed": True, "artifact": model.pk}
    row.save()
    Job.objects.filter(kind=LOAD).update(progress={"done": 3 * GIB + GIB // 2, "total": 4 * GIB, "text": "m"})
    answer = signed_in(charlie).get(reverse("download-detail", args=[row.pk]))
    files = answer.context["files"]
    assert [file["have"] for file in files] == [3 * GIB, GIB // 2]
    text = text_of(answer)
    assert "c0ffee000000…" in text
    assert "as the hub says" in text
    assert "arrived" in text
    assert "512.0 MiB" in text


def test_a_failed_download_says_why_and_where_to_mend_it(bob: User, signed_in: Any) -> None:
    text = N_("The terms of %(repo)s are not accepted: open %(link)s.")
    params = {"repo": "org/model-GGUF", "link": "https://hub.example/org/model-GGUF"}
    row = pages.download(state="failed", error=stored(Message(text, params)), ended_at=timezone.now())
    page = detail(signed_in(bob), row)
    assert "The terms of org/model-GGUF are not accepted" in page
    assert '<a class="btn btn-sm" href="https://hub.example/org/model-GGUF"' in page
    for name in ("download-resume", "download-cancel"):
        assert reverse(name, args=[row.pk]) in page
    assert "Start over" in page
    assert reverse("download-forget", args=[row.pk]) not in page


def test_a_link_that_is_none_is_no_button(bob: User, signed_in: Any) -> None:
    error = stored(Message(N_("Look at %(link)s."), {"link": "javascript:alert(1)"}))
    assert 'href="javascript' not in detail(signed_in(bob), pages.download(state="failed", error=error))


def test_buttons_pause_resume_and_cancel(bob: User, signed_in: Any) -> None:
    row, client = under_way(), signed_in(bob)

    def state_after(name: str, **data: str) -> str:
        answer = client.post(reverse(name, args=[row.pk]), data)
        assert answer["Location"] == reverse("download-detail", args=[row.pk])
        row.refresh_from_db()
        return str(row.state)

    assert state_after("download-pause") == "paused"
    assert state_after("download-resume") == "queued"
    assert Job.objects.filter(kind=LOAD).latest("pk").params == {"anew": False}
    assert state_after("download-pause") == "paused"
    assert state_after("download-resume", anew="1") == "queued"
    assert Job.objects.filter(kind=LOAD).latest("pk").params == {"anew": True}
    assert state_after("download-cancel") == "canceled"
    assert Job.objects.filter(kind=CLEAR).exists()
    assert "This download is not under way." in text_of(
        client.post(reverse("download-pause", args=[row.pk]), follow=True)
    )


def test_a_button_in_the_list_comes_back_to_the_list_as_it_was(bob: User, signed_in: Any) -> None:
    row = under_way()
    here = f"{reverse('downloads')}?sort=name"
    answer = signed_in(bob).post(reverse("download-pause", args=[row.pk]), {"next": here})
    assert answer["Location"] == here


def test_only_what_is_over_is_taken_off_the_list(bob: User, signed_in: Any) -> None:
    client, row = signed_in(bob), under_way()
    answer = client.post(reverse("download-forget", args=[row.pk]), follow=True)
    assert "Cancel the download first." in text_of(answer)
    row.state = Download.State.COMPLETE
    row.save()
    answer = client.post(reverse("download-forget", args=[row.pk]), follow=True)
    assert "is off the list" in text_of(answer)
    assert not Download.objects.exists()


def test_the_list_shows_the_history_and_filters_it(charlie: User, signed_in: Any) -> None:
    client = signed_in(charlie)
    assert "Nothing was downloaded yet" in text_of(client.get(reverse("downloads")))
    under_way(name="going")
    pages.download("done", state="complete", received=4 * GIB)
    pages.download("broken", state="failed", error="It broke.")

    def names(**query: str) -> list[str]:
        rows = client.get(reverse("downloads"), query).context["table"].rows
        return [row["download"].name for row in rows]

    assert names() == ["broken", "done", "going"]
    assert names(state="open") == ["broken", "going"]
    assert names(q="don") == ["done"]
    assert names(sort="state") == ["broken", "going", "done"]
    assert "It broke." in text_of(client.get(reverse("downloads")))


def test_what_pages_follow_is_rendered_for_the_reader(bob: User, charlie: User) -> None:
    row, model = under_way(), pages.model()
    wanted = f"open-downloads,downloads,download:{row.pk},models,model:{model.pk},model-folders"
    for subscription in subscriptions(wanted):
        topic, arg = subscription.topic, subscription.arg
        assert topic.allowed(charlie, arg)
        for_viewer, for_operator = topic.render("viewer", arg), topic.render("operator", arg)
        assert 'hx-swap-oob="true"' in for_viewer
        assert "/pause/" not in for_viewer
        if "download" in topic.name:
            assert "/pause/" in for_operator
    gone = subscriptions("download:99,model:99")
    assert [item.topic.render("operator", item.arg) for item in gone] == ["", ""]


def test_jobs_of_downloads_models_and_folders_lead_to_their_pages() -> None:
    row, model, folder = pages.download(), pages.model(), pages.folder()
    keys = {str(row.pk), "99", "no number"}
    assert download_subjects(keys) == {
        str(row.pk): Subject(row.name, reverse("download-detail", args=[row.pk]))
    }
    assert model_subjects({str(model.pk)})[str(model.pk)].href == reverse("model-detail", args=[model.pk])
    assert folder_subjects({str(folder.pk)})[str(folder.pk)].label == folder.path
