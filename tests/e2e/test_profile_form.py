"""The profile form in a real browser with the keyboard alone: fields, groups, another build, variables."""

from __future__ import annotations

import re

import pytest
import redis
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, expect

from jobs.domain.gpu import GpuSample
from jobs.models import Build
from jobs.services import gpus
from servers.models import ServerProfile
from tests.cards import publish_cards
from tests.e2e.browsing import page_of
from tests.functional import pages
from tests.waiting import wait_for
from tests.web import web

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 90  # presses of the Tab key
SEEN = """() => {
  const box = document.activeElement.getBoundingClientRect()
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)
  return top !== null && document.activeElement.parentElement.contains(top)
}"""


@pytest.fixture(autouse=True)
def rows_beside_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Playwright keeps an event loop in this thread, in which Django refuses to ask the database."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


def tab_to(page: Page, selector: str, key: str = "Tab") -> None:
    """Press the Tab key until an element has the keyboard, and see that it can be seen."""
    for _ in range(MANY):
        page.keyboard.press(key)
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            break
    else:
        raise AssertionError(f"the Tab key does not lead to {selector}")
    # The page scrolls smoothly; what stays in sight must not cover it.
    wait_for(lambda: page.evaluate(SEEN), 10, f"{selector} to be in sight")


def start(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("#content").focus()


@pytest.mark.parametrize("width", [1440, 390])
def test_a_profile_is_made_with_the_keyboard_alone(width: int, bob: User, redis_server: redis.Redis) -> None:
    fork = pages.build("fork", pages.FORK)
    mainline = pages.build("mainline")
    pages.model()
    with web() as url, page_of(bob, url, width) as page:
        start(page, reverse("profile-new"))
        command = page.locator("#preview-command")
        tab_to(page, "#id_name")
        page.keyboard.type("Typed")

        tab_to(page, "#id_ctx_size")
        page.keyboard.type("32768")
        note = page.locator("#note-ctx_size")
        expect(note.locator(".is-passed")).to_have_text("passed")
        expect(note).to_contain_text("--ctx-size 32768")
        expect(command).to_contain_text("--ctx-size 32768")
        expect(page.locator("#profile-save")).to_have_text("1 setting is passed")
        expect(page.locator("#id_ctx_size")).to_be_focused()

        tab_to(page, "#snap-204800")
        page.keyboard.press("Enter")
        expect(page.locator("#id_ctx_size")).to_have_value("204800")
        expect(command).to_contain_text("--ctx-size 204800")
        expect(page.locator("#snap-204800")).to_have_attribute("aria-pressed", "true")

        tab_to(page, "#reset-ctx_size")
        expect(page.locator("#reset-ctx_size")).to_have_accessible_name("Reset Context size")
        page.keyboard.press("Enter")
        expect(page.locator("#id_ctx_size")).to_have_value("")
        expect(page.locator("#id_ctx_size")).to_be_focused()
        expect(note).to_contain_text("inherited")
        expect(command).not_to_contain_text("--ctx-size")

        tab_to(page, "#id_cache_type_k")
        page.keyboard.type("q8_0")
        expect(command).to_contain_text("--cache-type-k q8_0")

        tab_to(page, "#card-sampling > summary")
        expect(page.locator("#id_temperature")).to_be_hidden()
        page.keyboard.press("Enter")
        tab_to(page, "#id_temperature")
        page.keyboard.type("0.7")
        expect(command).to_contain_text("--temp 0.7")
        expect(page.locator("#count-sampling")).to_have_text("1 set")
        tab_to(page, "#id_min_p")
        page.keyboard.type("7")
        expect(page.locator("#count-sampling")).to_contain_text("1 error")
        expect(page.locator("#profile-save")).to_contain_text("1 error to mend before saving")
        page.keyboard.press("Backspace")
        expect(page.locator("#profile-save")).to_have_text("2 settings are passed")

        tab_to(page, "#save")
        page.keyboard.press("Enter")
        expect(page.get_by_text("The profile Typed is saved.")).to_be_visible()
    profile = ServerProfile.objects.get()
    assert profile.settings == {"cache_type_k": "q8_0", "temperature": "0.7"}
    assert profile.build in (fork, mainline)


@pytest.mark.parametrize("width", [1440, 390])
def test_another_build_is_chosen_with_the_keyboard_and_what_it_lacks_removed(
    width: int, bob: User, redis_server: redis.Redis
) -> None:
    fork, mainline = pages.build("a fork", pages.FORK), pages.build("mainline")
    settings = {"load_mode": "dio", "speculation": "mtp", "parallel": 1, "temperature": "0.7"}
    profile = pages.profile("Daily", build=mainline, settings=settings)
    with web() as url, page_of(bob, url, width) as page:
        start(page, reverse("profile-edit", args=[profile.pk]))
        change = page.locator("#profile-change")
        expect(change).to_be_empty()
        # What was folded or unfolded by hand stays so when the fields are drawn anew.
        tab_to(page, "#card-gpus > summary")
        page.keyboard.press("Enter")
        tab_to(page, "#card-rope > summary")
        page.keyboard.press("Enter")
        tab_to(page, "#id_build", "Shift+Tab")
        page.keyboard.type("a fork")
        expect(change).to_contain_text("What this build cannot do")
        expect(change).to_contain_text("Load mode dio")
        expect(change).to_contain_text("--spec-type draft-mtp → --spec-type mtp")
        expect(page.locator("#id_load_mode")).to_have_value("dio")
        expect(page.locator("#note-load_mode")).to_contain_text("does not know dio")
        expect(page.locator("#id_rope_scale")).to_be_visible()
        expect(page.locator("#id_split_mode")).to_be_hidden()
        expect(page.locator("#id_build")).to_be_focused()
        tab_to(page, "#remove-lost")
        page.keyboard.press("Enter")
        expect(page.locator("#id_load_mode")).to_have_value("")
        expect(page.locator("#id_build")).to_be_focused()
        expect(change).to_contain_text("The new build can do everything that is set here.")
        expect(page.locator("#preview-command")).to_contain_text("--spec-type mtp")
        tab_to(page, "#save")
        page.keyboard.press("Enter")
        expect(page.get_by_text("The profile Daily is saved.")).to_be_visible()
    profile.refresh_from_db()
    del settings["load_mode"]
    assert (profile.build, profile.settings) == (fork, settings)


def test_all_settings_are_reset_after_a_question(bob: User, redis_server: redis.Redis) -> None:
    profile = pages.profile("Daily", settings={"ctx_size": 4096, "temperature": "0.7"}, port=8090)
    with web() as url, page_of(bob, url, 1440) as page:
        start(page, reverse("profile-edit", args=[profile.pk]))
        tab_to(page, "#reset-all")
        page.keyboard.press("Enter")
        expect(page.locator("#confirm-question")).to_contain_text("Nothing is saved by it")
        page.keyboard.press("Escape")
        expect(page.locator("#id_ctx_size")).to_have_value("4096")
        expect(page.locator("#reset-all")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#confirm")).to_be_visible()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#profile-save")).to_have_text("0 settings are passed")
        expect(page.locator("#id_temperature")).to_have_value("")
        expect(page.locator("#id_port")).to_have_value("8090")


def test_an_admin_adds_a_variable_and_a_finding_leads_to_it(
    alice: User, redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.build()
    pages.model()
    monkeypatch.setattr(gpus, "_next_try", 0.0)
    cards = tuple(GpuSample(n, uuid=f"GPU-8932f93{n}", name="RTX 3090") for n in (0, 1))
    publish_cards(*cards)
    with web() as url, page_of(alice, url, 1440) as page:
        start(page, reverse("profile-new"))
        tab_to(page, ".group-nav a[href='#group-environment']")
        page.keyboard.press("Enter")
        expect(page.locator("#id_environment")).to_be_visible()
        tab_to(page, "#known-variables > summary")
        page.keyboard.press("Enter")
        tab_to(page, "[data-adds=OMP_NUM_THREADS]")
        page.keyboard.press("Enter")
        expect(page.locator("#id_environment")).to_be_focused()
        page.keyboard.type("many")
        expect(page.locator("#note-environment")).to_contain_text("give a number of threads")
        expect(page.locator("#preview-command")).to_contain_text("OMP_NUM_THREADS=many")
        tab_to(page, "#card-environment > summary", "Shift+Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#id_environment")).to_be_hidden()
        tab_to(page, ".findings a[href='#id_environment']")
        page.keyboard.press("Enter")
        expect(page.locator("#id_environment")).to_be_focused()
        page.keyboard.press("Control+End")
        for _ in "many":
            page.keyboard.press("Backspace")
        page.keyboard.type("4")
        expect(page.locator("#note-environment")).to_be_empty()
        expect(page.locator("#count-environment")).to_have_text("1 set")
        for number in (1, 0, 1):
            page.locator(f"[data-value=GPU-8932f93{number}]").press("Enter")
        expect(page.locator("#id_environment")).to_have_value(
            "OMP_NUM_THREADS=4\nCUDA_VISIBLE_DEVICES=GPU-8932f930,GPU-8932f931"
        )
        expect(page.locator("#preview-command")).to_contain_text("GPU-8932f930,GPU-8932f931")


def test_a_template_keeps_the_build_that_was_just_chosen(bob: User, redis_server: redis.Redis) -> None:
    pages.build("a fork", pages.FORK)
    mainline = pages.build("mainline")
    Build.objects.filter(pk=mainline.pk).update(created_at="2020-01-01T00:00Z")
    pages.model()
    with web() as url, page_of(bob, url, 1440) as page:
        start(page, reverse("profile-new"))
        expect(page.locator("#id_build option:checked")).to_have_text("a fork")
        page.get_by_label("Name", exact=True).fill("Mine")
        page.get_by_label("Build").select_option("mainline")
        expect(page.locator("#profile-change")).to_contain_text("a fork → mainline")
        page.locator("#templates > summary").press("Enter")
        page.get_by_role("link", name=re.compile("^Two 24 GB cards")).press("Enter")
        expect(page.get_by_text("Nothing is saved yet")).to_be_visible()
        expect(page.locator("#id_build option:checked")).to_have_text("mainline")
        expect(page.get_by_label("Name", exact=True)).to_have_value("Mine")
        expect(page.locator("#id_cache_type_v")).to_have_value("q8_0")
