"""The runners of server jobs: launch (preflight, spawn) and stop."""

import time
from pathlib import Path

from asgiref.sync import async_to_sync

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.problems import errors
from jobs.adapters import runs as folders
from jobs.adapters.runs import RunSpec, SpawnError
from jobs.models import Job, Run
from jobs.registry import Runner, WorkFailed
from jobs.services import runs
from jobs.services.audit import Actor
from jobs.services.jobs import Claimed
from servers.domain.policy import policy_of
from servers.models import Instance, ServerProfile
from servers.services import instances, keeping, preflight
from servers.services.flight import requests_at
from servers.services.instances import LAUNCH, Observed, waits
from servers.services.profiles import render_profile

RUN_KIND = "server"
NOT_SPAWNED = Message(N_("The process was never started."))
PASSING = ("port", "memory", "disk")  # checks whose trouble may pass by itself
GRACE = 10.0  # seconds between SIGTERM and SIGKILL
DRAIN_EVERY = 0.5  # seconds between two looks at the requests in flight
PATIENCE = 5.0  # seconds for one answer: a server that computes may be slow to tell
SILENT = 12  # looks without an answer after which nobody is waited for
RUNS = frozenset({"running", "orphaned"})  # what a run folder says of a process that is there


class Lasting(WorkFailed):
    """Another start would fail in the same way until somebody changes something."""


class LaunchRunner(Runner):
    """Preflight, then spawn; from there the agent's polls move the instance on to ready."""

    def run(self, job: Claimed) -> None:
        """Start the instance's server, or go on where a killed worker left off."""
        instance = _instance(job)
        if instance is None or instance.observed != Observed.STARTING:
            return
        try:
            self._launch(job, instance)
        except WorkFailed as error:
            again = bool(job.params.get("again")) and not isinstance(error, Lasting)
            keeping.start_failed(instance, error.message, again=again)
            raise

    def _launch(self, job: Claimed, instance: Instance) -> None:
        job.step("preflight")
        instances.note_step(instance, "preflight")
        profile = instance.profile
        run = instance.run
        if run is None:
            port = _check(instance, set(job.params.get("taken", [])))
            run = runs.create_run(profile.build.host, RUN_KIND, "instance", instance.pk)
            if not instances.attach_run(instance, run, port):
                runs.abandon(run, NOT_SPAWNED)
                return
        job.step("spawn")
        instances.note_step(instance, "spawn")
        instances.note_revision(instance)
        rendered = render_profile(profile, instance.port, str(folders.run_dir(run.pk) / "config"))
        wrong = errors(rendered.problems)
        if wrong:
            runs.abandon(run, NOT_SPAWNED)
            raise Lasting.of(wrong[0].message)
        spec = RunSpec(
            argv=[profile.build.path, *rendered.argv],
            cwd=str(Path.home()),
            env=rendered.env,
            secret_env={"LLAMA_API_KEY": instances.server_key(run.pk)},
            grace=GRACE,
            memory_mib=policy_of(profile.policy).memory_mib,
            mapped_mib=_files_mib(profile),
        )
        try:
            runs.spawn(run, spec)
        except SpawnError as error:
            runs.abandon(run, NOT_SPAWNED)
            raise WorkFailed(N_("The process could not be started: %(why)s"), why=error) from error

    def cancel(self, job: Claimed) -> None:
        """Nothing to end here: the stop that canceled the launch ends the run."""

    def take_back(self, actor: Actor, job: Job) -> bool:
        """Canceling a start is a stop, whatever has been started by now."""
        instance = Instance.objects.select_related("profile__build__host").filter(pk=job.subject_id).first()
        if instance is None or instance.observed not in Instance.ALIVE:
            return False
        instances.request_stop(actor, instance.profile)
        return True


class StopRunner(Runner):
    """Ends the instance's run, whatever the state of its shim; restarts it when the job says so."""

    keeps = N_("A stop cannot be taken back. Start the server again once it has ended.")

    def run(self, job: Claimed) -> None:
        """Stop, wait for the end, and settle the instance."""
        instance = _instance(job)
        if instance is None:
            return
        if instance.observed == Observed.STOPPING:
            if waits(job.row):
                job.step("drain")
                _drain(job, instance)
            job.step("stop")
            _wait_for_launch(job, instance)
            self._end(job, instance.run_id)
        instance = _instance(job)
        if instance is None:
            return
        if job.params.get("then_start") and instance.observed in Instance.RESTING:
            job.step("start")
            actor = Actor(job.row.actor, "agent")
            instances.request_start(actor, instance.profile, again=bool(job.params.get("again")))

    def _end(self, job: Claimed, run_id: str | None) -> None:
        """End the run that was to stop; one that was started since, because that one ended, goes on."""
        instance = _instance(job)
        if instance is None or instance.observed != Observed.STOPPING:
            return
        if run_id is not None and instance.run_id != run_id:
            return
        if instance.run is not None:
            self._end_run(job, instance.run)
        instances.move(instance, Observed.STOPPING, to=Observed.STOPPED, error="")

    def _end_run(self, job: Claimed, run: Run) -> None:
        status = runs.observe(run)
        if status.status == "missing":
            runs.abandon(run, NOT_SPAWNED)
            return
        if not job.params.get("asked"):
            folders.request_stop(run.pk)
            job.remember(asked=True)

        def ended() -> bool:
            return runs.observe(run).status not in RUNS

        if not job.wait(ended, GRACE + 5):
            folders.kill(run.pk)
            if not job.wait(ended, 10):
                raise WorkFailed(N_("The server's process does not end, not even after SIGKILL."))


def _wait_for_launch(job: Claimed, instance: Instance) -> None:
    """Let a launch that this stop canceled come to its end; a later one is not waited for."""
    stopping = Instance.objects.filter(pk=instance.pk, observed=Observed.STOPPING)
    job.wait(lambda: not instances.has_active_job(instance, LAUNCH) or not stopping.exists(), 60)


def _drain(job: Claimed, instance: Instance) -> None:
    """Wait for the requests in flight, until they are done, somebody cuts them, or nobody can tell."""
    endpoint = instances.endpoint_of(instance)
    # From the begin of the step, whichever worker began it.
    deadline = job.row.steps[-1]["started_at"] + float(job.params["wait"])
    silent = 0
    while endpoint is not None and time.time() < deadline and silent < SILENT:
        if instance.run is None or runs.observe(instance.run).status not in RUNS:
            return
        busy = async_to_sync(requests_at)(endpoint, PATIENCE)
        if busy == 0:
            return
        silent = silent + 1 if busy is None else 0
        job.progress(0, 0, "", busy=busy)
        job.check()
        time.sleep(DRAIN_EVERY)
        row = Job.objects.filter(pk=job.row.pk).first()
        if row is None or not waits(row):
            return


def _instance(job: Claimed) -> Instance | None:
    rows = Instance.objects.select_related(
        "profile__build__host", "profile__model", "profile__mmproj", "run__host"
    )
    return rows.filter(pk=job.row.subject_id).first()


def _files_mib(profile: ServerProfile) -> int:
    """Return what the profile's files take when they are mapped, in whole MiB."""
    files = (profile.model, profile.mmproj)
    return -(-sum(artifact.file_size for artifact in files if artifact) // 2**20)


def _check(instance: Instance, taken: set[int]) -> int:
    """Keep what was seen of what the start needs and return its port; WorkFailed for what is against it."""
    seen = preflight.look(instance, taken)
    instances.note_checks(instance, [check.to_json() for check in seen.checks])
    errors_first = sorted(seen.checks, key=lambda check: check.level != "error")
    for check in errors_first:
        if check.level == "error" or (check.holds and not instance.anyway):
            raise (WorkFailed if check.key in PASSING else Lasting).of(check.message)
    if isinstance(seen.port, Message):
        raise WorkFailed.of(seen.port)
    return seen.port
