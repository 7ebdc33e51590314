"""Pages of servers: states, steps, facts, buttons with reasons, and jobs that wait for the queue."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from jobs.models import Build, Job, Run
from servers.models import Instance
from servers.views.buttons import buttons_of
from servers.views.rail import steps_of
from tests.functional import pages

pytestmark = pytest.mark.django_db
Observed = Instance.Observed


def text_of(answer: Any) -> str:
    return answer.content.decode()


def steps(*pairs: tuple[str, float], begin: float | None = None) -> list[dict[str, Any]]:
    begin = time.time() - 60 if begin is None else begin
    return [{"key": key, "at": begin + after} for key, after in pairs]


def test_an_empty_list_says_the_next_step(bob: User, signed_in: Any) -> None:
    assert reverse("profile-new") in text_of(signed_in(bob).get(reverse("servers")))


def test_the_list_shows_facts_as_read_from_the_server(charlie: User, signed_in: Any) -> None:
    facts = {"mtp": True, "vision": True, "n_ctx": 262144, "slots": 1}
    pages.profile(
        observed=Observed.READY, settings={"speculation": "mtp"}, instance={"facts": facts, "port": 18080}
    )
    text = text_of(signed_in(charlie).get(reverse("servers")))
    for part in (">MTP<", ">Vision<", "ctx 256K", "18080", "ready"):
        assert part in text


def test_mtp_that_was_asked_for_and_is_not_active_is_said(charlie: User, signed_in: Any) -> None:
    profile = pages.profile(
        observed=Observed.READY, settings={"speculation": "mtp"}, instance={"facts": {"mtp": False}}
    )
    client = signed_in(charlie)
    assert "running without MTP" in text_of(client.get(reverse("servers")))
    assert "asks for MTP, but" in text_of(client.get(reverse("server-detail", args=[profile.pk])))


def test_a_fact_that_is_not_known_is_a_dash(charlie: User, signed_in: Any) -> None:
    profile = pages.profile(observed=Observed.READY)
    text = text_of(signed_in(charlie).get(reverse("server-detail", args=[profile.pk])))
    assert "<dt>MTP active</dt><dd>–</dd>" in text


@pytest.mark.parametrize("observed", Observed.values)
def test_exactly_the_actions_that_the_state_allows_are_open(observed: str) -> None:
    instance = pages.profile(observed=observed).instance
    open_ = {button.name for button in buttons_of(instance) if not button.reason}
    expected = {"start"} if observed in Instance.RESTING else {"stop", "restart"}
    others = {Observed.STOPPING: set(), Observed.BACKOFF: {"retry", "stop"}}
    assert open_ == others.get(Observed(observed), expected)
    assert all(button.reason.endswith(".") for button in buttons_of(instance) if button.reason)


def test_a_server_whose_build_is_not_ready_cannot_start_and_says_why(bob: User, signed_in: Any) -> None:
    pages.profile(build=pages.build("fresh", state=Build.State.PROBING, capabilities={}))
    text = text_of(signed_in(bob).get(reverse("servers")))
    assert 'aria-disabled="true" data-reason="The build fresh is not ready: it is probing."' in text
    # What an earlier probe found is enough.
    again = pages.profile("Again", build=pages.build("again", state=Build.State.FAILED))
    assert not buttons_of(again.instance)[0].reason


def test_a_viewer_has_no_buttons(charlie: User, signed_in: Any) -> None:
    profile = pages.profile()
    assert reverse("server-start", args=[profile.pk]) not in text_of(
        signed_in(charlie).get(reverse("servers"))
    )


def test_start_queues_a_launch_and_comes_back_to_the_page_it_stood_on(bob: User, signed_in: Any) -> None:
    profile, client = pages.profile(), signed_in(bob)
    address = reverse("server-start", args=[profile.pk])
    answer = client.post(address, {"next": reverse("servers")})
    profile.instance.refresh_from_db()
    assert answer["Location"] == reverse("servers")
    assert (profile.instance.observed, profile.instance.desired) == (Observed.STARTING, "running")
    assert Job.objects.get().kind == "server.launch"


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_an_action_never_leads_to_another_place(elsewhere: str, bob: User, signed_in: Any) -> None:
    profile = pages.profile()
    answer = signed_in(bob).post(reverse("server-start", args=[profile.pk]), {"next": elsewhere})
    assert answer["Location"] == reverse("server-detail", args=[profile.pk])


def test_what_a_service_refuses_is_shown(bob: User, signed_in: Any) -> None:
    profile = pages.profile()
    answer = signed_in(bob).post(reverse("server-stop", args=[profile.pk]), follow=True)
    assert "The server is not running: it is stopped." in text_of(answer)


def test_stop_and_restart_ask_first(bob: User, signed_in: Any) -> None:
    profile = pages.profile(observed=Observed.READY)
    text = text_of(signed_in(bob).get(reverse("server-detail", args=[profile.pk])))
    assert 'hx-confirm="Stop the server Qwen?' in text
    assert 'hx-confirm="Restart the server Qwen?' in text


def test_the_rail_counts_the_seconds_of_each_step() -> None:
    taken = steps(
        ("queued", 0), ("preflight", 0.5), ("spawn", 1.0), ("loading", 2.0), ("loaded", 30.0), ("ready", 31.0)
    )
    instance = pages.profile(observed=Observed.READY, instance={"steps": taken}).instance
    by_word = {str(step.word): step for step in steps_of(instance)}
    assert by_word["loading"].seconds == pytest.approx(28.0)
    assert by_word["context"].status == "ahead"
    assert by_word["ready"].seconds is None
    assert "MTP" not in by_word
    assert "warm-up" not in by_word


def test_the_rail_marks_the_step_that_goes_on() -> None:
    taken = steps(("queued", 0), ("preflight", 0.1), ("spawn", 0.2), ("loading", 0.3))
    instance = pages.profile(
        observed=Observed.LOADING, settings={"speculation": "mtp"}, instance={"steps": taken}
    ).instance
    rail = {str(step.word): step for step in steps_of(instance)}
    assert rail["loading"].status == "now"
    assert float(rail["loading"].since) == pytest.approx(taken[-1]["at"], abs=0.01)
    assert rail["MTP"].status == rail["warm-up"].status == "ahead"
    instance.profile.settings = {"warmup": "off"}
    assert {"MTP", "warm-up"} & {str(step.word) for step in steps_of(instance)} == set()


def test_the_rail_of_a_failed_start_ends_in_red_with_the_error(charlie: User, signed_in: Any) -> None:
    taken = steps(("queued", 0), ("preflight", 0.1), ("spawn", 0.2), ("loading", 0.3))
    profile = pages.profile(observed=Observed.FAILED, instance={"steps": taken, "error": "out of memory <b>"})
    text = text_of(signed_in(charlie).get(reverse("server-detail", args=[profile.pk])))
    assert '<li class="is-failed">loading' in text
    assert "out of memory &lt;b&gt;" in text


def test_the_page_shows_the_command_line_and_the_past_runs(charlie: User, signed_in: Any) -> None:
    profile = pages.profile(observed=Observed.READY, instance={"port": 18080})
    old = pages.run_of(profile, state=Run.State.EXITED, exit_code=-9, ended_at=timezone.now())
    run = pages.run_of(profile, argv=["llama-server", "--alias", "two words"], pid=4711)
    answer = signed_in(charlie).get(reverse("server-detail", args=[profile.pk]))
    text = text_of(answer)
    assert "llama-server --alias &#x27;two words&#x27;" in text
    assert "pid 4711" in text
    assert "ended by signal 9" in text
    assert reverse("run-log", args=[old.pk]) in text
    assert answer.context["topics"] == f"server:{profile.pk},jobs,log:{run.pk}"
    assert f'id="log-{run.pk}"' in text


def test_a_job_that_nobody_takes_is_said_on_the_page_and_on_top(bob: User, signed_in: Any) -> None:
    profile, client = pages.profile(), signed_in(bob)
    client.post(reverse("server-start", args=[profile.pk]))
    address = reverse("server-detail", args=[profile.pk])
    assert "waiting for the queue" not in text_of(client.get(address))
    Job.objects.update(created_at=timezone.now() - timedelta(seconds=4))
    text = text_of(client.get(address))
    assert ">waiting for the queue<" in text
    assert "1 job is waiting for the queue" in text


def test_nobody_waits_once_the_newest_job_is_taken(bob: User, signed_in: Any) -> None:
    profile, client = pages.profile(), signed_in(bob)
    client.post(reverse("server-start", args=[profile.pk]))
    Job.objects.update(created_at=timezone.now() - timedelta(seconds=4), state=Job.State.RUNNING)
    assert "waiting for the queue" not in text_of(client.get(reverse("server-detail", args=[profile.pk])))
