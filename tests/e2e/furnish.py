"""A panel with rows in all states, and the addresses of all its pages."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from controlpanel.llamacpp.rule_types import Change
from jobs.models import Alert, Host, Job, MetricsToken, Notice
from jobs.services.audit import Actor, record
from jobs.services.hosts import local_host
from servers.models import Conversation, Incident, Turn
from servers.services.profiles import data_of, values_of
from tests.functional import alerting, pages
from tests.functional.test_pages_builds import ended, stored, working

UNKNOWN = "/nothing/"
LONG = "Qwen3.5-35B-A3B-Instruct-2507-MTP-UD-Q4_K_XL-00001-of-00003"


def furnish(alice: User) -> dict[str, str]:
    """Rows in all states; returns the addresses of all pages by name."""
    Host.objects.filter(pk=local_host().pk).update(agent_seen_at=timezone.now() - timedelta(hours=1))
    mainline, fork = pages.build("mainline b11434"), pages.build("fork with MTP and TurboQuant", pages.FORK)
    broken = pages.build("broken", state="failed", error="libcudart.so.12 is missing. " * 8, capabilities={})
    qwen, mmproj = pages.model(LONG), pages.projector(f"mmproj-{LONG}")
    pages.model("half", complete=False, problems=[{"text": "1 part is missing.", "params": {}}])
    facts = {"mtp": False, "vision": True, "n_ctx": 262144, "slots": 4, "build": "b11434"}
    asked = {"speculation": "mtp", "ctx_size": 262144}
    daily = pages.profile(
        "Daily chat with vision and MTP",
        "ready",
        {"port": 18080, "facts": facts, "revision": 1},
        build=fork,
        model=qwen,
        mmproj=mmproj,
        settings=asked,
        revision=2,
    )
    pages.revision(daily, reason="Longer documents. " * 6, author=alice, kept_build=fork)
    before = {**values_of(data_of(daily)), "settings": {"cache_type_k": "turbo4"}}
    pages.revision(daily, number=1, values=before, author=alice)
    run = pages.run_of(daily, pid=4711, argv=["/opt/llama-server", "--model", f"/data/{LONG}.gguf"])
    steps = [{"key": key, "at": time.time()} for key in ("queued", "preflight", "spawn", "loading")]
    loading = pages.profile("Loads", "loading", {"steps": steps}, build=mainline, model=qwen)
    pages.profile("Failed", "failed", {"error": "CUDA error: out of memory\n" * 3}, build=fork, model=qwen)
    for number in range(3):
        pages.profile(f"Stopped {number}", build=mainline, model=qwen)
    record(
        Actor(alice, "web"), "profile.change", daily, {"settings": asked}, {"settings": {"ctx_size": 4096}}
    )
    now = timezone.now()
    jobs: dict[str, Any] = {"host": run.host, "actor": alice}
    subject = {"subject_kind": "instance", "subject_id": str(loading.instance.pk)}
    Job.objects.create(kind="server.launch", state="running", started_at=now, step="spawn", **subject, **jobs)
    Job.objects.create(kind="server.stop", **subject, **jobs)
    subject = {"subject_kind": "build", "subject_id": str(broken.pk)}
    error = {"error": broken.error, "started_at": now, "ended_at": now}
    Job.objects.create(kind="build.probe", state="failed", **subject, **error, **jobs)
    talk = Conversation.objects.create(user=alice, profile=daily, title="What is on this picture?")
    Turn.objects.create(conversation=talk, position=0, prompt="Hello", answer="Hello. " * 50, state="done")
    config = pages.config(
        "MTP and TurboQuant for two cards", ref="a-branch/with-a-long-name", fa_quants="all"
    )
    pages.looked_at()
    making = pages.made(config, 1, working("compile"), state="building", source_commit=pages.COMMIT)
    fell = pages.made(config, 2, ended("compile", "failed"), state="failed", source_commit=pages.COMMIT)
    fell.diagnosis = [stored(Change("host_compiler", "/usr/bin/g++-13"), pages.build_run(fell, "compile").pk)]
    fell.save()
    pages.folder("/data/a-folder-with-a-long-name/" + LONG)
    pages.token("my token on the hub " * 3)
    MetricsToken.objects.create(name="Prometheus of the team " * 2, digest="0" * 64, created_by=alice)
    noted: dict[str, Any] = {
        "profile": daily,
        "run": run,
        "server": daily.name,
        "revision": 2,
        "first_at": now,
        "last_at": now,
    }
    cause = stored(Change("ctx_size", 4096), run.pk)
    for kind, found_by in (("crash", cause), ("request", {})):
        Incident.objects.create(kind=kind, title=f"{LONG} ended", count=31, diagnosis=found_by, **noted)
    told = alerting.channel(kind="email", target=f"{'a' * 60}@example.com", name=LONG)
    rule = alerting.rule("gpu_hot", told, only=LONG, threshold=85)
    fires: dict[str, Any] = {"rule": rule, "kind": "gpu_hot", "title": "GPU hotter than 85 °C", "since": now}
    said = Alert.objects.create(**fires, subject="a", label=LONG, value="91 °C", state="firing")
    Alert.objects.create(**fires, subject="b", label=LONG, value="x" * 300, state="resolved", resolved_at=now)
    refused = {"state": "failed", "error": "mail.example says no. " * 9, "attempts": 9, "due_at": now}
    Notice.objects.create(alert=said, channel=told, kind="firing", **refused)
    source = {"repo": "org/" + LONG, "revision": pages.COMMIT, "path": f"{LONG}.gguf"}
    pages.model("from the hub " + LONG, source=source, sha256=[pages.SHA], verified_at=now)
    held = pages.download(LONG, state="failed", error="The file has changed at its source. " * 6)
    moving = pages.download(LONG, pages.loading(2**30, 2**32, 5e7, 61.0), state="loading", folder="/data/2")
    names: dict[str, list[Any]] = {
        **{name: [] for name in ("overview", "servers", "profiles", "models", "builds", "activity", "audit")},
        **{name: [] for name in ("gpus", "incidents", "host-readiness", "playground", "profile-new")},
        **{name: [] for name in ("model-register", "build-register", "profile-import")},
        **{name: [] for name in ("build-configs", "config-new", "toolchain", "repositories")},
        "metrics-access": [],
        **{name: [] for name in ("model-find", "downloads", "model-folders", "hub-tokens")},
        **{name: [daily.pk] for name in ("profile-revisions", "profile-export")},
        **{name: [] for name in ("account_change_password", "account_logout")},
        **{name: [] for name in ("alerts", "alert-rule-new", "alert-channel-new")},
        "alert-rule-edit": [rule.pk],
        "alert-channel-edit": [told.pk],
        "server-detail": [daily.pk],
        "server-metrics": [daily.pk],
        "profile-edit": [daily.pk],
        "model-detail": [qwen.pk],
        "build-detail": [fork.pk],
        "run-log": [run.pk],
        "playground-conversation": [talk.pk],
    }
    found = {name: reverse(name, args=args) for name, args in names.items()}
    return {
        **found,
        "a build at work": reverse("build-detail", args=[making.pk]),
        "a build that failed": reverse("build-detail", args=[fell.pk]),
        "a form with a change": f"{reverse('config-edit', args=[config.pk])}?change={fell.pk}",
        "a filter without a match": reverse("servers") + "?q=nothing+like+it",
        "a download under way": reverse("download-detail", args=[moving.pk]),
        "a download that failed": reverse("download-detail", args=[held.pk]),
        "a search of the hub": reverse("model-find") + "?q=tiny",
        "a repository": reverse("hub-repository", args=pages.HUB_REPO.split("/")),
        "a repository that is not there": reverse("hub-repository", args=["no", "body"]),
        "an address": reverse("model-address") + f"?url=https://10.0.0.1/{LONG}.gguf",
        "404": UNKNOWN,
    }
