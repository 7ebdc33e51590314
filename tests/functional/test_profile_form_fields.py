"""The fields of the profile form: groups, where each value comes from, reset, and what a build lacks."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from controlpanel.llamacpp.meanings import GROUPS, MEANINGS
from jobs.models import Build, ModelArtifact
from jobs.services.builds import capabilities_of
from servers.models import ServerProfile
from tests.functional import pages
from tests.functional.test_pages_profiles import note, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def mainline() -> Build:
    return pages.build("mainline")


@pytest.fixture
def qwen() -> ModelArtifact:
    return pages.model()


def card(text: str, key: str) -> str:
    """A group with its fields."""
    found = re.search(rf'<details class="card gap-top group" id="card-{key}".*?</details>', text, re.DOTALL)
    assert found, f"no group {key}"
    return found[0]


def count(text: str, key: str) -> str:
    """What the summary of a group says of its fields."""
    found = re.search(rf'id="count-{key}"[^>]*>((?:<span[^>]*>[^<]*</span>)*)</span>', text)
    assert found, f"no count for {key}"
    return plain(found[1])


def plain(text: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


def without(build: Build, *names: str) -> Build:
    """A build that has no flags of these names."""
    caps = capabilities_of(build)
    flags = tuple(flag for flag in caps.flags if not set(names) & set(flag.all_names))
    build.capabilities = replace(caps, flags=flags).to_dict()
    build.save()
    return build


def test_each_field_has_its_place_in_a_group_and_the_rare_ones_begin_folded(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    text = text_of(signed_in(bob).get(reverse("profile-new")))
    unfolded = {key for key, _title in GROUPS if card(text, key).split(">")[0].endswith(" open")}
    assert unfolded == {"context", "gpus", "speculation", "vision"}
    for key, meaning in MEANINGS.items():
        assert f'name="{key}"' in card(text, meaning.group)
        assert f'aria-describedby="note-{key}"' in text
    places = [text.index(f'id="card-{key}"') for key in (*dict(GROUPS), "policy", "environment", "extra")]
    assert places == sorted(places)
    assert text.index('id="group-what"') < places[0]
    for key in (*dict(GROUPS), "policy", "environment", "extra", "what"):
        assert f'href="#group-{key}"' in text


def test_a_folded_group_opens_when_something_in_it_is_set_or_wrong(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    data = pages.form(mainline, qwen, temperature="0.7", top_k="5", rope_scale="much", extra_args="--jinja")
    text = text_of(signed_in(bob).post(reverse("profile-new"), data))
    for key, said in (("sampling", "2 set"), ("rope", "1 error 1 set"), ("extra", "1 set"), ("logging", "")):
        assert card(text, key).split(">")[0].endswith(" open") == bool(said)
        assert count(text, key) == said


def test_the_counts_follow_what_is_typed(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    data = pages.form(mainline, qwen, temperature="0.7", min_p="two", name="")
    text = text_of(signed_in(bob).post(reverse("profile-preview"), data))
    assert count(text, "sampling") == "1 error 2 set"
    assert "1 setting is passed" in text
    assert "1 error to mend before saving" in text


def test_a_field_says_where_its_value_comes_from_and_can_be_reset(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    values = {"cache_type_k": "q8_0", "mmproj_offload": "off", "top_p": "2", "parallel": ""}
    data = pages.form(mainline, qwen, mmproj=pages.projector().pk, **values)
    text = text_of(signed_in(bob).post(reverse("profile-preview"), data))
    for key, said in (
        ("cache_type_k", "passed --cache-type-k q8_0"),
        ("mmproj_offload", "passed --no-mmproj-offload"),
        ("cache_type_v", "inherited f16"),
        ("kv_offload", "inherited on"),
        ("batch", "inherited 2048"),
        ("parallel", "inherited -1"),
        ("n_cpu_moe", "inherited"),
    ):
        assert plain(note(text, key)) == said
    assert plain(note(text, "top_p")).endswith("not passed")
    for key in ("cache_type_k", "mmproj_offload", "top_p"):
        assert f'data-use="id_{key}" data-value="" aria-label="Reset ' in note(text, key)
    assert "Reset" not in note(text, "parallel")


def test_a_switch_offers_what_the_build_can_say(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    text = text_of(signed_in(bob).get(reverse("profile-new")))
    for key, words in (
        ("kv_offload", ["default (on)", "on", "off"]),
        ("swa_full", ["default (off)", "on"]),
        ("cpu_moe", ["default", "on"]),
    ):
        select = re.search(rf'<select name="{key}".*?</select>', text, re.DOTALL)
        assert select
        assert re.findall(r">([^<\n]+)</option>", select[0]) == words
    assert re.search(r'name="ctx_size"[^>]* inputmode="numeric"', text)
    assert re.search(r'name="top_p"[^>]* inputmode="decimal"', text)
    assert not re.search(r'name="seed"[^>]* inputmode', text)


def test_a_decimal_is_stored_as_a_number_is_written_plainly(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    data = pages.form(mainline, qwen, temperature=".70", top_p="1.0", seed="-1")
    signed_in(bob).post(reverse("profile-new"), data)
    assert ServerProfile.objects.get().settings == {"temperature": "0.7", "top_p": 1, "seed": -1}


def test_what_the_build_does_unasked_has_nothing_to_pass(
    bob: User, signed_in: Any, qwen: ModelArtifact
) -> None:
    data = pages.form(pages.build("fork", pages.FORK), qwen, load_mode="auto")
    text = text_of(signed_in(bob).post(reverse("profile-preview"), data))
    assert plain(note(text, "load_mode")) == "nothing to pass this build does so unasked"


def test_fields_that_a_build_does_not_have_are_named_in_one_line_unless_they_are_set(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    old = without(pages.build("old"), "--kv-unified", "--cache-ram", "--rope-scale")
    client = signed_in(bob)
    data = pages.form(old, qwen, shown_build=mainline.pk, kv_unified="", cache_ram="0", rope_scale="")
    text = text_of(client.post(reverse("profile-preview"), data))
    assert "Not in this build: One KV cache for all slots." in card(text, "context")
    assert 'name="kv_unified"' not in text
    assert 'id="note-kv_unified"' not in text
    assert 'name="cache_ram" value="0"' in card(text, "context")
    assert "This build has no --cache-ram" in note(text, "cache_ram")
    assert "not in this build" in note(text, "cache_ram")
    assert "Not in this build: RoPE scale." in card(text, "rope")
    # The control that is on the page goes on saying what is the matter once it is empty.
    emptied = text_of(client.post(reverse("profile-preview"), pages.form(old, qwen, cache_ram="")))
    assert plain(note(emptied, "cache_ram")) == "not in this build"
    assert 'id="note-kv_unified"' not in emptied


def test_common_context_sizes_up_to_that_of_the_model_are_one_click_away(
    bob: User, signed_in: Any, mainline: Build
) -> None:
    client = signed_in(bob)
    for native, words in (
        (262_144, ["32K", "64K", "128K", "200K", "256K, the model's own"]),
        (40_960, ["32K", "40,960, the model's own"]),
        (None, ["32K", "64K", "128K", "200K", "256K"]),
    ):
        model = pages.model(f"model {native}", context_length=native)
        text = text_of(client.post(reverse("profile-preview"), pages.form(mainline, model, ctx_size="32768")))
        buttons = re.findall(
            r'data-use="id_ctx_size" data-value="(\d+)"([^>]*)>([^<]+)<', note(text, "ctx_size")
        )
        assert [unescape(word) for _size, _state, word in buttons] == words
        assert [size for size, state, _word in buttons if "aria-pressed" in state] == ["32768"]
    assert 'data-value="204800"' in note(text, "ctx_size")


def test_what_the_panel_manages_is_listed_with_its_reasons(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    answer = signed_in(bob).get(reverse("profile-new"))
    listed = answer.context["preview"].managed
    assert [flag for flag, _value, _why in listed] == [
        *("--model", "--alias", "--host", "--port", "--metrics", "--slots"),
        *("--sse-ping-interval", "-lv", "--log-colors", "LLAMA_API_KEY"),
    ]
    assert all(why for _flag, _value, why in listed)
    assert text_of(answer).count("only the panel itself reaches the server") == 1


def test_resetting_all_names_every_setting_and_nothing_else(
    bob: User, signed_in: Any, mainline: Build, qwen: ModelArtifact
) -> None:
    text = text_of(signed_in(bob).get(reverse("profile-new")))
    found = re.search(r'id="reset-all" data-empties="([^"]*)" data-question="[^"]+"', text)
    assert found
    assert found[1].split() == list(MEANINGS)


def test_of_very_many_lines_of_the_environment_one_sentence_is_said(alice: User, signed_in: Any) -> None:
    data = pages.form(pages.build("mainline"), pages.model(), environment="x\n" * 17_000)
    answer = signed_in(alice).post(reverse("profile-preview"), data)
    assert len(answer.content) < 200_000 and b"more than 100 lines" in answer.content
