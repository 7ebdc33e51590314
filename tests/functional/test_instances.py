"""Start, stop and launch as services: guards, ports, files that went away, and reasons in words."""

import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from controlpanel.lib.errors import Refused
from jobs.adapters import runs as folders
from jobs.adapters.ports import port_owner
from jobs.models import AuditEntry, Build, Job, ModelArtifact, Run
from jobs.services import jobs, runs
from jobs.services.artifacts import delete_artifact, register_artifact
from jobs.services.audit import Actor
from jobs.services.builds import probe_now, register_build
from jobs.services.hosts import local_host
from servers.models import Instance, ServerProfile
from servers.services import instances
from servers.services.profiles import ProfileData, delete_profile, save_profile
from servers.services.settle import settle_instances
from tests.models import tiny_models

pytestmark = pytest.mark.django_db(transaction=True)
CLI = Actor.cli()


@pytest.fixture
def profile(tmp_path: Path) -> ServerProfile:
    """A profile with the real engine and the tiny model; nothing runs."""
    build = register_build(CLI, local_host(), "Engine", str(Path(sys.prefix) / "bin" / "panel-llama-server"))
    probe_now(build)
    build.refresh_from_db()
    text, _projector = tiny_models(tmp_path)
    model = register_artifact(CLI, local_host(), str(text))
    Job.objects.all().delete()
    return save_profile(CLI, None, ProfileData("Tiny", build, model, settings={"ctx_size": 1024}))


def last_job(kind: str) -> Job:
    """The newest job of a kind."""
    found = Job.objects.filter(kind=kind).first()
    assert found is not None
    return found


def execute(kind: str) -> Job:
    """Run the newest job of a kind here, as a worker would."""
    job = last_job(kind)
    jobs.execute(job.pk)
    job.refresh_from_db()
    return job


def instance_of(profile: ServerProfile) -> Instance:
    """The instance as the database has it now."""
    return Instance.objects.select_related("run", "profile").get(profile=profile)


def test_a_start_runs_the_real_server_and_a_stop_ends_it(profile: ServerProfile) -> None:
    instances.request_start(CLI, profile)
    assert execute(instances.LAUNCH).state == Job.State.SUCCEEDED
    found = instance_of(profile)
    assert found.run is not None and found.run.state == Run.State.RUNNING
    secret = instances.server_key(found.run.pk)
    assert "--port" in found.run.argv and secret not in str(found.run.argv)
    assert secret not in (folders.run_dir(found.run.pk) / "spec.json").read_text()
    job = instances.request_stop(CLI, profile)
    jobs.execute(job.pk)
    found = instance_of(profile)
    assert (found.observed, found.desired) == (Instance.Observed.STOPPED, Instance.Desired.STOPPED)
    assert found.run is not None
    found.run.refresh_from_db()
    assert found.run.state == Run.State.EXITED and found.run.stop_requested
    actions = list(AuditEntry.objects.values_list("action", flat=True))
    assert "server.start" in actions and "server.stop" in actions


def test_a_second_start_is_refused_and_makes_no_second_job(profile: ServerProfile) -> None:
    instances.request_start(CLI, profile)
    with pytest.raises(Refused, match="starting"):
        instances.request_start(CLI, profile)
    assert Job.objects.filter(kind=instances.LAUNCH).count() == 1


def test_a_stop_before_the_launch_was_taken_ends_without_a_process(profile: ServerProfile) -> None:
    instances.request_start(CLI, profile)
    launch = last_job(instances.LAUNCH)
    job = instances.request_stop(CLI, profile)
    jobs.execute(launch.pk)
    jobs.execute(job.pk)
    assert instance_of(profile).observed == Instance.Observed.STOPPED
    assert not Run.objects.exists()


def test_a_launch_whose_worker_died_after_the_spawn_goes_on_with_the_same_process(
    profile: ServerProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances.request_start(CLI, profile)
    job = last_job(instances.LAUNCH)
    with monkeypatch.context() as patch:
        # Dies right after the spawn: neither the run's nor the job's row hears of it.
        patch.setattr(runs, "observe", lambda run: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            jobs.execute(job.pk)
    run = instance_of(profile).run
    assert run is not None and run.state == Run.State.CREATED
    pid = folders.inspect(run.pk).child
    Job.objects.filter(pk=job.pk).update(owner_start=1)
    jobs.execute(job.pk)
    job.refresh_from_db()
    assert job.state == Job.State.SUCCEEDED
    assert Run.objects.count() == 1 and folders.inspect(run.pk).child == pid
    jobs.execute(instances.request_stop(CLI, profile).pk)


def test_a_model_deleted_between_save_and_start_is_named(profile: ServerProfile) -> None:
    path = Path(profile.model.path)
    path.unlink()
    instances.request_start(CLI, profile)
    assert execute(instances.LAUNCH).state == Job.State.FAILED
    found = instance_of(profile)
    assert found.observed == Instance.Observed.FAILED and str(path) in found.error
    assert not Run.objects.exists()


def test_a_chosen_port_in_use_names_its_owner(profile: ServerProfile) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ServerProfile.objects.filter(pk=profile.pk).update(port=port)
        instances.request_start(CLI, profile)
        assert execute(instances.LAUNCH).state == Job.State.FAILED
        assert port_owner(port).startswith(Path("/proc/self/comm").read_text().strip())
    error = instance_of(profile).error_text
    assert str(port) in error and "pid" in error


def test_a_free_port_taken_meanwhile_leads_to_the_next_one(profile: ServerProfile) -> None:
    instances.request_start(CLI, profile)
    with socket.socket() as taken:
        job = jobs.claim(last_job(instances.LAUNCH).pk)
        assert job is not None
        run = runs.create_run(local_host(), "server", "instance", profile.instance.pk)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert instances.attach_run(instance_of(profile), run, port)
        Job.objects.filter(pk=job.row.pk).update(owner_start=1)
        jobs.execute(job.row.pk)
        deadline = time.monotonic() + 60
        while Run.objects.get(pk=run.pk).state != Run.State.EXITED and time.monotonic() < deadline:
            runs.observe(Run.objects.select_related("host").get(pk=run.pk))
            time.sleep(0.1)
    found = instance_of(profile)
    assert found.observed == Instance.Observed.STARTING and found.run is None
    assert last_job(instances.LAUNCH).params == {"taken": [port], "again": False}
    assert execute(instances.LAUNCH).state == Job.State.SUCCEEDED
    assert instance_of(profile).port != port
    jobs.execute(instances.request_stop(CLI, profile).pk)


@pytest.mark.parametrize(
    ("settings", "extra", "field"),
    [
        ({"ctx_size": 2_000_000_000}, "", "ctx_size"),
        ({"cache_type_k": "turbo4"}, "", "cache_type_k"),
        ({}, "--port 9", "extra_args"),
        ({}, "--api-key secret", "extra_args"),
        ({}, "-m /etc/passwd", "extra_args"),
        ({}, '--alias "open', "extra_args"),
        ({}, "--mtp-n-predict 4", "extra_args"),
    ],
)
def test_a_profile_that_could_not_start_is_not_saved(
    profile: ServerProfile, settings: dict[str, Any], extra: str, field: str
) -> None:
    data = ProfileData("Other", profile.build, profile.model, settings=settings, extra_args=extra)
    with pytest.raises(Refused) as caught:
        save_profile(CLI, None, data)
    assert caught.value.field == field and str(caught.value)
    assert not ServerProfile.objects.filter(name="Other").exists()


def test_what_is_in_use_cannot_be_deleted(profile: ServerProfile) -> None:
    with pytest.raises(Refused, match="Tiny"):
        delete_artifact(CLI, profile.model)
    assert ModelArtifact.objects.filter(pk=profile.model.pk).exists()
    instances.request_start(CLI, profile)
    with pytest.raises(Refused, match="Stop the server"):
        delete_profile(CLI, profile)
    jobs.execute(instances.request_stop(CLI, profile).pk)
    delete_profile(CLI, profile)
    delete_artifact(CLI, profile.model)
    assert not ServerProfile.objects.exists() and not Instance.objects.exists()
    assert Build.objects.count() == 1


def test_nobody_reaches_a_server_that_is_not_ready(profile: ServerProfile) -> None:
    with pytest.raises(Refused, match="stopped"):
        instances.ensure_ready(profile)


def test_what_a_killed_process_left_between_two_rows_is_settled(profile: ServerProfile) -> None:
    instances.request_start(CLI, profile)
    execute(instances.LAUNCH)
    run = instance_of(profile).run
    assert run is not None
    folders.kill(run.pk)
    folders.wait(run.pk, 30)
    # The run's row heard of the end, the instance did not.
    Run.objects.filter(pk=run.pk).update(state=Run.State.EXITED, exit_code=-9)
    settle_instances()
    found = instance_of(profile)
    assert found.observed == Instance.Observed.BACKOFF and "signal 9" in found.error_text


def test_a_launch_that_ended_by_a_fault_of_ours_leaves_no_instance_starting_for_ever(
    profile: ServerProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances.request_start(CLI, profile)
    monkeypatch.setattr(runs, "create_run", lambda *_: 1 / 0)
    assert execute(instances.LAUNCH).state == Job.State.ERRORED
    settle_instances()
    found = instance_of(profile)
    assert found.observed == Instance.Observed.FAILED and "ZeroDivisionError" in found.error_text


def test_a_stop_that_failed_can_be_asked_for_again(profile: ServerProfile) -> None:
    instances.request_start(CLI, profile)
    execute(instances.LAUNCH)
    job = instances.request_stop(CLI, profile)
    jobs.finish(job, Job.State.ERRORED, "a fault")
    settle_instances()
    assert instance_of(profile).observed == Instance.Observed.UNRESPONSIVE
    jobs.execute(instances.request_stop(CLI, profile).pk)
    assert instance_of(profile).observed == Instance.Observed.STOPPED


def test_settling_leaves_a_start_in_progress_alone(profile: ServerProfile) -> None:
    instances.request_start(CLI, profile)
    settle_instances()
    assert instance_of(profile).observed == Instance.Observed.STARTING
