"""A stop that waits for the requests in flight: the real server, and real requests that take their time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.db import connection

from controlpanel.lib.errors import Refused
from jobs.adapters import runs as folders
from jobs.adapters.hostlink import Endpoint
from jobs.models import AuditEntry, Job, Run
from jobs.services import jobs, runs
from jobs.services.artifacts import register_artifact
from jobs.services.audit import Actor
from jobs.services.builds import probe_now, register_build
from jobs.services.hosts import local_host
from servers.models import Instance, ServerProfile
from servers.services import instances
from servers.services.profiles import ProfileData, save_profile
from tests.models import tiny_models
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
CLI = Actor.cli()
LONG = 60.0
WAIT = 600.0  # a busy machine may take its time for the whole answer


class Request(threading.Thread):
    """A completion that streams; `tokens` counts what has arrived."""

    def __init__(self, endpoint: Endpoint, tokens: int) -> None:
        super().__init__(daemon=True)
        self.endpoint, self.wanted = endpoint, tokens
        self.tokens = 0

    @property
    def whole(self) -> bool:
        """True when all tokens have arrived."""
        return self.tokens >= self.wanted

    def run(self) -> None:
        body = {"prompt": "hi", "n_predict": self.wanted, "ignore_eos": True, "stream": True}
        headers = {"Authorization": f"Bearer {self.endpoint.key}"}
        url = f"http://127.0.0.1:{self.endpoint.port}/completion"
        try:
            with httpx.stream("POST", url, json=body, headers=headers, timeout=120) as answer:
                for line in answer.iter_lines():
                    self.tokens += line.startswith("data: ")
        except httpx.TransportError:
            pass


@pytest.fixture
def profile(tmp_path: Path) -> Iterator[ServerProfile]:
    """A profile whose real server is ready."""
    build = register_build(CLI, local_host(), "Engine", str(Path(sys.prefix) / "bin" / "panel-llama-server"))
    probe_now(build)
    build.refresh_from_db()
    model = register_artifact(CLI, local_host(), str(tiny_models(tmp_path)[0]))
    Job.objects.all().delete()
    settings = {"ctx_size": 262_144, "parallel": 1}
    # The model's own size would end each request after seconds.
    extra = "--override-kv qwen35.context_length=int:262144"
    row = save_profile(CLI, None, ProfileData("Tiny", build, model, settings=settings, extra_args=extra))
    instances.request_start(CLI, row)
    execute(Job.objects.get(kind=instances.LAUNCH))
    instance = Instance.objects.select_related("run").get(profile=row)
    assert instance.run is not None
    wait_for(lambda: healthy(endpoint_of(row)), LONG, "the server to be ready")
    instances.move(instance, *Instance.ALIVE, to=Instance.Observed.READY)
    yield row
    folders.kill(instance.run.pk)


def endpoint_of(profile: ServerProfile) -> Endpoint:
    found = instances.endpoint_of(Instance.objects.select_related("run__host").get(profile=profile))
    assert found is not None
    return found


def healthy(endpoint: Endpoint) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{endpoint.port}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def execute(job: Job) -> None:
    jobs.execute(job.pk)


def in_thread(job: Job) -> threading.Thread:
    """Run a job as a worker beside this test would."""

    def work() -> None:
        try:
            jobs.execute(job.pk)
        finally:
            connection.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def asking(profile: ServerProfile, tokens: int) -> Request:
    request = Request(endpoint_of(profile), tokens)
    request.start()
    wait_for(lambda: request.tokens > 1, LONG, "the first token")
    return request


def step_of(job: Job) -> str:
    job.refresh_from_db()
    return job.step


def test_a_restart_waits_for_the_request_in_flight_and_refuses_new_ones(profile: ServerProfile) -> None:
    request = asking(profile, 8_000)
    job = instances.request_restart(CLI, profile, wait=WAIT, reason="More context")
    worker = in_thread(job)
    wait_for(lambda: step_of(job) == "drain", LONG, "the wait to begin")
    with pytest.raises(Refused, match="stopping"):
        instances.ensure_ready(profile)
    request.join(WAIT)
    worker.join(LONG)
    assert request.whole
    assert Instance.objects.get(profile=profile).observed == Instance.Observed.STARTING
    entry = AuditEntry.objects.get(action="server.restart")
    assert entry.after == {"wait": WAIT, "reason": "More context"}


def test_a_wait_is_cut_by_whoever_asks_for_it(profile: ServerProfile) -> None:
    request = asking(profile, 260_000)
    job = instances.request_stop(CLI, profile, wait=600)
    worker = in_thread(job)
    wait_for(lambda: step_of(job) == "drain" and job.progress.get("busy") == 1, LONG, "one to be waited for")
    instances.cut_now(CLI, profile)
    worker.join(LONG)
    request.join(LONG)
    assert not worker.is_alive() and not request.whole
    assert Instance.objects.get(profile=profile).observed == Instance.Observed.STOPPED
    with pytest.raises(Refused, match="any more"):
        instances.cut_now(CLI, profile)


def test_a_wait_ends_at_its_limit(profile: ServerProfile) -> None:
    request = asking(profile, 260_000)
    execute(instances.request_stop(CLI, profile, wait=1))
    request.join(LONG)
    assert not request.whole
    assert Instance.objects.get(profile=profile).observed == Instance.Observed.STOPPED


def test_a_server_that_does_not_answer_is_not_waited_for(profile: ServerProfile) -> None:
    run = Instance.objects.select_related("run").get(profile=profile).run
    assert run is not None
    folders.kill(run.pk)
    wait_for(lambda: not healthy(endpoint_of(profile)), LONG, "the server to be gone")
    execute(instances.request_stop(CLI, profile, wait=600))
    assert Instance.objects.get(profile=profile).observed == Instance.Observed.STOPPED


def test_a_server_that_was_started_while_another_stop_waited_goes_on(profile: ServerProfile) -> None:
    asking(profile, 260_000)
    job = instances.request_stop(CLI, profile, wait=600)
    worker = in_thread(job)
    wait_for(lambda: step_of(job) == "drain", LONG, "the wait to begin")
    asked = Instance.objects.select_related("run").get(profile=profile)
    assert asked.run is not None
    # The server ends by itself, and somebody starts it again before the stop has noticed.
    Instance.objects.filter(pk=asked.pk).update(observed=Instance.Observed.STOPPED)
    instances.request_start(CLI, profile)
    new = runs.create_run(local_host(), "server", "instance", asked.pk)
    Instance.objects.filter(pk=asked.pk).update(run=new, observed=Instance.Observed.READY)
    folders.kill(asked.run.pk)
    worker.join(LONG)
    now = Instance.objects.get(profile=profile)
    assert (now.observed, now.run_id) == (Instance.Observed.READY, new.pk)
    new.refresh_from_db()
    assert new.state == Run.State.CREATED and not new.stop_requested


def test_a_profile_deleted_while_its_stop_waited_ends_the_wait_in_peace(profile: ServerProfile) -> None:
    asking(profile, 260_000)
    job = instances.request_stop(CLI, profile, wait=600)
    worker = in_thread(job)
    wait_for(lambda: step_of(job) == "drain", LONG, "the wait to begin")
    run = Instance.objects.select_related("run").get(profile=profile).run
    assert run is not None
    Instance.objects.filter(profile=profile).delete()
    folders.kill(run.pk)
    worker.join(LONG)
    job.refresh_from_db()
    assert job.state == Job.State.SUCCEEDED


def test_only_some_stops_of_a_host_wait_at_the_same_time(
    profile: ServerProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "WAITING", 1)
    waiting = {"kind": instances.STOP, "host": local_host(), "subject_kind": "instance", "subject_id": "99"}
    Job.objects.create(**waiting, params={"then_start": False, "wait": 60.0})
    with pytest.raises(Refused, match="wait for their requests already"):
        instances.request_stop(CLI, profile, wait=60)
    assert Instance.objects.get(profile=profile).observed == Instance.Observed.READY
    execute(instances.request_stop(CLI, profile))
    assert Instance.objects.get(profile=profile).observed == Instance.Observed.STOPPED


def test_the_revision_that_runs_is_the_one_that_was_rendered(profile: ServerProfile) -> None:
    execute(instances.request_stop(CLI, profile))
    Job.objects.filter(kind=instances.LAUNCH).delete()
    instances.request_start(CLI, profile)
    # Saved while the start waits for a worker.
    more = {**profile.settings, "parallel": 2}
    data = ProfileData("Tiny", profile.build, profile.model, settings=more, extra_args=profile.extra_args)
    save_profile(CLI, profile, data)
    execute(Job.objects.get(kind=instances.LAUNCH))
    found = Instance.objects.select_related("run").get(profile=profile)
    assert found.revision == 2 and found.run is not None and "--parallel" in found.run.argv
    execute(instances.request_stop(CLI, profile))
