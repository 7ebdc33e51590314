"""Revisions: every save is kept with author and reason, can be compared, vouched for and brought back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import translation

from controlpanel.lib.errors import Refused
from jobs.models import AuditEntry, Build
from jobs.services.audit import Actor
from jobs.services.builds import delete_build
from servers.models import ServerProfile
from servers.services.profiles import ProfileData, save_profile
from servers.services.revisions import changes, mark_known_good, revisions_of, roll_back
from tests.functional import pages

pytestmark = pytest.mark.django_db
CLI = Actor.cli()


def data(**given: Any) -> ProfileData:
    """A profile of the two newest rows of their kind."""
    values: dict[str, Any] = {"name": "Daily", "settings": {"ctx_size": 8192}}
    return ProfileData(**{"build": pages.build(), "model": pages.model(), **values, **given})


@pytest.fixture
def first() -> ProfileData:
    return data()


@pytest.fixture
def daily(first: ProfileData) -> ServerProfile:
    return save_profile(CLI, None, first)


def like(profile: ServerProfile, **given: Any) -> ProfileData:
    """The profile as it is, with something else."""
    fields = ("name", "build", "model", "mmproj", "port", "settings", "extra_args", "environment")
    return ProfileData(**{**{field: getattr(profile, field) for field in fields}, **given})


def test_every_save_is_a_revision_with_author_reason_and_words(daily: ServerProfile, bob: User) -> None:
    new = like(daily, settings={"ctx_size": 16384, "parallel": 2}, port=18123)
    saved = save_profile(Actor(bob, "web"), daily, new, "Longer documents")
    newest, oldest = revisions_of(saved)
    assert (newest.number, newest.author, newest.reason) == (2, bob, "Longer documents")
    assert (oldest.number, oldest.author) == (1, None)
    found = [(change.label, change.before, change.after) for change in changes(oldest, newest)]
    assert found == [("Port", "", "18123"), ("Context size", "8192", "16384"), ("Slots", "", "2")]
    entry = AuditEntry.objects.filter(action="profile.change").get()
    assert entry.after is not None and entry.after["reason"] == "Longer documents"


def test_the_words_of_a_change_are_in_the_language_of_the_reader(daily: ServerProfile) -> None:
    save_profile(CLI, daily, like(daily, name="Nightly"))
    newest, oldest = revisions_of(daily)
    with translation.override("zh-hant"):
        assert [change.label for change in changes(oldest, newest)] == ["名稱"]


def test_a_name_that_would_be_two_in_the_api_is_refused(first: ProfileData) -> None:
    with pytest.raises(Refused, match="comma") as told:
        save_profile(CLI, None, replace(first, name="one, two"))
    assert told.value.field == "name"


def test_saving_what_is_there_makes_no_revision(daily: ServerProfile) -> None:
    save_profile(CLI, daily, like(daily))
    assert revisions_of(daily).count() == 1 and daily.revision == 1


def test_who_saves_over_a_newer_revision_is_told_and_nothing_is_lost(daily: ServerProfile) -> None:
    stale = ServerProfile.objects.get(pk=daily.pk)
    save_profile(CLI, daily, like(daily, settings={"ctx_size": 4096}))
    for based_on in (None, 1):
        with pytest.raises(Refused, match="meanwhile") as told:
            save_profile(CLI, stale, like(stale, settings={"ctx_size": 512}), based_on=based_on)
        assert told.value.code == "newer_revision"
    assert ServerProfile.objects.get().settings == {"ctx_size": 4096}
    assert revisions_of(daily).count() == 2


def test_only_an_admin_changes_variables(daily: ServerProfile, alice: User, bob: User) -> None:
    wanted = like(daily, environment={"LLAMA_ATTN_ROT_DISABLE": "1"})
    with pytest.raises(Refused, match="admin") as told:
        save_profile(Actor(bob, "web"), daily, wanted)
    assert told.value.field == "environment"
    saved = save_profile(Actor(alice, "web"), daily, wanted)
    again = save_profile(Actor(bob, "web"), saved, like(saved, port=18111))
    assert again.environment == {"LLAMA_ATTN_ROT_DISABLE": "1"} and again.port == 18111


def test_rolling_back_brings_the_build_back_too(daily: ServerProfile, first: ProfileData) -> None:
    fork = pages.build("fork", pages.FORK)
    save_profile(CLI, daily, like(daily, build=fork, settings={"parallel": 1}))
    back = roll_back(CLI, revisions_of(daily).get(number=1), "It was faster.")
    assert (back.build, back.settings, back.revision) == (first.build, {"ctx_size": 8192}, 3)
    assert revisions_of(daily)[0].reason == "Back to revision 1. It was faster."


def test_a_build_of_a_known_good_revision_cannot_be_deleted(daily: ServerProfile, first: ProfileData) -> None:
    save_profile(CLI, daily, like(daily, build=pages.build("fork", pages.FORK)))
    oldest = revisions_of(daily).get(number=1)
    mark_known_good(CLI, oldest, True)
    with pytest.raises(Refused, match="known-good revisions use this build: Daily · 1"):
        delete_build(CLI, first.build)
    mark_known_good(CLI, oldest, False)
    delete_build(CLI, first.build)
    assert not Build.objects.filter(name=first.build.name).exists()
    with pytest.raises(Refused, match="mainline of this revision was deleted"):
        roll_back(CLI, oldest)
    with pytest.raises(Refused, match="was deleted"):
        mark_known_good(CLI, oldest, True)


def test_marking_twice_is_one_mark_and_one_line_of_the_audit(daily: ServerProfile) -> None:
    revision = revisions_of(daily).get()
    for _time in range(2):
        mark_known_good(CLI, revision, True)
    assert revision.known_good and revisions_of(daily).get().known_good
    assert AuditEntry.objects.filter(action="profile.known_good").count() == 1
