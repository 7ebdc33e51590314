"""A host by hand: the rounds of its agent and its worker, on servers that fail when they are told to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from asgiref.sync import async_to_sync
from django.utils import timezone

from jobs.adapters import runs as folders
from jobs.models import Job, ModelArtifact, Run
from jobs.services import jobs
from jobs.services.artifacts import register_artifact
from jobs.services.audit import Actor
from jobs.services.builds import probe_now, register_build
from jobs.services.hosts import local_host
from jobs.services.memory_watch import watch_memory
from jobs.services.watch import watch_runs
from servers.domain.chat import ChatOptions, build_request, image_data_uri
from servers.models import Instance, ServerProfile
from servers.services import instances, polls
from servers.services.keeping import forget_failures, restart_due
from servers.services.profiles import ProfileData, save_profile
from servers.services.runtime_watch import watch_running
from servers.services.settle import settle_instances
from tests.fakes import llama_flags
from tests.models import plain_model, tiny_models
from tests.waiting import wait_for

CLI = Actor.cli()
Observed = Instance.Observed


def instance_of(profile: ServerProfile) -> Instance:
    """The instance as the database has it now."""
    rows = Instance.objects.select_related("run__host", "profile__build__host", "first_failure")
    return rows.get(profile=profile)


class Stage:
    """One build, the fake llama-server unless another program is given, and profiles of it."""

    def __init__(self, folder: Path, program: Path | None = None, **flags: Any) -> None:
        self.folder = folder
        self.program = program or llama_flags.install(folder, **flags)
        self.build = register_build(CLI, local_host(), "Build", str(self.program))
        self.probe()
        self.model = register_artifact(CLI, local_host(), str(plain_model(folder)))
        Job.objects.all().delete()

    def probe(self) -> None:
        """Ask the program what it can do."""
        probe_now(self.build)
        self.build.refresh_from_db()

    def flags(self, **flags: Any) -> None:
        """Change how the servers behave from now on."""
        llama_flags.set_flags(self.program, **flags)

    def with_heads(self) -> tuple[ModelArtifact, ModelArtifact]:
        """The model with MTP heads, and its projector."""
        text, projector = (
            register_artifact(CLI, local_host(), str(path)) for path in tiny_models(self.folder)
        )
        return text, projector

    def profile(self, name: str = "Tiny", **given: Any) -> ServerProfile:
        """A saved profile; `model`, `policy`, `settings`, `port`, ... as ProfileData takes them."""
        return save_profile(CLI, None, ProfileData(name, self.build, **{"model": self.model, **given}))

    def start(self, profile: ServerProfile, *states: str, **how: bool) -> Instance:
        """Ask for a start and make rounds until the server is in one of the states (ready)."""
        instances.request_start(CLI, profile, **how)
        return self.until(profile, *(states or (Observed.READY,)))

    def round(self) -> None:
        """What the agent's duties and the worker do once."""
        watch_runs()
        watch_memory()
        watch_running()
        for watch in polls._watches.values():
            watch.due = 0.0
        async_to_sync(polls.poll_instances)()
        settle_instances()
        restart_due()
        forget_failures()
        for job in Job.objects.filter(state=Job.State.QUEUED).order_by("pk"):
            jobs.execute(job.pk)

    def until(self, profile: ServerProfile, *states: str, seconds: float = 60) -> Instance:
        """Make rounds until the server is in one of the states; return it."""
        self.rounds(lambda: instance_of(profile).observed in states, f"to be {' or '.join(states)}", seconds)
        return instance_of(profile)

    def rounds(self, right: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Make rounds until something is so."""

        def look() -> bool:
            self.round()
            return right()

        wait_for(look, seconds, what)

    def skip_wait(self, profile: ServerProfile) -> None:
        """Let the wait before the next start be over."""
        past = timezone.now() - timedelta(seconds=1)
        Instance.objects.filter(profile=profile, observed=Observed.BACKOFF).update(retry_at=past)

    def ready_for(self, profile: ServerProfile, seconds: float) -> None:
        """Let the server have been ready for so long."""
        Instance.objects.filter(profile=profile).update(ready_at=timezone.now() - timedelta(seconds=seconds))

    def ask(
        self, profile: ServerProfile, text: str = "What is it?", image: bytes | None = None
    ) -> tuple[int, str]:
        """The status of the ready server's answer, and what it says."""
        endpoint = instances.ensure_ready(profile)
        request = build_request(
            (), text, [image_data_uri(image)] if image else (), ChatOptions(max_tokens=20)
        )
        answer = httpx.post(
            f"http://127.0.0.1:{endpoint.port}/v1/chat/completions",
            json={**request, "stream": False},
            headers={"Authorization": f"Bearer {endpoint.key}"},
            timeout=30,
        )
        if answer.status_code != 200:
            return answer.status_code, answer.text
        return 200, answer.json()["choices"][0]["message"]["content"]

    def close(self) -> None:
        """End what still runs."""
        for pk in Run.objects.filter(state__in=Run.ACTIVE).values_list("pk", flat=True):
            folders.kill(pk)
            folders.wait(pk, 30)
        polls._watches.clear()
