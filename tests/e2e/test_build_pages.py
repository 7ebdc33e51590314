"""Pages of builds in a real browser: the form while somebody types, and a build whose steps go on."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from controlpanel.lib.streams import publish
from jobs.models import Build, BuildConfig, Job, Run
from tests.e2e.browsing import page_of
from tests.functional import pages
from tests.functional.test_pages_builds import ended, working
from tests.web import web

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def rows_beside_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Playwright keeps an event loop in this thread, in which Django refuses to ask the database."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


def write_log(run: Run, text: str) -> None:
    """Give a run a log."""
    folder = Path(settings.PANEL_DATA) / "runs" / run.pk
    folder.mkdir(parents=True)
    (folder / "log").write_text(text)


def move_on(build: Build, step: str, text: str) -> None:
    """Let the build's job be at a step, whose log says the text."""
    write_log(pages.build_run(build, step), text)
    Job.objects.filter(subject_id=str(build.pk)).update(**working(step))
    publish("job", 1)


def test_the_form_answers_while_somebody_types(alice: User, redis_server: redis.Redis) -> None:
    pages.looked_at()
    pages.repository()
    with web() as url, page_of(alice, url, 1440) as page:
        page.goto(reverse("config-new"))
        commands = page.locator("#commands")
        expect(commands).to_contain_text("-DCMAKE_CUDA_ARCHITECTURES=86")
        page.get_by_role("checkbox", name=re.compile("^89")).check()
        expect(commands).to_contain_text("86;89")
        page.get_by_label("Branch, tag or commit").fill("my branch")
        expect(page.locator("#note-ref")).to_contain_text("no spaces")
        expect(page.locator("#config-save")).to_have_text("1 error to mend before saving")
        page.get_by_label("Branch, tag or commit").fill("mtp")
        expect(page.locator("#config-save")).to_be_empty()
        # Rows of definitions by keyboard: a new one has it, and one that is removed is checked no more.
        page.get_by_role("button", name="Add a row").press("Enter")
        page.keyboard.type("LLAMA_MTP")
        page.keyboard.press("Tab")
        page.keyboard.type("ON")
        expect(page.locator("#note-definitions")).to_contain_text("LLAMA_MTP")
        page.get_by_role("button", name="Remove this row").last.click()
        expect(page.locator("#note-definitions")).to_be_empty()
        page.get_by_label("Backend").select_option("cpu")
        expect(page.get_by_text("CUDA architectures")).to_be_hidden()
        expect(commands).not_to_contain_text("CUDA")
        page.get_by_label("Name", exact=True).fill("Typed")
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.get_by_text("The build config Typed is saved.")).to_be_visible()
    assert BuildConfig.objects.get(name="Typed").ref == "mtp"


@pytest.mark.parametrize("width", [1440, 390])
def test_an_open_page_goes_with_the_build_to_its_end(
    width: int, bob: User, redis_server: redis.Redis
) -> None:
    build = pages.made(pages.config(), state="building", job=working("fetch"))
    with web() as url, page_of(bob, url, width) as page:
        page.goto(reverse("build-detail", args=[build.pk]))
        expect(page.locator("#log-part")).to_contain_text("as soon as the build begins")
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        move_on(build, "fetch", "Receiving objects: 100%\n")
        expect(page.locator("pre.log")).to_contain_text("Receiving objects")
        move_on(build, "compile", "[1/2] Building CXX object\n")
        expect(page.locator("pre.log")).to_contain_text("[1/2] Building CXX object")
        expect(page.locator("#log-title")).to_contain_text("compile")
        expect(page.locator(".build-steps [aria-current=step]")).to_contain_text("compile")

        page.get_by_role("link", name="fetch").click()
        expect(page.locator("pre.log")).to_contain_text("Receiving objects")
        Job.objects.filter(subject_id=str(build.pk)).update(
            progress={"done": 1, "total": 2, "text": "x.cpp", "at": time.time()}
        )
        publish("job", 1)
        expect(page.locator(".build-now")).to_contain_text("1 / 2")
        expect(page.locator("pre.log")).to_contain_text("Receiving objects")
        expect(page.locator("#flags")).to_have_count(0)

        page.get_by_role("link", name="Follow the build").click()
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        expect(page.get_by_role("button", name=re.compile("^Delete")).last).to_have_attribute(
            "aria-disabled", "true"
        )
        Job.objects.filter(subject_id=str(build.pk)).update(**ended("compile", "succeeded"))
        Build.objects.filter(pk=build.pk).update(
            state="ready", capabilities=pages.build("other").capabilities, path="/x", size=5
        )
        publish("build", build.pk)
        expect(page.locator(f"#build-{build.pk} .state").first).to_have_text("ready")
        expect(page.locator("#flags tr").first).to_be_visible()
        page.locator(f"#build-end-{build.pk}").get_by_role("button", name="Delete").click()
        expect(page.locator("#confirm")).to_contain_text("with its files")
        page.keyboard.press("Escape")
    assert Build.objects.filter(pk=build.pk).exists()
