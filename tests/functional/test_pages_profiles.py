"""The profile form: choices of the build, the preview, errors at their fields, and saving."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from jobs.models import Build, ModelArtifact
from servers.models import Instance, ServerProfile
from tests.functional import pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def mainline() -> Build:
    return pages.build("mainline")


@pytest.fixture
def qwen() -> ModelArtifact:
    return pages.model()


def text_of(answer: Any) -> str:
    return answer.content.decode()


def note(text: str, key: str) -> str:
    """What the page says below a field."""
    found = re.search(rf'<div class="field-note" id="note-{key}"[^>]*>(.*?)</div>', text, re.DOTALL)
    assert found, f"no note for {key}"
    return found[1]


def test_without_a_build_and_a_model_the_page_says_what_to_do_first(alice: User, signed_in: Any) -> None:
    text = text_of(signed_in(alice).get(reverse("profile-new")))
    assert "To the builds" in text
    assert reverse("model-register") in text
    assert 'id="profile-form"' not in text


def test_a_new_form_passes_nothing_and_shows_the_defaults_of_the_build(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    answer = signed_in(bob).get(reverse("profile-new"))
    text = text_of(answer)
    assert answer.context["preview"].error_count == 0
    assert answer.context["preview"].passed_count == 0
    assert "inherited" in note(text, "ctx_size")
    assert "--ctx-size</code>" in text
    assert 'placeholder="2048"' in text
    assert "--model" in answer.context["preview"].shell


def test_the_choices_are_those_of_the_build(bob: User, signed_in: Any, qwen: ModelArtifact) -> None:
    mainline, fork = pages.build("mainline"), pages.build("fork", pages.FORK)
    client = signed_in(bob)
    for build, has_turbo in ((mainline, False), (fork, True)):
        data = pages.form(build, qwen, shown_build="")
        text = text_of(client.post(reverse("profile-preview"), data))
        assert ('<option value="turbo4"' in text) == has_turbo


def test_the_preview_leaves_the_fields_alone_while_the_build_stays(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    text = text_of(
        signed_in(bob).post(reverse("profile-preview"), pages.form(mainline, qwen, ctx_size="32768"))
    )
    assert 'id="profile-settings"' not in text
    assert "--ctx-size 32768" in note(text, "ctx_size")
    assert "inherited" in note(text, "parallel")
    parts = ("note-", "count-", "profile-side", "profile-save", "profile-change")
    assert text.count('hx-swap-oob="true"') == sum(text.count(f'id="{part}') for part in parts)


def test_another_build_keeps_what_was_typed_and_says_what_it_lacks(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    fork = pages.build("fork", pages.FORK)
    data = pages.form(mainline, qwen, shown_build=fork.pk, ctx_size="32768", cache_type_k="turbo4")
    text = text_of(signed_in(bob).post(reverse("profile-preview"), data))
    assert 'name="ctx_size" value="32768"' in text
    assert '<option value="turbo4" selected>' in text
    assert "does not know turbo4" in note(text, "cache_type_k")
    assert "1 error to mend" in text


def test_speculation_is_written_in_the_dialect_of_the_build(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    fork = pages.build("fork", pages.FORK)
    client = signed_in(bob)
    for build, word in ((mainline, "draft-mtp"), (fork, "mtp")):
        data = pages.form(build, qwen, speculation="mtp", parallel="1", draft_max="3")
        text = text_of(client.post(reverse("profile-preview"), data))
        assert f"--spec-type {word}<" in note(text, "speculation")


def test_a_finding_about_the_model_stands_at_the_field_that_mends_it(
    bob: User, signed_in: Any, mainline: Build
) -> None:
    facts = {"architecture": "llama", "context_length": 8192, "mtp_heads": 0}
    plain = pages.model("plain", mtp_heads=0, facts=facts)
    data = pages.form(mainline, plain, speculation="mtp", ctx_size="16384", parallel="1")
    text = text_of(signed_in(bob).post(reverse("profile-preview"), data))
    assert "holds no MTP heads" in note(text, "speculation")
    assert "trained for 8192" in note(text, "ctx_size")


@pytest.mark.parametrize(
    ("values", "key", "words"),
    [
        ({"extra_args": "--no-such-flag"}, "extra_args", "has no flag"),
        ({"extra_args": '--alias "open'}, "extra_args", "quotation mark"),
        ({"port": "80"}, "port", "1024"),
        ({"ctx_size": "many"}, "ctx_size", "many"),
        ({"name": ""}, "name", "required"),
    ],
)
def test_a_wrong_value_is_not_saved_and_its_field_says_why(
    values: dict[str, str],
    key: str,
    words: str,
    bob: User,
    signed_in: Any,
    mainline: Build,
    qwen: ModelArtifact,
) -> None:
    answer = signed_in(bob).post(reverse("profile-new"), pages.form(mainline, qwen, **values))
    text = text_of(answer)
    assert answer.status_code == 200
    assert words in note(text, key)
    assert answer.context["preview"].error_count == 1
    assert not ServerProfile.objects.exists()


def test_saving_stores_the_touched_meanings_only(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    projector = pages.projector()
    data = pages.form(mainline, qwen, mmproj=projector.pk, ctx_size="0", cache_type_k="q8_0", threads="")
    answer = signed_in(bob).post(reverse("profile-new"), data)
    profile = ServerProfile.objects.get()
    assert answer["Location"] == reverse("server-detail", args=[profile.pk])
    assert profile.settings == {"ctx_size": 0, "cache_type_k": "q8_0"}
    assert (profile.mmproj, profile.port, profile.revision) == (projector, None, 1)
    assert profile.instance.observed == Instance.Observed.STOPPED


def test_a_second_profile_of_the_same_name_is_refused_at_the_name(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    pages.profile("Qwen")
    answer = signed_in(bob).post(reverse("profile-new"), pages.form(mainline, qwen))
    assert "already a profile with this name" in note(text_of(answer), "name")


def test_the_form_of_a_saved_profile_shows_its_values(bob: User, signed_in: Any) -> None:
    profile = pages.profile(settings={"ctx_size": 0, "flash_attn": "on"}, port=8090)
    text = text_of(signed_in(bob).get(reverse("profile-edit", args=[profile.pk])))
    assert 'name="ctx_size" value="0"' in text
    assert 'name="port" value="8090"' in text
    assert '<option value="on" selected>' in text
    assert "revision 1" in text


def test_a_change_of_a_running_server_takes_effect_at_the_next_start(bob: User, signed_in: Any) -> None:
    profile = pages.profile(observed=Instance.Observed.READY)
    client, address = signed_in(bob), reverse("profile-edit", args=[profile.pk])
    assert "A change takes effect at the next start" in text_of(client.get(address))
    data = pages.form(profile.build, profile.model, parallel="2")
    page = text_of(client.post(address, data, follow=True))
    profile.refresh_from_db()
    assert (profile.revision, profile.settings) == (2, {"parallel": 2})
    assert "runs with revision 1 of its profile, which is at revision 2" in page


def test_a_duplicate_is_a_form_with_the_same_values_and_another_name(bob: User, signed_in: Any) -> None:
    profile = pages.profile("Daily", settings={"ctx_size": 4096}, port=8090)
    answer = signed_in(bob).get(reverse("profile-duplicate", args=[profile.pk]))
    text = text_of(answer)
    assert 'name="name" value="Daily copy"' in text
    assert 'name="ctx_size" value="4096"' in text
    assert 'value="8090"' not in text
    assert f'action="{reverse("profile-new")}"' in text
    assert ServerProfile.objects.count() == 1


def test_a_profile_is_deleted_once_its_server_is_stopped(bob: User, signed_in: Any) -> None:
    profile = pages.profile(observed=Instance.Observed.READY)
    client, address = signed_in(bob), reverse("profile-delete", args=[profile.pk])
    assert "Stop the server first" in text_of(client.post(address, follow=True))
    Instance.objects.update(observed=Instance.Observed.STOPPED)
    assert client.post(address)["Location"] == reverse("profiles")
    assert not ServerProfile.objects.exists()


def test_a_viewer_sees_the_list_without_actions(charlie: User, signed_in: Any) -> None:
    profile = pages.profile("Daily")
    text = text_of(signed_in(charlie).get(reverse("profiles")))
    assert "Daily" in text
    assert reverse("profile-duplicate", args=[profile.pk]) not in text
    assert reverse("profile-new") not in text


def test_a_new_form_starts_with_the_newest_build_that_is_ready(
    bob: User, signed_in: Any, qwen: ModelArtifact
) -> None:
    pages.build("a first one")
    newest = pages.build("b newest")
    pages.build("a broken one", state=Build.State.FAILED)
    form = signed_in(bob).get(reverse("profile-new")).context["preview"].form
    assert form["build"].value() == newest.pk


def test_mtp_is_offered_where_model_and_build_can_and_never_passed_by_itself(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    client = signed_in(bob)
    offer = 'data-use="id_speculation" data-value="mtp"'
    new = client.get(reverse("profile-new"))
    assert offer in note(text_of(new), "speculation")
    assert "--spec-type" not in new.context["preview"].shell
    plain = pages.model("plain", mtp_heads=0)
    old = pages.build("old", pages.FORK)
    Build.objects.filter(pk=old.pk).update(capabilities={**old.capabilities, "mtp_value": None})
    for build, model, values, offered in (
        (mainline, qwen, {}, True),
        (mainline, qwen, {"speculation": "mtp"}, False),
        (mainline, qwen, {"speculation": "none"}, False),
        (mainline, plain, {}, False),
        (old, qwen, {}, False),
    ):
        data = pages.form(build, model, **values)
        text = text_of(client.post(reverse("profile-preview"), data))
        assert (offer in note(text, "speculation")) == offered, (build.name, model.name, values)
