"""The group of the profile form that keeps a server running, and what a change of it means."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from controlpanel.lib.errors import Refused
from jobs.models import AuditEntry, Build, ModelArtifact, Run
from jobs.services.audit import Actor
from jobs.views.audit import changes_of
from servers.domain.policy_words import WORDS
from servers.models import Instance, ServerProfile
from servers.services.estimates import prepare
from servers.services.exports import export_profile
from servers.services.fit import fit_of
from servers.services.profiles import ProfileData, data_of, save_profile
from servers.services.revisions import changes, revisions_of
from tests.functional import pages
from tests.functional.test_pages_profiles import note, text_of
from tests.functional.test_profile_form_fields import card, count, plain
from tests.models import tiny_models

pytestmark = pytest.mark.django_db
CLI = Actor.cli()


@pytest.fixture
def mainline() -> Build:
    return pages.build("mainline")


@pytest.fixture
def qwen() -> ModelArtifact:
    return pages.model()


def test_the_group_begins_closed_with_defaults_units_and_help(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    text = text_of(signed_in(bob).get(reverse("profile-new")))
    group = card(text, "policy")
    assert not group.split(">")[0].endswith(" open") and count(text, "policy") == ""
    for name, words in WORDS.items():
        assert f'name="policy_{name}"' in group and words.help in unescape(group)
        assert not note(text, f"policy_{name}").strip()
    assert 'placeholder="300"' in group and 'placeholder="no limit"' in group and "minutes</span>" in group
    assert "default (on failure)" in group and "default (no)" in group


def test_what_is_typed_is_counted_told_and_stored_without_defaults(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    client = signed_in(bob)
    wrong = {
        "policy_restart": "perhaps",
        "policy_limit": "0",
        "policy_hang_s": "x" * 90,
        "policy_order": "1.5",
    }
    text = text_of(client.post(reverse("profile-new"), pages.form(mainline, qwen, **wrong)))
    assert card(text, "policy").split(">")[0].endswith(" open") and "4 errors 4 set" in count(text, "policy")
    assert "from 1 to 100, not 0" in note(text, "policy_limit")
    assert "not perhaps" in note(text, "policy_restart") and not ServerProfile.objects.exists()

    idle = {"policy_idle_min": "20", "sleep_idle": "60", "policy_restart": "never", "policy_hang_s": "0"}
    preview = text_of(client.post(reverse("profile-preview"), pages.form(mainline, qwen, **idle)))
    assert count(preview, "policy") == "3 warnings 3 set"
    assert "until somebody starts it" in note(preview, "policy_idle_min")
    assert "keeps the process" in note(preview, "policy_idle_min")
    assert "no effect" in plain(note(preview, "policy_hang_s"))
    assert 'data-use="id_policy_hang_s" data-value=""' in note(preview, "policy_hang_s")

    good = {
        "policy_restart": "always",
        "policy_limit": "3",
        "policy_idle_min": "20",
        "policy_on_demand": "yes",
    }
    client.post(reverse("profile-new"), pages.form(mainline, qwen, **good))
    profile = ServerProfile.objects.get()
    assert profile.policy == {"restart": "always", "idle_min": 20, "on_demand": True}
    again = text_of(client.get(reverse("profile-edit", args=[profile.pk])))
    assert '<option value="always" selected>' in card(again, "policy")
    assert '<option value="yes" selected>' in card(again, "policy") and count(again, "policy") == "3 set"


def test_a_memory_limit_below_the_estimate_is_told_at_its_field(
    bob: User, signed_in: Any, tmp_path: Path
) -> None:
    cpu, tiny = pages.build("cpu", devices=""), pages.model_of(tiny_models(tmp_path)[0])

    def said(**values: str) -> str:
        data = pages.form(cpu, tiny, policy_memory_mib="200", **values)
        return note(text_of(signed_in(bob).post(reverse("profile-preview"), data)), "policy_memory_mib")

    assert "it would be ended" in said(ctx_size="200000", parallel="1")
    small = {"ctx_size": "512", "parallel": "1", "ubatch": "32"}
    assert "once the prompt cache has filled" in said(**small)
    assert "memory limit of this profile" not in said(**small, cache_ram="0")

    def own(extra: str) -> int:
        found = fit_of(prepare(ProfileData("Tiny", cpu, tiny, settings={"ctx_size": 512}, extra_args=extra)))
        assert found.own is not None and found.own.most is not None
        return found.own.most

    assert own("--load-mode none") > own("--load-mode mmap+mlock") == own("")


def test_a_change_of_the_policy_alone_reaches_the_running_server_and_needs_no_restart(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    profile = pages.profile("Qwen", Instance.Observed.READY)
    pages.revision(profile)
    run = pages.run_of(profile)
    data = pages.form(mainline, qwen, policy_memory_mib="4096", policy_restart="always", based_on=1)
    review = text_of(signed_in(bob).post(reverse("profile-review", args=[profile.pk]), data))
    assert "This needs no restart" in review and 'id="save-restart"' not in review
    signed_in(bob).post(reverse("profile-edit", args=[profile.pk]), data)
    profile.refresh_from_db()
    assert profile.revision == 2 and Instance.objects.get().revision == 2
    assert Run.objects.get().memory_mib == 4096
    newest, first = revisions_of(profile)
    assert [(one.label, one.before, one.after) for one in changes(first, newest)] == [
        ("Restart", "on failure", "always"),
        ("Memory limit", "no limit", "4096 MiB"),
    ]
    entry = AuditEntry.objects.get(action="profile.change")
    told = {row["key"]: row["after"] for row in changes_of(entry)}
    assert told["policy.restart"] == "always"

    # With another change the server stays behind, but has the new limit at once.
    both = replace(data_of(profile), settings={"ctx_size": 4096}, policy={"memory_mib": 900})
    save_profile(CLI, profile, both)
    assert Instance.objects.get().revision == 2 and Run.objects.get().memory_mib == 900
    # What is behind does not catch up by a policy.
    save_profile(CLI, profile, replace(data_of(profile), policy={}))
    assert profile.revision == 4 and Instance.objects.get().revision == 2
    run.refresh_from_db()
    assert run.memory_mib is None


def test_a_policy_that_comes_from_elsewhere_is_checked_too(mainline: Build, qwen: ModelArtifact) -> None:
    profile = pages.profile("Qwen")
    for policy, field in (({"limit": "3"}, "policy_limit"), ({"evil": 1}, "policy_evil")):
        with pytest.raises(Refused) as refused:
            save_profile(CLI, profile, replace(data_of(profile), policy=policy))
        assert refused.value.field == field
    assert save_profile(CLI, profile, replace(data_of(profile), policy={"limit": 3})).revision == 1


def test_a_container_becomes_a_policy_and_the_unit_of_that_profile_the_same_again(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    client, address = signed_in(bob), reverse("profile-import")

    def imported(command: str) -> Any:
        sent = {"command": command, "build": mainline.pk, "then": "form"}
        return client.post(address, sent).context["preview"].data

    data = imported("docker run --restart unless-stopped -m 9g image -m /data/Qwen-MTP.gguf -c 4096")
    assert data.policy == {"restart": "always", "memory_mib": 9216}
    for policy in (data.policy, {}, {"limit": 7}):
        profile = save_profile(CLI, ServerProfile.objects.first(), replace(data, policy=policy))
        unit = export_profile(profile, "systemd")
        back = imported(unit.text)
        assert (back.policy, back.settings) == (policy, data.settings)
