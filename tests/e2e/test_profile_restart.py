"""From a running server to one with another context in a real browser, with the keyboard alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import redis
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from jobs.domain.gpu import GpuSample
from jobs.models import AuditEntry, Job
from servers.models import Conversation, Turn
from servers.services import instances
from servers.services.revisions import revisions_of
from tests.cards import publish_cards
from tests.e2e.browsing import page_of
from tests.e2e.test_profile_form import rows_beside_a_browser, start, tab_to  # noqa: F401
from tests.functional import pages
from tests.models import tiny_models
from tests.web import web

SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
pytestmark = pytest.mark.django_db(transaction=True)
CARD = GpuSample(0, name="RTX 3090", memory_total_mib=1750, memory_used_mib=1000)


@pytest.mark.parametrize("width", [1440, 390])
def test_a_context_is_changed_fitted_and_the_server_restarted(
    width: int, tmp_path: Path, alice: User, bob: User, redis_server: redis.Redis
) -> None:
    publish_cards(replace(CARD, memory_total_mib=24_576))
    model = pages.model_of(tiny_models(tmp_path)[0])
    settings = {"ctx_size": 4096, "parallel": 1, "gpu_layers": "all"}
    daily = pages.profile("Daily", "ready", {"revision": 1}, model=model, settings=settings)
    talk = Conversation.objects.create(user=alice, profile=daily, title="Trip to Jena")
    Turn.objects.create(conversation=talk, position=1, prompt="Hi", state=Turn.State.STREAMING)
    with web() as url, page_of(bob, url, width) as page:
        start(page, reverse("profile-edit", args=[daily.pk]))
        tab_to(page, "#id_ctx_size")
        page.keyboard.press("ControlOrMeta+A")
        page.keyboard.type("131072")
        expect(page.locator("#preview-command")).to_contain_text("--ctx-size 131072")
        expect(page.locator("#fit-title + span")).to_have_text("fits")
        assert page.evaluate(SIDEWAYS) == 0

        tab_to(page, "#reason")
        page.keyboard.type("Whole books")
        tab_to(page, "#review", "Shift+Tab")
        page.keyboard.press("Enter")
        dialog = page.locator("#review-dialog")
        expect(dialog).to_be_visible()
        expect(dialog).to_contain_text("4096 → 131072")
        expect(dialog.get_by_text("alice")).to_be_visible()
        expect(dialog.get_by_text("--ctx-size 131072")).to_be_visible()
        tab_to(page, "#save-restart")
        page.keyboard.press("Enter")
        expect(page.get_by_text("The profile Daily is saved.")).to_be_visible()
        expect(page.get_by_text("new ones are refused.")).to_be_visible()
    daily.refresh_from_db()
    assert daily.settings == {**settings, "ctx_size": 131_072}
    assert Job.objects.get(kind=instances.STOP).params == {"then_start": True, "wait": 600.0}
    entry = AuditEntry.objects.get(action="server.restart")
    assert entry.after == {"wait": 600.0, "reason": "Whole books"}
    assert revisions_of(daily)[0].author == bob


@pytest.mark.parametrize("width", [1440, 390])
def test_a_profile_that_is_too_much_is_made_to_fit_with_one_key(
    width: int, tmp_path: Path, bob: User, redis_server: redis.Redis
) -> None:
    publish_cards(CARD)
    model = pages.model_of(tiny_models(tmp_path)[0])
    settings = {"ctx_size": 262_144, "parallel": 1, "gpu_layers": "all"}
    daily = pages.profile("Daily", model=model, settings=settings)
    with web() as url, page_of(bob, url, width) as page:
        start(page, reverse("profile-edit", args=[daily.pk]))
        expect(page.locator("#more-title")).to_have_text("What would make it fit")
        first = page.locator("#suggestion-1")
        name = first.get_attribute("aria-label")
        assert name is not None and name.startswith("Apply: ")
        first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#fit-title + span")).to_have_text("fits")
        expect(page.locator("#more-title")).to_have_text("What else is possible")
        tab_to(page, "#suggest")
        page.keyboard.press("Enter")
        expect(page.locator(".suggestions li").first).to_be_visible()
