"""A look at what a start needs: real files, a real bound port, published cards."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.utils import timezone

from controlpanel.llamacpp.problems import errors
from jobs.adapters.ports import can_bind
from jobs.adapters.probe import fingerprint
from jobs.domain.gpu import NO_DRIVER, SILENT, GpuProcess, Gpus, GpuSample, Sample
from jobs.models import Build, Job, Run
from jobs.services import gpus, jobs
from jobs.services.audit import Actor
from servers.domain.preflight import Check
from servers.models import Instance, ServerProfile
from servers.services import instances, preflight
from servers.services.profiles import render_profile
from tests.cards import publish_cards
from tests.functional import pages
from tests.models import tiny_models

pytestmark = pytest.mark.django_db
CLI = Actor.cli()
ORDER = ["files", "build", "port", "memory", "others", "descriptors", "disk"]
CARD = GpuSample(0, name="RTX 3090", memory_total_mib=24576, memory_used_mib=1024)


@pytest.fixture
def profile(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ServerProfile:
    """A profile of a build and a model that are really there; it sees the published cards."""
    monkeypatch.setattr(gpus, "_shown", None)
    monkeypatch.setattr(gpus, "_next_try", 0.0)
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    build = pages.build(path=str(program), fingerprint=fingerprint(program))
    text, projector = map(pages.model_of, tiny_models(tmp_path))
    settings = {"ctx_size": 1024, "parallel": 1, "gpu_layers": "all"}
    return pages.profile(build=build, model=text, mmproj=projector, settings=settings)


def look(profile: ServerProfile, taken: set[int] | None = None) -> dict[str, Check]:
    """All checks by their keys, of the rows as they are now; they are in order, and can be stored."""
    rows = Instance.objects.select_related("profile__build__host", "profile__model", "profile__mmproj")
    seen = preflight.look(rows.get(profile=profile), taken or set())
    checks = seen.checks
    assert isinstance(seen.port, int) is (checks[ORDER.index("port")].level == "ok")
    assert [check.key for check in checks] == ORDER
    stored = [check.to_json() for check in checks]
    assert [Check.from_json(one).to_json() for one in stored] == stored
    return {check.key: check for check in checks}


def change(profile: ServerProfile, **fields: Any) -> None:
    ServerProfile.objects.filter(pk=profile.pk).update(**fields)


def test_a_start_that_nothing_stands_against_is_told_what_was_seen(profile: ServerProfile) -> None:
    publish_cards(CARD)
    begun = time.monotonic()
    checks = look(profile)
    assert time.monotonic() - begun < 2
    # How many files may be open is up to who runs the tests.
    assert {key for key, check in checks.items() if check.level != "ok"} <= {"descriptors"}
    assert "files: 2" in str(checks["files"].message)
    for words in ("GPU 0 · RTX 3090", "23,552 MiB free", "Main memory"):
        assert words in str(checks["memory"].message)


def test_files_that_went_or_changed_after_they_were_registered(profile: ServerProfile) -> None:
    model, mmproj = profile.model, profile.mmproj
    assert mmproj is not None
    path = Path(mmproj.path)
    content = path.read_bytes()
    path.unlink()  # a link to a file that other tests use
    gone = look(profile)["files"]
    assert gone.level == "error" and str(path) in str(gone.message)

    path.write_bytes(content + b"more")
    replaced = look(profile)["files"]
    assert (replaced.level, replaced.holds) == ("warning", True) and mmproj.name in str(replaced.message)
    path.write_bytes(content[:-1])
    assert look(profile)["files"].level == "error"
    path.write_bytes(content)
    assert look(profile)["files"].level == "ok"

    # Of three parts only one is there.
    part = path.with_name("big-00001-of-00003.gguf")
    part.write_bytes(b"GGUF")
    type(model).objects.filter(pk=model.pk).update(path=str(part))
    checks = look(profile)
    assert "2 of 3 files" in str(checks["files"].message)
    assert checks["memory"].level == "warning" and not checks["memory"].holds

    program = Path(profile.build.path)
    program.write_text("#!/bin/sh\n# another one\n")
    program.chmod(0o644)
    Build.objects.filter(pk=profile.build.pk).update(state=Build.State.PROBING)
    checks = look(profile)
    assert "may not be executed" in str(checks["files"].message)
    late = checks["build"]
    assert (late.level, late.holds) == ("warning", True) and "last probe" in str(late.message)
    assert "changed after it was probed" in str(late.message)
    Build.objects.filter(pk=profile.build.pk).update(state=Build.State.READY)
    changed = look(profile)["build"]
    assert (changed.level, changed.holds) == ("warning", True)
    program.unlink()
    assert (look(profile)["build"].level, look(profile)["build"].holds) == ("warning", False)


def test_a_disk_that_hangs_keeps_nobody_waiting(
    profile: ServerProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(preflight, "PATIENCE", 0.2)
    monkeypatch.setattr(preflight, "shard_paths", lambda path: ended.wait(20))
    monkeypatch.setattr(preflight, "headers_of", lambda artifact: ended.wait(20))
    publish_cards(CARD)
    begun = time.monotonic()
    checks = look(profile)
    ended.set()
    assert time.monotonic() - begun < 2
    for key in ("files", "memory"):
        assert (checks[key].level, checks[key].holds) == ("warning", False)
        assert "does not answer" in str(checks[key].message)
    assert checks["build"].level == "ok"


def test_a_port_is_waited_for_and_then_its_owner_is_named(
    profile: ServerProfile, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        change(profile, port=port)
        monkeypatch.setattr(preflight, "PORT_PATIENCE", 0.3)
        refused = look(profile)["port"]
        assert refused.level == "error" and f"(pid {os.getpid()})" in str(refused.message)
        change(profile, port=None)
        settings.PANEL_SERVER_PORTS = [port]
        assert look(profile)["port"].level == "error"

        change(profile, port=port)
        monkeypatch.setattr(preflight, "PORT_PATIENCE", 3.0)
        threading.Timer(0.5, taken.close).start()
        assert look(profile)["port"].level == "ok"
    assert can_bind(port)
    change(profile, port=None)
    instance = Instance.objects.get(profile=profile)
    assert preflight.look(instance).port == port
    assert look(profile, {port})["port"].level == "error"
    pages.profile("Other", Instance.Observed.READY, {"port": port})
    assert look(profile)["port"].level == "error"


def test_a_start_takes_the_very_port_that_was_judged(
    profile: ServerProfile, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.PANEL_SERVER_PORTS = range(18900, 18904)
    asked: list[int] = []

    def free_once(port: int) -> bool:
        asked.append(port)
        return asked.count(port) == 1

    monkeypatch.setattr(preflight, "can_bind", free_once)
    publish_cards(CARD)
    instances.request_start(CLI, profile, anyway=True)
    jobs.execute(Job.objects.get(kind=instances.LAUNCH).pk)
    instance = Instance.objects.select_related("run").get(profile=profile)
    told = next(check for check in instance.checks if check["key"] == "port")
    assert instance.run is not None and "18900 is free" in str(Check.from_json(told).message)
    assert instance.run.argv[instance.run.argv.index("--port") + 1] == "18900"


def test_a_later_probe_that_failed_keeps_no_profile_from_being_started(profile: ServerProfile) -> None:
    Build.objects.filter(pk=profile.build.pk).update(state=Build.State.FAILED)
    profile.build.refresh_from_db()
    found = render_profile(profile).problems
    assert [(one.level, one.field) for one in found if "an earlier one found" in str(one.message)] == [
        ("warning", "build")
    ]
    assert not errors(found)
    profile.build.capabilities = {}
    assert any("not been probed" in str(one.message) for one in errors(render_profile(profile).problems))


def test_cards_are_judged_by_what_is_free_now_and_by_who_is_there(profile: ServerProfile) -> None:
    gemma = pages.profile("Gemma", Instance.Observed.READY)
    pages.run_of(gemma, pid=4001)
    pages.profile("Waiting", Instance.Observed.LOADING)
    ended = timezone.now()
    pages.run_of(profile, pid=4002, state=Run.State.EXITED, ended_at=ended)
    Instance.objects.filter(profile=profile).update(run=None)
    pages.run_of(pages.profile("Gone"), pid=4004, state=Run.State.EXITED, ended_at=ended)
    held = (
        GpuProcess(4001, "llama-server", 9000, ours=True),
        GpuProcess(4002, "llama-server", 14000, ours=False),
        GpuProcess(4003, "python3", 512, ours=False),
        GpuProcess(4004, "llama-server", 900, ours=True),
    )
    second = replace(CARD, index=1, name="A2", memory_used_mib=24000, processes=(GpuProcess(5, "far", 9),))
    change(profile, environment={"CUDA_VISIBLE_DEVICES": "0"})
    full = replace(CARD, memory_used_mib=24500, processes=held)
    publish_cards(full, second)
    checks = look(profile)
    assert checks["memory"].level == "ok", "what the server itself held a moment ago is free for it"
    others = checks["others"]
    assert (others.level, others.holds) == ("warning", False)
    for words in ("Gemma (9,000 MiB)", "python3, pid 4003 (512 MiB)", "Waiting"):
        assert words in str(others.message)
    for words in ("4002", "4004", "far"):
        assert words not in str(others.message)
    free = 24576 - 24500 + 14000 + 900
    assert f"{free:,} MiB free" in str(checks["memory"].message), "nor does another server that has ended"

    Run.objects.filter(pid__in=(4002, 4004)).update(ended_at=ended - timedelta(minutes=1))
    missing = look(profile)["memory"]
    assert (missing.level, missing.holds) == ("warning", True)
    assert "76 MiB are free" in str(missing.message) and "are missing" in str(missing.message)
    publish_cards(full, second, age=60)
    assert not look(profile)["memory"].holds, "numbers of a minute ago are no reason"
    publish_cards(full, second)
    change(profile, settings={"ctx_size": 1024})
    adapting = look(profile)["memory"]
    assert adapting.level == "warning" and not adapting.holds

    change(profile, environment={}, settings={"split_mode": "none", "main_gpu": 1, "gpu_layers": "all"})
    checks = look(profile)
    assert "GPU 1 · A2" in str(checks["memory"].message) and "far" in str(checks["others"].message)

    change(profile, extra_args="--lora x.gguf")
    checks = look(profile)
    assert checks["memory"].level == "warning" and "--lora" in str(checks["memory"].message)


def test_without_numbers_of_the_cards_nothing_is_claimed(profile: ServerProfile, settings: Any) -> None:
    checks = look(profile)
    for key in ("memory", "others"):
        assert (checks[key].level, checks[key].holds) == ("warning", False)
    host = settings.PANEL_HOST
    gpus.publish_sample(host, Sample(time.time(), Gpus(problem=NO_DRIVER)))
    checks = look(profile)
    assert "no NVIDIA driver" in str(checks["memory"].message), "the build found cards: whose, nobody knows"
    assert not checks["memory"].holds and checks["others"].level == "ok"
    gpus.publish_sample(host, Sample(time.time(), Gpus(problem=SILENT)))
    checks = look(profile)
    for key in ("memory", "others"):
        assert checks[key].level == "warning" and "does not answer" in str(checks[key].message)
    Build.objects.filter(pk=profile.build.pk).update(inputs={"backend": "cpu"})
    change(profile, policy={"memory_mib": 64}, settings={"ctx_size": 262144, "load_mode": "none"})
    checks = look(profile)
    assert checks["others"].level == "ok"
    limited = checks["memory"]
    assert limited.holds and "memory limit" in str(limited.message)
