"""Pages around a save: what it changes, the revisions, marks, the way back, and waiting for requests."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from jobs.models import AuditEntry, Job
from jobs.services.audit import Actor
from servers.models import Conversation, Instance, ServerProfile, Turn
from servers.services import instances
from servers.services.profiles import ProfileData, save_profile
from servers.services.revisions import revisions_of
from tests.functional import pages

pytestmark = pytest.mark.django_db
Observed = Instance.Observed


@pytest.fixture
def daily(bob: User) -> ServerProfile:
    """A profile of bob with two revisions."""
    first = ProfileData("Daily", pages.build(), pages.model(), settings={"ctx_size": 8192})
    row = save_profile(Actor(bob, "web"), None, first, "First try")
    more = ProfileData("Daily", first.build, first.model, settings={"ctx_size": 16384})
    return save_profile(Actor(bob, "web"), row, more, "Longer documents")


def runs(row: ServerProfile, revision: int = 1) -> None:
    """The profile's server runs with a revision."""
    Instance.objects.filter(profile=row).update(observed=Observed.READY, revision=revision)


def form(row: ServerProfile, **values: Any) -> dict[str, Any]:
    given = pages.form(row.build, row.model, name=row.name, ctx_size="16384", based_on=row.revision)
    return {**given, **values}


def text_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", answer.content.decode())


def test_the_page_tells_each_revision_with_author_reason_and_change(
    daily: ServerProfile, charlie: User, signed_in: Any
) -> None:
    text = text_of(signed_in(charlie).get(reverse("profile-revisions", args=[daily.pk])))
    assert text.index("Longer documents") < text.index("First try")
    assert "<dt>Context size</dt><dd><del>8192</del> → <ins>16384</ins></dd>" in text
    assert "The first revision." in text and "bob" in text
    assert "Roll back" not in text and "Mark known good" not in text


def test_two_revisions_are_compared(daily: ServerProfile, charlie: User, signed_in: Any) -> None:
    address = reverse("profile-revisions", args=[daily.pk])
    text = text_of(signed_in(charlie).get(address, {"a": "2", "b": "1"}))
    assert "From revision 2 to 1" in text
    assert "<del>16384</del> → <ins>8192</ins>" in text
    for odd in ({"a": "2"}, {"a": "x", "b": "1"}, {"a": "9" * 40, "b": "1"}, {"a": "7", "b": "8"}):
        assert "From revision" not in text_of(signed_in(charlie).get(address, odd))


def test_a_mark_is_set_and_taken_back(daily: ServerProfile, bob: User, signed_in: Any) -> None:
    client, address = signed_in(bob), reverse("revision-mark", args=[daily.pk, 1])
    text = text_of(client.post(address, {"good": "1"}, follow=True))
    assert "known good" in text and revisions_of(daily).get(number=1).known_good
    client.post(address, {"good": "0"})
    assert not revisions_of(daily).get(number=1).known_good


def test_rolling_back_saves_the_old_values_and_can_restart(
    daily: ServerProfile, bob: User, signed_in: Any
) -> None:
    runs(daily, 2)
    address, client = reverse("revision-roll-back", args=[daily.pk, 1]), signed_in(bob)
    question = text_of(client.get(address))
    assert "<del>16384</del> → <ins>8192</ins>" in question and "Roll back and restart" in question
    given = {"restart": "1", "wait": "600", "reason": "It was faster"}
    text = text_of(client.post(address, given, follow=True))
    assert "as in revision 1 again, as revision 3" in text
    daily.refresh_from_db()
    assert daily.settings == {"ctx_size": 8192}
    assert Job.objects.get(kind=instances.STOP).params == {"then_start": True, "wait": 600.0}
    assert revisions_of(daily)[0].reason == "Back to revision 1. It was faster"


def test_a_way_back_that_is_closed_says_why(daily: ServerProfile, bob: User, signed_in: Any) -> None:
    oldest = revisions_of(daily).get(number=1)
    oldest.values = {**oldest.values, "build": 999_999}
    oldest.save()
    text = text_of(signed_in(bob).get(reverse("revision-roll-back", args=[daily.pk, 1])))
    assert "of this revision was deleted" in text and 'id="roll-back"' not in text


@pytest.mark.parametrize(("wait", "seconds"), [("600", 600.0), ("", 0.0), ("x", 0.0), ("9" * 17, 3600.0)])
def test_a_restart_of_the_servers_page_waits_as_asked(
    wait: str, seconds: float, daily: ServerProfile, bob: User, signed_in: Any
) -> None:
    runs(daily, 2)
    signed_in(bob).post(reverse("server-restart", args=[daily.pk]), {"wait": wait})
    assert Job.objects.get(kind=instances.STOP).params == {"then_start": True, "wait": seconds}


def test_saving_what_is_there_says_that_nothing_was_changed(
    daily: ServerProfile, bob: User, signed_in: Any
) -> None:
    answer = signed_in(bob).post(reverse("profile-edit", args=[daily.pk]), form(daily), follow=True)
    assert "Nothing was changed." in text_of(answer) and revisions_of(daily).count() == 2


def test_errors_of_a_save_stand_on_top_with_links_to_their_fields(
    daily: ServerProfile, bob: User, signed_in: Any
) -> None:
    answer = signed_in(bob).post(reverse("profile-edit", args=[daily.pk]), form(daily, ctx_size="5"))
    text = text_of(answer)
    assert text.index("Nothing was saved:") < text.index('<a href="#id_ctx_size">') < text.index("<legend")


def test_the_running_revision_and_what_changed_since_are_one_click_away(
    daily: ServerProfile, bob: User, signed_in: Any
) -> None:
    runs(daily)
    text = text_of(signed_in(bob).get(reverse("server-detail", args=[daily.pk])))
    assert "runs with revision 1 of its profile, which is at revision 2" in text
    assert f"{reverse('profile-revisions', args=[daily.pk])}?a=1&amp;b=2" in text


def test_the_review_shows_words_arguments_and_who_waits_for_an_answer(
    daily: ServerProfile, alice: User, bob: User, signed_in: Any
) -> None:
    runs(daily, 2)
    talk = Conversation.objects.create(user=alice, profile=daily, title="Trip to Jena")
    Turn.objects.create(conversation=talk, position=1, prompt="Hi", state=Turn.State.STREAMING)
    answer = signed_in(bob).post(
        reverse("profile-review", args=[daily.pk]), form(daily, ctx_size="32768", parallel="2")
    )
    text = text_of(answer)
    assert "<del>16384</del> → <ins>32768</ins>" in text
    assert "<ins><code>--parallel 2</code></ins>" in text
    assert "<li>alice</li>" in text and "Trip to Jena" not in text
    assert "does not say whether requests are in flight" in text  # nothing listens there
    assert 'name="then" value="restart"' in text and "at most 10 minutes" in text


def test_the_review_of_a_form_with_errors_offers_no_save(
    daily: ServerProfile, bob: User, signed_in: Any
) -> None:
    answer = signed_in(bob).post(reverse("profile-review", args=[daily.pk]), form(daily, ctx_size="5"))
    text = text_of(answer)
    assert "mend them first" in text and "save-reviewed" not in text and "save-restart" not in text


def test_save_and_restart_does_both_with_the_reason_in_the_audit(
    daily: ServerProfile, bob: User, signed_in: Any
) -> None:
    runs(daily, 2)
    more = {"then": "restart", "wait": "600", "reason": "Whole books"}
    signed_in(bob).post(reverse("profile-edit", args=[daily.pk]), form(daily, ctx_size="65536", **more))
    daily.refresh_from_db()
    assert daily.settings == {"ctx_size": 65536} and daily.revision == 3
    assert Job.objects.get(kind=instances.STOP).params == {"then_start": True, "wait": 600.0}
    entry = AuditEntry.objects.get(action="server.restart")
    assert entry.after == {"wait": 600.0, "reason": "Whole books"}
    assert revisions_of(daily)[0].reason == "Whole books"


def test_a_form_made_from_an_older_revision_is_kept_and_not_saved(
    daily: ServerProfile, bob: User, signed_in: Any
) -> None:
    client, address = signed_in(bob), reverse("profile-edit", args=[daily.pk])
    answer = client.post(address, form(daily, ctx_size="4096", based_on="1", reason="Mine"))
    text = text_of(answer)
    assert answer.status_code == 200 and "another revision of this profile meanwhile" in text
    assert 'value="4096"' in text and 'value="Mine"' in text and 'name="based_on" value="2"' in text
    assert f"{reverse('profile-revisions', args=[daily.pk])}?a=1&amp;b=2" in text
    daily.refresh_from_db()
    assert daily.settings == {"ctx_size": 16384}
    # Who has seen it saves knowingly.
    client.post(address, form(daily, ctx_size="4096", based_on="2"))
    daily.refresh_from_db()
    assert daily.settings == {"ctx_size": 4096} and daily.revision == 3


def test_a_server_that_waits_for_requests_says_so_and_can_be_hurried(
    daily: ServerProfile, bob: User, signed_in: Any
) -> None:
    runs(daily, 2)
    job = instances.request_restart(Actor.cli(), daily, wait=600)
    Job.objects.filter(pk=job.pk).update(progress={"done": 0, "total": 0, "text": "", "busy": 2})
    client = signed_in(bob)
    text = text_of(client.get(reverse("server-detail", args=[daily.pk])))
    assert "Waiting for 2 requests in flight; new ones are refused." in text
    text = text_of(client.post(reverse("server-cut", args=[daily.pk]), follow=True))
    assert "Waiting for" not in text
    assert "does not wait for requests any more" in text_of(
        client.post(reverse("server-cut", args=[daily.pk]), follow=True)
    )
