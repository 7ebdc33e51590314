"""Servers that fail are started again as their policy says: real processes of the fake llama-server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.utils import timezone

from controlpanel.lib.errors import Refused
from controlpanel.llamacpp.rule_types import Diagnosis
from jobs.adapters import runs as folders
from jobs.models import AuditEntry, Job, Run
from jobs.runtime import procs
from servers.models import Incident, Instance
from servers.services import instances, keeping
from servers.services.profiles import data_of, save_profile
from tests.stage import CLI, Stage, instance_of

pytestmark = pytest.mark.django_db(transaction=True)
Observed, Kind = Instance.Observed, Incident.Kind


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Servers that are ready at once, of a build that sees two cards."""
    stage = Stage(tmp_path, cards="24576,24576")
    yield stage
    stage.close()


def crash(instance: Instance) -> None:
    """End the server from outside, as a crash does."""
    assert instance.run is not None
    child = folders.inspect(instance.run.pk).child
    assert child is not None
    os.kill(child.pid, signal.SIGSEGV)


def test_a_crash_loop_ends_with_the_first_and_the_latest_failure_apart(stage: Stage) -> None:
    stage.flags(exit_after=0.05, exit_code=-11, never_ready=True)
    profile = stage.profile()
    failed = stage.start(profile, Observed.BACKOFF)
    first = failed.run
    assert failed.attempts == 1 and failed.retry_at is not None
    wait = (failed.retry_at - timezone.now()).total_seconds()
    assert 0 < wait <= 2 and "signal 11" in failed.error_text
    for attempt in (2, 3):
        stage.skip_wait(profile)
        stage.until(profile, Observed.STARTING)
        failed = stage.until(profile, Observed.BACKOFF)
        assert failed.attempts == attempt and failed.first_failure == first
    stage.skip_wait(profile)
    stage.until(profile, Observed.STARTING)
    failed = stage.until(profile, Observed.FAILED)
    assert failed.first_failure == first and failed.run not in (first, None)
    assert "4 starts in a row have failed" in failed.error_text
    kinds = list(Incident.objects.values_list("kind", flat=True))
    assert kinds.count(Kind.START) == 4 and kinds.count(Kind.LOOP) == 1
    stage.flags()
    ready = stage.start(profile)
    assert (ready.attempts, ready.first_failure, ready.error) == (0, None, "")


def test_a_server_that_was_stable_begins_a_new_row_of_failures(stage: Stage) -> None:
    profile = stage.profile(policy={"stable_s": 60})
    ready = stage.start(profile)
    crash(ready)
    assert stage.until(profile, Observed.BACKOFF).attempts == 1
    keeping.retry_now(CLI, profile)
    told = AuditEntry.objects.filter(action="server.start").latest("pk")
    assert (told.source, told.after) == ("cli", {"revision": 1, "attempt": 1})
    again = stage.until(profile, Observed.READY)
    assert again.attempts == 1 and again.first_failure == ready.run
    stage.ready_for(profile, 61)
    stage.round()
    calm = instance_of(profile)
    assert (calm.attempts, calm.first_failure) == (0, None)
    crash(calm)
    failed = stage.until(profile, Observed.BACKOFF)
    assert failed.attempts == 1 and failed.first_failure == calm.run
    assert Incident.objects.filter(kind=Kind.CRASH).count() == 2
    # Its stop ends the wait, without a process and without a job.
    assert instances.request_stop(CLI, profile) is None
    stopped = instance_of(profile)
    assert (stopped.observed, stopped.held, stopped.retry_at) == (Observed.STOPPED, True, None)
    with pytest.raises(Refused, match="stopped"):
        keeping.retry_now(CLI, profile)


def test_the_policy_says_when_a_server_that_ended_well_runs_again(stage: Stage) -> None:
    stage.flags(exit_after=0.5, exit_code=0)
    once, always = stage.profile("Once"), stage.profile("Always", policy={"restart": "always"})
    never = stage.profile("Never", policy={"restart": "never"})
    for profile in (once, always, never):
        instances.request_start(CLI, profile)
    assert stage.until(once, Observed.EXITED).attempts == 0
    assert stage.until(always, Observed.BACKOFF).attempts == 1
    stage.until(never, Observed.EXITED)
    stage.flags(exit_after=0.5, exit_code=1)
    assert stage.start(never, Observed.FAILED).attempts == 0


class Stranger(BaseHTTPRequestHandler):
    """Another program's server: whatever is asked, all is well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")


def test_another_program_on_the_port_is_not_taken_for_the_server(stage: Stage) -> None:
    stage.flags(bind_delay=1.5)
    profile = stage.profile()
    starting = stage.start(profile, Observed.STARTING)
    stage.rounds(lambda: instance_of(profile).port is not None, "the port")
    port = instance_of(profile).port
    assert starting.observed == Observed.STARTING and port is not None
    with ThreadingHTTPServer(("127.0.0.1", port), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        stage.rounds(lambda: instance_of(profile).port != port, "another port")
        assert not any(step["key"] == "ready" for step in instance_of(profile).steps)
        stage.until(profile, Observed.READY)
        stranger.shutdown()


def test_what_another_start_cannot_mend_is_not_started_again(stage: Stage) -> None:
    stage.flags(
        never_ready=True, exit_after=0.05, exit_code=1, exit_text="error: invalid argument: --mtp-n-predict\n"
    )
    failed = stage.start(stage.profile(), Observed.FAILED)
    assert failed.attempts == 0 and "--mtp-n-predict" in failed.error_text
    assert failed.run is not None and failed.run.diagnosis[0]["passing"] is False


def test_a_silent_server_is_restarted_and_counts_as_failed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servers.services.polls.TIMEOUT", 0.2)
    profile = stage.profile(policy={"hang_s": 1, "limit": 1})
    patient = stage.profile("Patient", policy={"hang_s": 0})
    first = stage.start(profile)
    stage.start(patient)
    stage.flags(hang="/health", ignore_sigterm=False)
    stage.until(profile, Observed.UNRESPONSIVE)
    stage.until(profile, Observed.STARTING)
    again = instance_of(profile)
    assert (again.attempts, again.first_failure) == (1, first.run)
    assert instance_of(patient).observed == Observed.UNRESPONSIVE
    stage.flags()
    assert stage.until(profile, Observed.READY).attempts == 1
    assert stage.until(patient, Observed.READY).error == ""
    stage.flags(hang="/health")
    stage.rounds(lambda: "2 starts" in instance_of(profile).error_text, "to give up")
    assert instance_of(profile).observed == Observed.UNRESPONSIVE
    assert {row.count for row in Incident.objects.filter(kind=Kind.HANG)} == {1}


def test_a_shutdown_that_the_agent_saw_is_no_end_for_good(stage: Stage) -> None:
    profile, left = stage.profile(), stage.profile("Never", policy={"restart": "never"})
    for row in (profile, left):
        run = stage.start(row).run
        assert run is not None
        folders.request_stop(run.pk)
        assert stage.until(row, Observed.EXITED).desired == Instance.Desired.RUNNING
    keeping.bring_back()
    assert instance_of(profile).observed == Observed.EXITED
    for run in Run.objects.all():
        path = folders.run_dir(run.pk) / "state.json"
        path.write_text(path.read_text().replace(procs.boot_id(), "00000000-0000-4000-8000-000000000000"))
    keeping.bring_back()
    keeping.bring_back()
    assert instance_of(profile).observed == Observed.BACKOFF
    assert instance_of(left).observed == Observed.FAILED
    assert [row.count for row in Incident.objects.filter(kind=Kind.REBOOT)] == [1, 1]


def test_a_restart_whose_job_failed_leaves_no_server_between_two_states(stage: Stage) -> None:
    profile = stage.profile(policy={"hang_s": 1})
    instance = stage.start(profile)
    Instance.objects.update(observed=Observed.UNRESPONSIVE)
    keeping.restart_hung(instance_of(profile), 5.0)
    assert instance_of(profile).observed == Observed.STOPPING
    Job.objects.filter(kind=instances.STOP).update(state=Job.State.ERRORED)
    crash(instance)
    stage.until(profile, Observed.BACKOFF)
    # What was to stop is not restarted because it is silent.
    ready = stage.start(profile)
    Instance.objects.update(observed=Observed.UNRESPONSIVE, desired=Instance.Desired.STOPPED)
    keeping.restart_hung(instance_of(profile), 5.0)
    assert instance_of(profile).observed == Observed.UNRESPONSIVE and ready.attempts == 0


def test_a_start_of_the_panel_whose_job_failed_is_tried_again(stage: Stage) -> None:
    profile = stage.profile()
    stage.flags(never_ready=True, exit_after=0.05, exit_code=-11)
    stage.start(profile, Observed.BACKOFF)
    instances.request_start(CLI, profile, again=True)
    Job.objects.filter(kind=instances.LAUNCH, state=Job.State.QUEUED).update(state=Job.State.ERRORED)
    assert stage.until(profile, Observed.BACKOFF).attempts == 2


def test_one_server_that_cannot_be_settled_keeps_no_other_from_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = stage.profile("A bad"), stage.profile("B good")
    for profile in (bad, good):
        crash(stage.start(profile))
    judge = keeping.why_it_failed

    def fails(instance: Instance, run: Run) -> list[Diagnosis]:
        if instance.profile == bad:
            raise RuntimeError("a fault of ours")
        return judge(instance, run)

    monkeypatch.setattr(keeping, "why_it_failed", fails)
    stage.until(good, Observed.BACKOFF)
    monkeypatch.undo()
    stage.until(bad, Observed.BACKOFF)


def test_a_start_in_spite_of_warnings_ends_with_its_revision(stage: Stage) -> None:
    profile = stage.profile()
    crash(stage.start(profile, anyway=True))
    stage.until(profile, Observed.BACKOFF)
    instances.request_start(CLI, profile, again=True)
    assert instance_of(profile).anyway
    stage.until(profile, Observed.READY)
    profile = save_profile(CLI, profile, replace(data_of(profile), settings={"ctx_size": 2048}))
    crash(instance_of(profile))
    stage.until(profile, Observed.BACKOFF)
    instances.request_start(CLI, profile, again=True)
    assert not instance_of(profile).anyway


def test_after_a_reboot_servers_come_back_in_order_on_their_cards(stage: Stage) -> None:
    last = stage.profile("A last", policy={"order": 200})
    first = stage.profile("B first", policy={"order": 1})
    left = stage.profile("C never", policy={"restart": "never"})
    rows = (last, first, left)
    for profile in rows:
        stage.start(profile)
    # The host ends everything with SIGTERM, which the shims note as a stop; the panel is gone already.
    stage.close()
    for run in Run.objects.all():
        path = folders.run_dir(run.pk) / "state.json"
        path.write_text(path.read_text().replace(procs.boot_id(), "00000000-0000-4000-8000-000000000000"))
    stage.flags(never_ready=True)
    stage.until(first, Observed.BACKOFF)
    waits = instance_of(first).retry_at
    assert waits is not None and waits > timezone.now(), "all have to be known before the first starts"
    for profile in rows:
        stage.skip_wait(profile)
    stage.until(first, Observed.STARTING, Observed.LOADING)
    assert instance_of(last).observed == Observed.BACKOFF
    assert instance_of(left).observed == Observed.FAILED
    assert "restarted" in instance_of(left).error_text
    stage.flags()
    stage.until(last, Observed.READY)
    assert instance_of(first).observed == Observed.READY
    order = Job.objects.filter(kind=instances.LAUNCH, params__again=True).order_by("pk")
    assert [job.subject_id for job in order] == [str(first.instance.pk), str(last.instance.pk)]
    assert Incident.objects.filter(kind=Kind.REBOOT).count() == 3
