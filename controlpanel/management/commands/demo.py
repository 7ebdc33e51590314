"""manage.py demo: register the bundled engine and the small models, and start SmolLM2."""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlpanel.demo.smol import find_smollm2
from controlpanel.demo.tiny_model import make_all
from controlpanel.lib.errors import Refused
from jobs.models import Build, ModelArtifact
from jobs.services.artifacts import models_folder, register_artifact
from jobs.services.audit import Actor
from jobs.services.builds import register_build
from jobs.services.hosts import local_host
from servers.models import Instance, ServerProfile
from servers.services.instances import request_start
from servers.services.profiles import ProfileData, save_profile

ENGINE = "Bundled CPU engine"
ACTOR = Actor.cli()


class Command(BaseCommand):
    """Idempotent: what is there already stays as it is."""

    help = "Register the bundled engine and small models in a running panel, and start SmolLM2."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, saying what happens."""
        try:
            self._handle()
        except Refused as error:
            raise CommandError(str(error)) from error

    def _handle(self) -> None:
        build = bundled_build()
        tiny = make_all(models_folder())
        text = artifact(tiny.text, "Tiny MTP test model")
        projector = artifact(tiny.projector, "Tiny vision projector")
        wait_for(
            lambda: Build.objects.get(pk=build.pk).state != Build.State.PROBING, 60, "the probe of the engine"
        )
        build.refresh_from_db()
        if build.state != Build.State.READY:
            raise CommandError(f"The bundled engine cannot be used: {build.error}")
        profile(
            ProfileData(
                "Tiny MTP and vision",
                build,
                text,
                projector,
                settings={"ctx_size": 4096, "parallel": 1, "speculation": "mtp", "draft_max": 3},
            )
        )
        smol = find_smollm2()
        if smol is None:
            self.stderr.write("SmolLM2 is not installed here; only the tiny model was registered.")
            return
        kept = models_folder() / smol.name
        if not kept.exists():
            shutil.copyfile(smol, kept.with_suffix(".copying"))
            kept.with_suffix(".copying").rename(kept)
        talk = profile(
            ProfileData(
                "SmolLM2",
                build,
                artifact(kept, "SmolLM2 135M Instruct"),
                settings={"ctx_size": 4096, "parallel": 2},
            )
        )
        if talk.instance.observed in Instance.RESTING:
            request_start(ACTOR, talk)
        wait_for(lambda: settled(talk), 120, "SmolLM2 to be ready")
        instance = Instance.objects.get(profile=talk)
        if instance.observed != Instance.Observed.READY:
            raise CommandError(f"SmolLM2 did not start: {instance.error}")


def bundled_build() -> Build:
    """Return the bundled engine's build, registered when it is missing."""
    path = Path(sys.prefix) / "bin" / "panel-llama-server"
    return Build.objects.filter(bundled=True).first() or register_build(
        ACTOR, local_host(), ENGINE, str(path), bundled=True
    )


def artifact(path: Path, name: str) -> ModelArtifact:
    """Return the artifact of a file, registered when it is missing."""
    return ModelArtifact.objects.filter(path=str(path)).first() or register_artifact(
        ACTOR, local_host(), str(path), name
    )


def profile(data: ProfileData) -> ServerProfile:
    """Return the profile of this name, made when it is missing."""
    return ServerProfile.objects.filter(name=data.name).first() or save_profile(ACTOR, None, data)


def settled(row: ServerProfile) -> bool:
    """True once the server is ready or has failed."""
    return Instance.objects.filter(
        profile=row, observed__in=(*Instance.RESTING, Instance.Observed.READY)
    ).exists()


def wait_for(ready: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll until ready; CommandError names what did not come."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise CommandError(f"Waited {seconds:.0f} s for {what} in vain. Is the panel running?")
        time.sleep(0.2)
