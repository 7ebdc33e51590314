"""Pages of models in a real browser: choosing a file of the hub, and a download that goes on to its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from controlpanel.lib.streams import publish
from jobs.models import Download, Job, ModelArtifact
from tests.e2e.browsing import page_of
from tests.fakes.hub import Hub
from tests.functional import pages
from tests.models import tiny_models
from tests.web import web

pytestmark = pytest.mark.django_db(transaction=True)
REPO = pages.HUB_REPO
GIB = 2**30


@pytest.fixture(autouse=True)
def rows_beside_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Playwright keeps an event loop in this thread, in which Django refuses to ask the database."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Iterator[Hub]:
    """A hub with one repository, whose two hosts the panel may connect to."""
    with pages.hub(tmp_path, monkeypatch, settings) as server:
        yield server


@pytest.mark.parametrize("width", [1440, 390])
def test_a_choice_is_found_looked_into_and_downloaded(
    width: int, bob: User, redis_server: redis.Redis, hub: Hub
) -> None:
    with web() as url, page_of(bob, url, width) as page:
        page.goto(reverse("model-find"))
        page.keyboard.type("tiny")
        page.keyboard.press("Enter")
        page.get_by_role("link", name=REPO).click()
        side = page.locator("#hub-side")
        expect(side).to_contain_text("Q4_K_M")
        expect(page.get_by_role("radio", name=re.compile("Q4_K_M"))).to_be_checked()
        page.get_by_role("checkbox", name=re.compile("mmproj-F32")).check()
        expect(page.get_by_role("checkbox", name=re.compile("mmproj-F32"))).to_be_checked()

        page.get_by_role("button", name="Look into it first").click()
        expect(side).to_contain_text("2 + 1 MTP")
        expect(side).to_contain_text("mmproj-F32.gguf – fits")
        # What was read of a choice stays as long as it is the choice.
        page.get_by_label("Bandwidth limit in MB/s").fill("1.5")
        page.keyboard.press("Tab")
        expect(side).to_contain_text("2 + 1 MTP")
        page.get_by_role("radio", name=re.compile("MTP-Q8_0")).check()
        expect(side.locator(".card-top").first).to_contain_text("Q8_0")
        expect(side).not_to_contain_text("2 + 1 MTP")
        expect(page.get_by_role("checkbox", name=re.compile("mmproj-F32"))).not_to_be_checked()
        expect(page.get_by_label("Bandwidth limit in MB/s")).to_have_value("1.5")

        page.get_by_role("button", name=re.compile("^Download")).click()
        expect(page).to_have_url(re.compile(r"/models/downloads/\d+/$"))
        expect(page.get_by_role("heading", level=1)).to_have_text("Tiny-MTP Q8_0")
    row = Download.objects.get()
    assert [file["path"] for file in row.files] == [
        "Tiny-MTP-Q8_0.gguf",
        "mmproj-F16.gguf",
        "mtp-Tiny-Q8_0.gguf",
    ]
    assert row.rate == 1_500_000


def test_a_pasted_address_shows_its_header_by_itself(bob: User, redis_server: redis.Redis, hub: Hub) -> None:
    with web() as url, page_of(bob, url, 1440) as page:
        page.goto(reverse("model-find"))
        page.get_by_role("searchbox").fill(hub.file_url(REPO, "Tiny-MTP-Q8_0.gguf"))
        page.get_by_role("button", name="Find").click()
        expect(page.locator(".hub-peek")).to_contain_text("2 + 1 MTP")
        page.get_by_role("button", name="Download").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Tiny-MTP-Q8_0")


def test_open_pages_go_with_a_download_to_its_end(bob: User, redis_server: redis.Redis) -> None:
    row = pages.download(job=pages.loading(GIB, 4 * GIB, 10 * 2**20, 300.0), state="loading")
    job = Job.objects.get()
    with web() as url, page_of(bob, url, 1440) as page:
        page.goto(reverse("models"))
        open_list = page.locator("#open-downloads")
        expect(open_list).to_contain_text("1.0 GiB of 4.0 GiB")
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        Job.objects.filter(pk=job.pk).update(**pages.loading(2 * GIB, 4 * GIB, 20 * 2**20, 100.0))
        publish("job", job.pk)
        expect(open_list).to_contain_text("2.0 GiB of 4.0 GiB")
        expect(open_list.get_by_role("progressbar")).to_have_attribute("value", "50")
        open_list.get_by_role("button", name=re.compile("^Pause")).click()
        expect(open_list).to_contain_text("paused")
        open_list.get_by_role("button", name=re.compile("^Cancel")).click()
        expect(page.locator("#confirm")).to_contain_text("is deleted")
        page.keyboard.press("Escape")

        open_list.get_by_role("link", name=row.name).click()
        page.get_by_role("button", name=re.compile("^Resume")).click()
        expect(page.locator(f"#download-{row.pk} .state").first).to_have_text("queued")
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        files = [{**file, "done": True, "hashed": True} for file in row.files]
        Download.objects.filter(pk=row.pk).update(state="complete", files=files, received=4 * GIB)
        publish("download", row.pk)
        expect(page.locator(f"#download-{row.pk} .state").first).to_have_text("finished")
        expect(page.get_by_role("button", name="Take off the list")).to_be_visible()
        page.goto(reverse("models"))
        expect(page.locator("#open-downloads section")).to_have_count(0)


def test_an_open_page_goes_with_the_check_of_a_model(
    bob: User, redis_server: redis.Redis, tmp_path: Path
) -> None:
    model = pages.model_of(tiny_models(tmp_path)[0], sha256=[pages.SHA])
    with web() as url, page_of(bob, url, 390) as page:
        page.goto(reverse("model-detail", args=[model.pk]))
        expect(page.locator("#model-builds")).to_contain_text("There is no build yet")
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        page.get_by_role("button", name=re.compile("^Verify")).click()
        verify = page.get_by_role("button", name=re.compile("^Verify"))
        expect(verify).to_have_attribute("aria-disabled", "true")
        job = Job.objects.get(kind="model.verify")
        Job.objects.filter(pk=job.pk).update(state="running", progress={"done": GIB, "total": 2 * GIB})
        publish("job", job.pk)
        card = page.locator(f"#model-{model.pk}")
        expect(card).to_contain_text("1.0 GiB of 2.0 GiB verified")
        Job.objects.filter(pk=job.pk).update(state="succeeded")
        ModelArtifact.objects.filter(pk=model.pk).update(verified_at=job.created_at)
        publish("artifact", model.pk)
        expect(card).to_contain_text("verified just now")
        expect(page.locator(".shares li").first).to_be_visible()
