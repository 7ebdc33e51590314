"""The profile form around its fields: variables, another build, templates, and how fast it answers."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import redis
from django.contrib.auth.models import User
from django.urls import reverse

from controlpanel.llamacpp.environment import KNOWN
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.profile_templates import TEMPLATES
from jobs.models import Build, ModelArtifact
from jobs.services import gpus
from servers.models import ServerProfile
from servers.services import estimates
from tests.cards import publish_cards
from tests.functional import pages
from tests.functional.test_fit_pages import CARD
from tests.functional.test_pages_profiles import note, text_of
from tests.functional.test_profile_form_fields import card, count, plain, without
from tests.unit.memory_headers import big_qwen

pytestmark = pytest.mark.django_db


@pytest.fixture
def mainline() -> Build:
    return pages.build("mainline")


@pytest.fixture
def qwen() -> ModelArtifact:
    return pages.model()


def change(text: str) -> str:
    """What the page says of another build; empty when nothing."""
    found = re.search(
        r'<div id="profile-change".*?>(.*?)</div>\s*(?=<div id|<div class="field-note|$)', text, re.S
    )
    assert found
    return found[1]


def test_an_admin_sets_variables_line_by_line(
    alice: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    client = signed_in(alice)
    lines = "CUDA_VISIBLE_DEVICES = GPU-8932f937\r\n\r\nGGML_CUDA_DISABLE_GRAPHS=1"
    data = pages.form(mainline, qwen, environment=lines)
    shown = client.post(reverse("profile-preview"), data)
    assert (
        "CUDA_VISIBLE_DEVICES=GPU-8932f937 GGML_CUDA_DISABLE_GRAPHS=1 /opt" in shown.context["preview"].shell
    )
    assert count(text_of(shown), "environment") == "2 set"
    client.post(reverse("profile-new"), data)
    profile = ServerProfile.objects.get()
    assert profile.environment == {
        "CUDA_VISIBLE_DEVICES": "GPU-8932f937",
        "GGML_CUDA_DISABLE_GRAPHS": "1",
    }
    text = text_of(client.get(reverse("profile-edit", args=[profile.pk])))
    assert "CUDA_VISIBLE_DEVICES=GPU-8932f937\nGGML_CUDA_DISABLE_GRAPHS=1</textarea>" in text


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("GGML_CUDA_NO_PINNED=1\njust words", "Line 2 has no ="),
        ("OMP_NUM_THREADS=1\n\nOMP_NUM_THREADS=2", "Line 3: OMP_NUM_THREADS is set in an earlier line"),
        ("LD_PRELOAD=/tmp/x.so", "LD_PRELOAD: this would change which programs"),
        ("=1", "is no name of a variable"),
    ],
)
def test_a_wrong_line_is_named_and_not_saved(
    lines: str, words: str, alice: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    answer = signed_in(alice).post(reverse("profile-new"), pages.form(mainline, qwen, environment=lines))
    assert words in plain(note(text_of(answer), "environment"))
    assert card(text_of(answer), "environment").split(">")[0].endswith(" open")
    assert not ServerProfile.objects.exists()


def test_variables_are_read_only_for_others_and_their_save_keeps_them(bob: User, signed_in: Any) -> None:
    profile = pages.profile("Qwen", environment={"TURBO_LAYER_ADAPTIVE": "1"})
    client, address = signed_in(bob), reverse("profile-edit", args=[profile.pk])
    text = text_of(client.get(address))
    area = re.search(r'<textarea name="environment".*?</textarea>', text, re.DOTALL)
    assert area
    assert "disabled" in area[0]
    assert "TURBO_LAYER_ADAPTIVE=1" in area[0]
    assert "Only an admin may change variables" in text
    assert "data-adds" not in text
    data = pages.form(
        profile.build, profile.model, profile=profile.pk, environment="OMP_NUM_THREADS=1", seed="7"
    )
    shown = client.post(reverse("profile-preview"), data)
    assert shown.context["preview"].data.environment == {"TURBO_LAYER_ADAPTIVE": "1"}
    client.post(address, data)
    profile.refresh_from_db()
    assert (profile.settings, profile.environment) == ({"seed": 7}, {"TURBO_LAYER_ADAPTIVE": "1"})


def test_a_duplicate_by_somebody_else_leaves_the_variables_out(
    alice: User, bob: User, signed_in: Any
) -> None:
    profile = pages.profile("Qwen", environment={"OMP_NUM_THREADS": "1"})
    address = reverse("profile-duplicate", args=[profile.pk])
    text = text_of(signed_in(bob).get(address))
    assert "OMP_NUM_THREADS=1" not in text
    assert "The variables are not taken over" in text
    assert "OMP_NUM_THREADS=1</textarea>" in text_of(signed_in(alice).get(address))


def test_the_form_of_an_imported_command_holds_its_variables_for_an_admin_alone(
    alice: User, bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    data = {
        "command": f"OMP_NUM_THREADS=4 llama-server -m {qwen.path} --temp 0.5",
        "build": mainline.pk,
        "then": "form",
    }
    for user, variables in ((alice, {"OMP_NUM_THREADS": "4"}), (bob, {})):
        answer = signed_in(user).post(reverse("profile-import"), data)
        found = answer.context["preview"].data
        assert (found.environment, found.settings) == (variables, {"temperature": "0.5"})
        assert ("disabled" in card(text_of(answer), "environment")) == (user == bob)


def test_the_known_variables_are_offered_with_their_help(
    alice: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    text = text_of(signed_in(alice).get(reverse("profile-new")))
    assert re.findall(r'data-adds="(\w+)" aria-label', text) == list(KNOWN)
    assert "What numbers of GPUs mean" in text


def test_the_cards_of_the_host_are_offered_by_their_uuids(
    alice: User,
    signed_in: Any,
    mainline: Build,
    qwen: ModelArtifact,
    redis_server: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpus, "_next_try", 0.0)
    cards = (replace(CARD, uuid="GPU-8932f937"), replace(CARD, index=1))
    publish_cards(*cards)
    text = text_of(signed_in(alice).get(reverse("profile-new")))
    offered = re.findall(r'data-adds="CUDA_VISIBLE_DEVICES" data-value="([^"]+)">([^<]+)<', text)
    assert offered == [("GPU-8932f937", "0 · RTX 3090 ")]


def test_another_build_tells_what_it_cannot_do_and_what_it_writes_differently(
    alice: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    fork = pages.build("fork", pages.FORK)
    data = pages.form(
        mainline,
        qwen,
        shown_build=fork.pk,
        cache_type_k="turbo4",
        speculation="mtp",
        parallel="1",
        ctx_size="32768",
        environment="TURBO_LAYER_ADAPTIVE=1",
    )
    client = signed_in(alice)
    text = plain(change(text_of(client.post(reverse("profile-preview"), data))))
    assert "What this build cannot do fork → mainline" in text
    assert "KV cache type K turbo4 This build does not know turbo4" in text
    assert "Environment TURBO_LAYER_ADAPTIVE 1" in text
    assert "Speculation: --spec-type mtp → --spec-type draft-mtp" in text
    assert "Context size" not in text
    found = change(text_of(client.post(reverse("profile-preview"), data)))
    assert 'data-empties="cache_type_k"' in found
    assert f'name="old_build" value="{fork.pk}"' in found


def test_what_is_lost_stays_in_sight_until_it_is_removed(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    fork = pages.build("fork", pages.FORK)
    client = signed_in(bob)
    data = pages.form(mainline, qwen, old_build=fork.pk, cache_type_k="turbo4", seed="1")
    assert "What this build cannot do" in change(text_of(client.post(reverse("profile-preview"), data)))
    assert "What this build cannot do" in change(text_of(client.post(reverse("profile-new"), data)))
    answer = text_of(client.post(reverse("profile-preview"), {**data, "cache_type_k": ""}))
    assert "The new build can do everything that is set here." in change(answer)
    assert not plain(change(text_of(client.post(reverse("profile-preview"), {**data, "old_build": "x"}))))


def test_a_page_that_was_just_opened_compares_no_builds(bob: User, signed_in: Any) -> None:
    profile = pages.profile()
    assert not plain(change(text_of(signed_in(bob).get(reverse("profile-edit", args=[profile.pk])))))


def test_an_extra_argument_that_another_build_does_not_have_is_told_but_not_removed(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    old = without(pages.build("old"), "--jinja")
    data = pages.form(old, qwen, shown_build=mainline.pk, extra_args="--jinja")
    found = change(text_of(signed_in(bob).post(reverse("profile-preview"), data)))
    assert "Extra arguments --jinja" in plain(found)
    assert "data-empties" not in found


def test_a_template_fills_a_new_form_and_keeps_what_was_chosen(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    fork, other = pages.build("fork", pages.FORK), pages.model("other")
    projector = pages.projector()
    client = signed_in(bob)
    first = client.get(reverse("profile-new"), {"build": mainline.pk, "model": other.pk, "name": "Mine"})
    links = re.findall(r'<a href="([^"]+)" data-template>', text_of(first))
    assert len(links) == len(TEMPLATES)
    asked = parse_qs(urlsplit(links[0].replace("&amp;", "&")).query)
    assert asked == {
        "template": [TEMPLATES[0].key],
        "build": [str(mainline.pk)],
        "model": [str(other.pk)],
        "name": ["Mine"],
    }
    for build, cache in ((mainline, "q8_0"), (fork, "turbo4")):
        query = {"template": TEMPLATES[0].key, "build": build.pk, "model": other.pk, "name": "Mine"}
        answer = client.get(reverse("profile-new"), query)
        data = answer.context["preview"].data
        assert (data.name, data.build, data.model, data.mmproj) == ("Mine", build, other, projector)
        assert data.settings["cache_type_v"] == cache
        assert data.settings["ctx_size"] == 204_800
        assert "Nothing is saved yet" in text_of(answer)
    assert not ServerProfile.objects.exists()


@pytest.mark.parametrize("query", [{"template": "none"}, {"build": "x"}, {"model": "9" * 40}, {"port": "1"}])
def test_an_address_that_names_nothing_is_no_error(
    query: dict[str, str], bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    assert signed_in(bob).get(reverse("profile-new"), query).status_code == 200


def test_templates_are_for_new_profiles(bob: User, signed_in: Any) -> None:
    profile = pages.profile()
    for name in ("profile-edit", "profile-duplicate"):
        assert "data-template" not in text_of(signed_in(bob).get(reverse(name, args=[profile.pk])))


def test_a_finding_leads_to_its_field(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    text = text_of(signed_in(bob).post(reverse("profile-preview"), pages.form(mainline, qwen, top_p="2")))
    assert '<a href="#id_top_p">Top-p</a>: Give a number' in text


def test_the_preview_answers_at_once_for_a_model_of_27b(
    bob: User, signed_in: Any, mainline: Build, redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The header of such a model without its 29 GB: what is read once is taken from here.
    header = big_qwen()
    monkeypatch.setattr(estimates, "headers_of", lambda _artifact: (header,))
    monkeypatch.setattr(gpus, "_next_try", 0.0)
    cards = (CARD, replace(CARD, index=1))
    publish_cards(*cards)
    values = {"ctx_size": "204800", "cache_type_k": "q8_0", "speculation": "mtp", "parallel": "1"}
    untouched = dict.fromkeys(MEANINGS, "")
    data = pages.form(mainline, pages.model(), **{**untouched, **values, "gpu_layers": "all"})
    client = signed_in(bob)
    taken = []
    for _again in range(6):
        began = time.monotonic()
        answer = client.post(reverse("profile-preview"), data)
        taken.append(time.monotonic() - began)
    assert len(answer.context["fit"].cards) == 2
    assert min(taken) < 0.3, taken
