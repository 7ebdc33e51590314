"""Build configs of the small CMake project, for tests of what makes builds."""

from pathlib import Path
from typing import Any

from jobs.models import Build, BuildConfig, Job, Repository
from jobs.services import building, jobs
from jobs.services.audit import Actor
from jobs.services.hosts import local_host


def make_config(repository: Path | str, **fields: Any) -> BuildConfig:
    """A config that builds a folder (or an address) on this host for its processor."""
    local = isinstance(repository, Path)
    row, _made = Repository.objects.get_or_create(
        url=str(repository),
        defaults={
            "name": Path(str(repository)).name,
            "kind": Repository.Kind.LOCAL if local else Repository.Kind.GIT,
        },
    )
    defaults = {"name": "mini", "ref": "main", "targets": ["llama-server", "llama-bench"], "native": False}
    return BuildConfig.objects.create(host=local_host(), repository=row, **{**defaults, **fields})


def made(config: BuildConfig) -> Build:
    """Build what the config says in this process, and return the build as it ended."""
    return finished(building.start_build(Actor.cli(), config))


def finished(build: Build) -> Build:
    """Do the work of a queued build in this process."""
    jobs.execute(job_of(build).pk)
    build.refresh_from_db()
    return build


def job_of(build: Build) -> Job:
    """The job that makes a build."""
    job = building.newest_job(build)
    assert job is not None
    return job
