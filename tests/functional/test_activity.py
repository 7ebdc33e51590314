"""The strip on top of each page, what a job waits for, the activity page, and canceling by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from jobs.models import AuditEntry, Build, Host, Job
from jobs.services.hosts import local_host
from jobs.views.work import active_jobs, strip_context, waits
from servers.models import Instance
from tests.functional import pages

pytestmark = pytest.mark.django_db
State = Job.State
WAITING = "waiting for the queue"


def text_of(answer: Any) -> str:
    return answer.content.decode()


def job(
    state: str = State.QUEUED, kind: str = "build.probe", age: float = 60, told: bool = True, **fields: Any
) -> Job:
    """A job made `age` seconds ago; a queued one that was `told` has a wake-up in the queue."""
    now = timezone.now()
    made = now - timedelta(seconds=age)
    values: dict[str, Any] = {"host": local_host(), "subject_kind": "build", "subject_id": "0"}
    values |= {"enqueued_at": made if told and state == State.QUEUED else None}
    if state in Job.OWNED:
        values |= {"started_at": made, "owner_pid": 1, "owner_start": 1, "owner_boot": "x"}
    if state in Job.TERMINAL:
        values |= {"started_at": made, "ended_at": now}
    row = Job.objects.create(kind=kind, state=state, **{**values, **fields})
    Job.objects.filter(pk=row.pk).update(created_at=made)
    return row


def behind() -> dict[int, int]:
    return {pk: wait.behind for pk, wait in waits(active_jobs()).items()}


def test_a_job_that_nobody_took_for_three_seconds_waits_for_the_queue() -> None:
    old, _new = job(age=4), job(age=1)
    assert behind() == {old.pk: 0}


def test_a_job_behind_others_of_its_queue_is_queued_behind_them() -> None:
    job(State.RUNNING), job(State.CANCELING)
    first, second = job(age=5), job(age=4)
    assert behind() == {first.pk: 2, second.pk: 3}


def test_work_on_another_queue_or_host_keeps_no_worker_busy() -> None:
    job(State.RUNNING, host=Host.objects.create(slug="other", name="Other"))
    job(State.RUNNING, kind="no-such-kind")
    waiting = job(age=4)
    assert behind() == {waiting.pk: 0}


def test_a_job_that_the_broker_was_never_told_of_waits_whoever_is_busy() -> None:
    job(State.RUNNING)
    waiting = job(age=4, told=False)
    assert behind() == {waiting.pk: 0}


def test_work_whose_worker_died_keeps_nobody_busy() -> None:
    orphan = job(State.RUNNING)
    waiting = job(age=4)
    assert behind() == {waiting.pk: 1}
    Job.objects.filter(pk=orphan.pk).update(enqueued_at=timezone.now())
    assert behind() == {waiting.pk: 0}


def test_the_strip_is_empty_when_nothing_goes_on() -> None:
    job(State.SUCCEEDED, ended_at=timezone.now() - timedelta(seconds=5))
    job(State.CANCELED)
    job(State.FAILED, subject_id="7", ended_at=timezone.now() - timedelta(minutes=11))
    assert "job" not in strip_context()


def test_the_strip_shows_what_matters_most_and_counts_the_rest() -> None:
    def shown() -> tuple[str, int, int]:
        context = strip_context()
        return context["tone"], context["job"].pk, context["more"]

    done = job(State.SUCCEEDED, subject_id="1")
    assert shown() == ("done", done.pk, 0)
    fresh = job(age=1, subject_id="2")
    assert shown() == ("active", fresh.pk, 1)
    running = job(State.RUNNING, subject_id="3")
    assert shown() == ("active", running.pk, 2)
    stuck = job(age=9, subject_id="4", told=False)
    assert shown() == ("stuck", stuck.pk, 3)
    failed = job(State.ERRORED, subject_id="5", error="no space left")
    assert shown() == ("failed", failed.pk, 4)


def test_a_failure_leaves_the_strip_once_its_subject_is_worked_on_again() -> None:
    job(State.FAILED, subject_id="5")
    again = job(State.RUNNING, subject_id="5")
    assert strip_context()["job"] == again


def test_the_strip_of_a_page_says_what_is_done_to_what_and_leads_on(charlie: User, signed_in: Any) -> None:
    build = pages.build("mainline", state=Build.State.PROBING)
    row = job(State.RUNNING, subject_id=str(build.pk), step="probe")
    text = text_of(signed_in(charlie).get(reverse("models")))
    strip = text[text.index('id="jobs-strip"') : text.index("<header")]
    assert "Probe of a build" in strip
    assert f'<a href="{reverse("build-detail", args=[build.pk])}">mainline</a>' in strip
    assert f'data-since="{row.started_at.timestamp():.3f}"' in strip
    assert f'href="{reverse("activity")}"' in strip


def test_what_has_just_ended_stays_for_some_seconds(charlie: User, signed_in: Any) -> None:
    job(State.SUCCEEDED)
    assert 'data-fleeting="4"' in text_of(signed_in(charlie).get(reverse("models")))


def test_a_busy_worker_is_not_a_queue_that_is_away(bob: User, signed_in: Any) -> None:
    profile = pages.profile(observed=Instance.Observed.STARTING)
    subject = {"subject_kind": "instance", "subject_id": str(profile.instance.pk)}
    job(State.RUNNING)
    job(kind="server.launch", age=9, **subject)
    client = signed_in(bob)
    for address in (reverse("servers"), reverse("server-detail", args=[profile.pk]), reverse("overview")):
        text = text_of(client.get(address))
        assert WAITING not in text
        assert "queued behind 1 job" in text


def test_the_activity_lists_jobs_with_their_subjects_and_errors(charlie: User, signed_in: Any) -> None:
    profile = pages.profile("Daily")
    job(
        State.FAILED,
        kind="server.launch",
        subject_kind="instance",
        subject_id=str(profile.instance.pk),
        error="Port 8080 is used <b>",
        actor=charlie,
    )
    job(State.SUCCEEDED, subject_id="99", kind="gone.kind")
    client = signed_in(charlie)
    text = text_of(client.get(reverse("activity")))
    for part in ("Start of a server", ">Daily</a>", "Port 8080 is used &lt;b&gt;", "60 s", ">charlie<"):
        assert part in text
    for part in ("gone.kind", "deleted", "the panel"):
        assert part in text
    assert "/cancel/" not in text
    shown = client.get(reverse("activity"), {"state": "unsuccessful"}).context["table"].rows
    assert [row["job"].state for row in shown] == ["failed"]


def test_an_operator_cancels_an_active_job_and_it_is_written_down(bob: User, signed_in: Any) -> None:
    build = pages.build(state=Build.State.PROBING)
    row = job(subject_id=str(build.pk))
    client = signed_in(bob)
    address = reverse("job-cancel", args=[row.pk])
    assert address in text_of(client.get(reverse("activity")))
    assert client.post(address, {"next": "/activity/?state=active"})["Location"] == "/activity/?state=active"
    row.refresh_from_db()
    build.refresh_from_db()
    assert row.state == State.CANCELED
    assert (build.state, "was canceled" in build.error_text) == (Build.State.FAILED, True)
    assert AuditEntry.objects.get().action == "job.cancel"
    assert "has ended already: it is canceled" in text_of(client.post(address, follow=True))


def test_canceling_a_start_stops_the_server(bob: User, signed_in: Any) -> None:
    profile, client = pages.profile(), signed_in(bob)
    client.post(reverse("server-start", args=[profile.pk]))
    launch = Job.objects.get()
    client.post(reverse("job-cancel", args=[launch.pk]))
    profile.instance.refresh_from_db()
    assert (profile.instance.observed, profile.instance.desired) == ("stopping", "stopped")
    assert sorted(Job.objects.values_list("kind", "state")) == [
        ("server.launch", "canceled"),
        ("server.stop", "queued"),
    ]


def test_a_stop_cannot_be_taken_back_and_the_button_says_why(bob: User, signed_in: Any) -> None:
    row, client = job(kind="server.stop"), signed_in(bob)
    reason = "A stop cannot be taken back."
    assert f'aria-disabled="true" data-reason="{reason}' in text_of(client.get(reverse("activity")))
    assert reason in text_of(client.post(reverse("job-cancel", args=[row.pk]), follow=True))
    row.refresh_from_db()
    assert row.state == State.QUEUED
