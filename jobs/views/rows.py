"""What the pages of the jobs app show, read from the rows: for first renders and for live updates."""

from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from jobs.models import Build, Host, Job, ModelArtifact
from jobs.services.builds import capabilities_of

WAITS_AFTER = timedelta(seconds=3)  # a queued job that nobody took within this time waits for the queue
UNSEEN_AFTER = timedelta(seconds=15)  # three heartbeats
HEADER = {
    "name": _("Name in the file"),
    "parameters": _("Parameters"),
    "block_count": _("Layers"),
    "embedding_length": _("Embedding length"),
    "head_count": _("Attention heads"),
    "head_count_kv": _("KV heads"),
    "key_length": _("Key length"),
    "value_length": _("Value length"),
    "vocabulary": _("Vocabulary"),
    "tensor_count": _("Tensors"),
    "shards": _("Parts"),
}


def waiting_jobs() -> QuerySet[Job]:
    """Return the jobs that have been queued for so long that the queue or the worker must be away or busy."""
    return Job.objects.filter(state=Job.State.QUEUED, created_at__lt=timezone.now() - WAITS_AFTER)


def is_waiting(subject_kind: str, subject_id: object) -> bool:
    """True when the newest job of a row waits for the queue."""
    newest = Job.objects.filter(subject_kind=subject_kind, subject_id=str(subject_id)).first()
    return (
        newest is not None
        and newest.state == Job.State.QUEUED
        and newest.created_at < timezone.now() - WAITS_AFTER
    )


def silent_hosts() -> list[Host]:
    """Return the hosts whose agent has not been seen for some heartbeats."""
    limit = timezone.now() - UNSEEN_AFTER
    return [host for host in Host.objects.all() if host.agent_seen_at is None or host.agent_seen_at < limit]


def strip_context() -> dict[str, Any]:
    """What the strip on top of each page says."""
    return {"waiting": waiting_jobs().count(), "silent": silent_hosts()}


def build_row(build: Build) -> dict[str, Any]:
    """One build with its capabilities and the profiles that use it."""
    return {
        "build": build,
        "capabilities": capabilities_of(build) if build.capabilities else None,
        "profiles": list(build.profiles.all()),
    }


def builds_context() -> dict[str, Any]:
    """All builds."""
    rows = Build.objects.select_related("host").prefetch_related("profiles")
    return {"rows": [build_row(build) for build in rows]}


def build_context(build: Build) -> dict[str, Any]:
    """One build's page."""
    return {**build_row(build), "waits": is_waiting("build", build.pk)}


def models_context() -> dict[str, Any]:
    """All model artifacts."""
    rows = ModelArtifact.objects.select_related("host").prefetch_related("profiles", "vision_profiles")
    return {"rows": [model_row(artifact) for artifact in rows]}


def model_row(artifact: ModelArtifact) -> dict[str, Any]:
    """One artifact with the profiles that use it."""
    return {
        "artifact": artifact,
        "profiles": [*artifact.profiles.all(), *artifact.vision_profiles.all()],
        "header": [(label, artifact.header.get(key)) for key, label in HEADER.items() if artifact.header],
    }
