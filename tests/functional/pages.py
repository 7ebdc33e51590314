"""Rows that pages show: builds, their configs and jobs, models, profiles and their instances."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from controlpanel.llamacpp.capabilities import capabilities_from
from jobs.domain.programs import Compiler, Gpu, Nvcc, Program, Toolchain
from jobs.models import (
    Build,
    BuildConfig,
    Download,
    Host,
    HubToken,
    Job,
    ModelArtifact,
    ModelFolder,
    Repository,
    Run,
)
from jobs.services.artifacts import read_fields
from jobs.services.building import MAKE
from jobs.services.downloads import LOAD
from jobs.services.hosts import local_host
from servers.models import Instance, ProfileRevision, ServerProfile
from servers.services.profiles import data_of, names_of, values_of
from tests.fakes.hub import Hub
from tests.models import plain_model, tiny_models

HELP = Path(__file__).parent.parent / "data" / "help"
DEVICES = """Available devices:
  CUDA0: NVIDIA GeForce RTX 3090 (24124 MiB, 23755 MiB free)
  CUDA1: NVIDIA GeForce RTX 3090 (24124 MiB, 23755 MiB free)
"""
NEW, FORK = "upstream-b11434.txt", "help-fork.txt"


def build(name: str = "mainline", help_file: str = NEW, **fields: Any) -> Build:
    """A ready build with the capabilities of a recorded help text."""
    text = (HELP / help_file).read_text()
    capabilities = capabilities_from(text, "version: 9120 (a1b2c3d4)", fields.pop("devices", DEVICES))
    values = {
        "state": Build.State.READY,
        "path": f"/opt/{name}/llama-server",
        "version": capabilities.version,
        "commit": capabilities.commit,
        "capabilities": capabilities.to_dict(),
    }
    return Build.objects.create(host=local_host(), name=name, **{**values, **fields})


COMMIT = "67f38aa53a1b2c3d4e5f60718293a4b5c6d7e8f9"
# A host with two cards, on which every backend but HIP can be built.
TOOLCHAIN = Toolchain(
    programs={
        "git": Program("/usr/bin/git", "2.43.0"),
        "cmake": Program("/usr/bin/cmake", "3.28.3"),
        "ninja": Program("/usr/bin/ninja", "1.11.1"),
        "glslc": Program("/usr/bin/glslc", "2023.8"),
    },
    compilers=(Compiler("/usr/bin/g++", "gcc", "13.2.0", 13),),
    nvccs=(Nvcc("/usr/local/cuda-12.4/bin/nvcc", "12.4", on_path=True),),
    driver="580.95.05",
    driver_cuda="13.0",
    gpus=(Gpu("NVIDIA GeForce RTX 3090", "86"), Gpu("NVIDIA GeForce RTX 3090", "86")),
    cores=16,
    memory_mib=64 * 1024,
    disk_free=500 * 1024**3,
    disk_total=1000 * 1024**3,
    glibc="2.39",
)


def looked_at(toolchain: Toolchain = TOOLCHAIN) -> Host:
    """This host as it is after the panel has looked at it."""
    row = local_host()
    row.toolchain, row.toolchain_at = toolchain.to_dict(), timezone.now()
    row.save()
    return row


def repository(name: str = "fork", **fields: Any) -> Repository:
    """A git address to build from."""
    fields.setdefault("url", f"https://github.com/example/{name}.git")
    return Repository.objects.create(name=name, **fields)


def config(name: str = "Fork", **fields: Any) -> BuildConfig:
    """A build config for CUDA."""
    values: dict[str, Any] = {"backend": "cuda", "architectures": ["86"], "targets": ["llama-server"]}
    if "repository" not in fields:
        fields["repository"] = Repository.objects.filter(name="fork").first() or repository()
    return BuildConfig.objects.create(host=local_host(), name=name, **{**values, **fields})


def made(of: BuildConfig, number: int = 1, job: dict[str, Any] | None = None, **fields: Any) -> Build:
    """A build of a config with its job, whose columns `job` holds; as long as nothing is said, it waits."""
    values = {"state": Build.State.QUEUED, "config": of, "inputs": of.inputs().to_dict()}
    row = Build.objects.create(host=of.host, name=f"{of.name} #{number}", **{**values, **fields})
    Job.objects.create(kind=MAKE, host=of.host, subject_kind="build", subject_id=str(row.pk), **(job or {}))
    return row


def build_run(row: Build, step: str, **fields: Any) -> Run:
    """The run of a step of a build, noted in the build's job."""
    subject = {"kind": "build", "subject_kind": "build", "subject_id": str(row.pk)}
    run = Run.objects.create(host=row.host, **{"state": Run.State.RUNNING, **subject, **fields})
    job = Job.objects.get(kind=MAKE, subject_id=str(row.pk))
    job.params = {**job.params, "runs": {**job.params.get("runs", {}), step: run.pk}}
    job.save()
    return run


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


def model_of(path: Path, **fields: Any) -> ModelArtifact:
    """A file that is there, with everything that its header says."""
    values = {"host": local_host(), "name": path.stem, "path": str(path), **read_fields(path)}
    return ModelArtifact.objects.create(**{**values, **fields})


HUB_REPO = "org/Tiny-MTP-GGUF"
HUB_PARTS = [f"BF16/Tiny-MTP-BF16-0000{number}-of-00002.gguf" for number in (1, 2)]


@contextmanager
def hub(folder: Path, patch: pytest.MonkeyPatch, settings: Any) -> Iterator[Hub]:
    """A hub with one repository of several choices, whose two hosts the panel may connect to."""
    cache.clear()
    text, mmproj = tiny_models(folder)
    with Hub() as server:
        patch.setenv("HF_ENDPOINT", server.endpoint)
        settings.PANEL_PRIVATE_HOSTS = server.private
        for name in ("Tiny-MTP-Q4_K_M.gguf", "Tiny-MTP-Q8_0.gguf", *HUB_PARTS):
            server.add(HUB_REPO, name, text)
        for name in ("mmproj-F16.gguf", "mmproj-F32.gguf"):
            server.add(HUB_REPO, name, mmproj)
        server.add(HUB_REPO, "mtp-Tiny-Q8_0.gguf", plain_model(folder))
        server.add(HUB_REPO, "README.md", b"# Tiny", lfs=False)
        yield server


SHA = "c0ffee" + "0" * 58


def download(name: str = "Qwen Q4_K_M", job: dict[str, Any] | None = None, **fields: Any) -> Download:
    """A download of two files; `job` holds columns of its job, without them it has none."""
    files = [
        {"path": "sub/model-Q4_K_M.gguf", "name": "sub/model-Q4_K_M.gguf", "size": 3 * 2**30, "sha256": SHA},
        {"path": "mmproj-F16.gguf", "name": "mmproj-F16.gguf", "size": 2**30, "sha256": None},
    ]
    values = {
        "repo": "org/model-GGUF",
        "revision": COMMIT,
        "folder": "/data/models/org/model-GGUF",
        "files": [{**file, "done": False} for file in files],
    }
    row = Download.objects.create(host=local_host(), name=name, **{**values, **fields})
    if job is not None:
        subject = {"subject_kind": "download", "subject_id": str(row.pk)}
        Job.objects.create(kind=LOAD, host=row.host, **subject, **job)
    return row


def loading(done: int, total: int, speed: float = 0.0, eta: float | None = None) -> dict[str, Any]:
    """The columns of a job that loads."""
    progress = {"done": done, "total": total, "text": "model-Q4_K_M.gguf", "speed": speed, "eta": eta}
    steps = [{"name": "download", "started_at": 1.0, "ended_at": None}]
    now = {"started_at": timezone.now(), "step": "download", "steps": steps}
    return {"state": Job.State.RUNNING, "progress": progress, **now}


def folder(path: str = "/data/more-models", **fields: Any) -> ModelFolder:
    """A folder that an admin allowed."""
    return ModelFolder.objects.create(host=local_host(), path=path, **fields)


def token(name: str = "my token", **fields: Any) -> HubToken:
    """A token for everybody, unless `user` says whose it is; its secret cannot be read."""
    return HubToken.objects.create(name=name, secret="sealed", **fields)


def profile(
    name: str = "Qwen", observed: str = Instance.Observed.STOPPED, instance: Any = None, **fields: Any
) -> ServerProfile:
    """A profile with its instance in the given state; `instance` holds more columns of that."""
    fields.setdefault("build", Build.objects.first() or build())
    fields.setdefault("model", ModelArtifact.objects.filter(kind="model").first() or model())
    row = ServerProfile.objects.create(name=name, slug=name.lower().replace(" ", "-"), **fields)
    Instance.objects.create(profile=row, observed=observed, **{"revision": row.revision, **(instance or {})})
    return row


def revision(row: ServerProfile, **fields: Any) -> ProfileRevision:
    """The revision at which a profile stands; `fields` hold other columns."""
    data = data_of(row)
    values = {"number": row.revision, "values": values_of(data), "names": names_of(data)}
    return ProfileRevision.objects.create(profile=row, **{**values, **fields})


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
