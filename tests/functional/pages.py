"""Rows that pages show: two builds probed from recorded texts, models, profiles and their instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from controlpanel.llamacpp.capabilities import capabilities_from
from jobs.models import Build, ModelArtifact, Run
from jobs.services.hosts import local_host
from servers.models import Instance, ServerProfile

HELP = Path(__file__).parent.parent / "data" / "help"
NEW, FORK = "upstream-b11434.txt", "help-fork.txt"


def build(name: str = "mainline", help_file: str = NEW, **fields: Any) -> Build:
    """A ready build with the capabilities of a recorded help text."""
    capabilities = capabilities_from((HELP / help_file).read_text(), "version: 9120 (a1b2c3d4)")
    values = {
        "state": Build.State.READY,
        "path": f"/opt/{name}/llama-server",
        "version": capabilities.version,
        "commit": capabilities.commit,
        "capabilities": capabilities.to_dict(),
    }
    return Build.objects.create(host=local_host(), name=name, **{**values, **fields})


def model(name: str = "Qwen-MTP", **fields: Any) -> ModelArtifact:
    """A model with MTP heads and a native context of 262144 tokens."""
    facts = {"architecture": "qwen35", "context_length": 262144, "mtp_heads": 1, "embedding_length": 2048}
    values = {
        "path": f"/data/{name}.gguf",
        "architecture": "qwen35",
        "quant": "Q4_K_M",
        "file_size": 21_474_836_480,
        "context_length": 262144,
        "mtp_heads": 1,
        "facts": facts,
        "header": {"name": "Qwen", "parameters": 35_100_000_000},
    }
    return ModelArtifact.objects.create(host=local_host(), name=name, **{**values, **fields})


def projector(name: str = "mmproj-Qwen") -> ModelArtifact:
    """A projector whose vectors fit the model."""
    facts = {"architecture": "clip", "projector": "qwen3vl_merger", "projector_width": 2048}
    kind = ModelArtifact.Kind.MMPROJ
    return model(name, kind=kind, projector="qwen3vl_merger", mtp_heads=0, facts=facts, header={})


def profile(
    name: str = "Qwen", observed: str = Instance.Observed.STOPPED, instance: Any = None, **fields: Any
) -> ServerProfile:
    """A profile with its instance in the given state; `instance` holds more columns of that."""
    fields.setdefault("build", Build.objects.first() or build())
    fields.setdefault("model", ModelArtifact.objects.filter(kind="model").first() or model())
    row = ServerProfile.objects.create(name=name, slug=name.lower().replace(" ", "-"), **fields)
    Instance.objects.create(profile=row, observed=observed, **{"revision": row.revision, **(instance or {})})
    return row


def run_of(row: ServerProfile, **fields: Any) -> Run:
    """A run of the profile's instance, which it becomes the current one of."""
    values = {"host": row.build.host, "kind": "server", "state": Run.State.RUNNING}
    subject = {"subject_kind": "instance", "subject_id": str(row.instance.pk)}
    run = Run.objects.create(**{**values, **subject, **fields})
    Instance.objects.filter(pk=row.instance.pk).update(run=run)
    return run


def form(row_build: Build, row_model: ModelArtifact, **values: Any) -> dict[str, Any]:
    """What the browser sends for a profile with these fields touched."""
    fixed = {"name": "Qwen", "build": row_build.pk, "model": row_model.pk, "shown_build": row_build.pk}
    return {**fixed, **values}
