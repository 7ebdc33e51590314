"""What the pages of the jobs app show, read from the rows: for first renders and for live updates."""

from typing import Any

from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from jobs.models import Build, ModelArtifact
from jobs.registry import Subject
from jobs.services.builds import capabilities_of
from jobs.views.work import waits_by_subject

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


def build_subjects(keys: set[str]) -> dict[str, Subject]:
    """Find the builds that jobs are about."""
    rows = Build.objects.filter(pk__in=[key for key in keys if key.isdigit()]).values_list("pk", "name")
    return {str(pk): Subject(name, reverse("build-detail", args=[pk])) for pk, name in rows}


def build_row(build: Build) -> dict[str, Any]:
    """One build with its capabilities and the profiles that use it."""
    return {
        "build": build,
        "capabilities": capabilities_of(build) if build.capabilities else None,
        "profiles": list(build.profiles.all()),
    }


def build_context(build: Build) -> dict[str, Any]:
    """One build's page."""
    return {**build_row(build), "wait": waits_by_subject("build").get(str(build.pk))}


def model_row(artifact: ModelArtifact) -> dict[str, Any]:
    """One artifact with the profiles that use it."""
    return {
        "artifact": artifact,
        "profiles": [*artifact.profiles.all(), *artifact.vision_profiles.all()],
    }


def model_context(artifact: ModelArtifact) -> dict[str, Any]:
    """One artifact's page."""
    header = [(label, artifact.header.get(key)) for key, label in HEADER.items() if artifact.header]
    return {**model_row(artifact), "header": header}
