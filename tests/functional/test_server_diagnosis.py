"""A server that fails says why, and its profile is mended with one click: launches of the real engine."""

from __future__ import annotations

import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from jobs.models import Job, Run
from jobs.services import jobs, runs
from jobs.services.artifacts import register_artifact
from jobs.services.audit import Actor
from jobs.services.builds import probe_now, register_build
from jobs.services.hosts import local_host
from servers.models import Instance, ServerProfile
from servers.services import instances
from servers.services.profiles import ProfileData, save_profile
from servers.services.settle import settle_instances
from tests.models import plain_model, tiny_models
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
CLI = Actor.cli()


def profile_of(model: Path, **given: Any) -> ServerProfile:
    """A profile of the bundled engine, saved past the rules that would have refused it."""
    build = register_build(CLI, local_host(), "Engine", str(Path(sys.prefix) / "bin" / "panel-llama-server"))
    probe_now(build)
    build.refresh_from_db()
    artifact = register_artifact(CLI, local_host(), str(model))
    Job.objects.all().delete()
    profile = save_profile(CLI, None, ProfileData("Tiny", build, artifact, settings={"ctx_size": 1024}))
    ServerProfile.objects.filter(pk=profile.pk).update(**given)
    profile.revisions.update(values={**profile.revisions.get().values, **given})
    profile.refresh_from_db()
    return profile


def failed(profile: ServerProfile) -> Instance:
    """Start the server, whatever preflight warns of, and see it fail."""
    instances.request_start(CLI, profile, anyway=True)
    jobs.execute(Job.objects.get(kind=instances.LAUNCH).pk)

    def over() -> bool:
        found = Instance.objects.select_related("run").get(profile=profile)
        if found.run is not None and found.run.state == Run.State.RUNNING:
            runs.observe(found.run)
        settle_instances()
        return Instance.objects.get(profile=profile).observed == Instance.Observed.FAILED

    wait_for(over, 60, "the server to have failed")
    return Instance.objects.select_related("run").get(profile=profile)


def text_of(answer: Any) -> str:
    return unescape(re.sub(r"\s+", " ", answer.content.decode()))


def test_a_model_that_became_unreadable_is_named_with_its_line(
    tmp_path: Path, charlie: User, signed_in: Any
) -> None:
    model = tiny_models(tmp_path)[0]
    profile = profile_of(model)
    data = model.read_bytes()
    model.unlink()
    model.write_bytes(b"<htm" + data[4:])
    instance = failed(profile)
    assert instance.run is not None
    cause, *_others = instance.run.diagnosis
    assert cause["evidence"] and "invalid magic" in cause["evidence"][0]["text"]
    text = text_of(signed_in(charlie).get(reverse("server-detail", args=[profile.pk])))
    assert f"{reverse('run-log', args=[instance.run.pk])}?at=" in text
    assert "Open the form with this change" not in text


def test_mtp_without_heads_is_mended_with_one_click(tmp_path: Path, bob: User, signed_in: Any) -> None:
    profile = profile_of(plain_model(tmp_path))
    # The file was replaced by one without heads after the profile had been saved.
    with_mtp = {"ctx_size": 1024, "speculation": "mtp"}
    profile.model.facts = {**profile.model.facts, "mtp_heads": None}
    profile.model.save()
    ServerProfile.objects.filter(pk=profile.pk).update(settings=with_mtp)
    profile.refresh_from_db()
    revision = profile.revisions.get()
    revision.values = {**revision.values, "settings": with_mtp}
    revision.save()
    instance = failed(profile)
    assert instance.run is not None
    client = signed_in(bob)
    text = text_of(client.get(reverse("server-detail", args=[profile.pk])))
    assert "Open the form with this change" in text
    address = f"{reverse('profile-edit', args=[profile.pk])}?change={instance.run.pk}&cause=0"
    answer = client.get(address)
    assert "<dt>Speculation</dt><dd><del>mtp</del>" in text_of(answer)
    assert answer.context["preview"].data.settings.get("speculation") in (None, "none")
    profile.refresh_from_db()
    assert profile.settings == with_mtp


def test_an_address_that_names_no_diagnosis_of_this_profile_changes_nothing(
    tmp_path: Path, bob: User, signed_in: Any
) -> None:
    profile = profile_of(plain_model(tmp_path))
    client, address = signed_in(bob), reverse("profile-edit", args=[profile.pk])
    for query in ("?change=none", "?change=none&cause=9", "?change=&cause=x", f"?change={'9' * 500}"):
        answer = client.get(address + query)
        assert answer.status_code == 200 and "diagnosis" not in text_of(answer)
