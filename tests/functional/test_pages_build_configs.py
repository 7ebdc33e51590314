"""The pages from which builds are made: configs, their form, repositories, the toolchain of the host."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from controlpanel.llamacpp.rule_types import Change
from jobs import live
from jobs.models import Build, BuildConfig, Host, Job, Repository
from jobs.services.hosts import local_host
from jobs.services.toolchains import LOOK
from tests.functional import pages
from tests.functional.test_pages_builds import ended, stored, text_of

pytestmark = pytest.mark.django_db


def form(**values: Any) -> dict[str, Any]:
    """What the browser sends for a build config with these fields."""
    row = Repository.objects.filter(name="fork").first() or pages.repository()
    fixed = {"name": "Mine", "repository": row.pk, "backend": "cpu", "native": "on", "ccache": "on"}
    return {**fixed, **values}


def preview(client: Any, **values: Any) -> str:
    return text_of(client.post(reverse("config-preview"), form(**values)))


def test_an_empty_list_says_the_next_step(bob: User, charlie: User, signed_in: Any) -> None:
    assert reverse("config-new") in text_of(signed_in(bob).get(reverse("build-configs")))
    assert "An operator can make one." in text_of(signed_in(charlie).get(reverse("build-configs")))


def test_the_list_shows_source_options_and_the_last_build(charlie: User, signed_in: Any) -> None:
    config = pages.config("Daily", ref="mtp", definitions=[["GGML_CUDA_FORCE_MMQ", "ON"]])
    pages.made(config, 1, ended("compile", "succeeded"), state="ready")
    pages.made(config, 2, ended("compile", "failed"), state="failed")
    text = text_of(signed_in(charlie).get(reverse("build-configs")))
    for words in ("Daily #2", "failed", "fork", "@mtp", "for 86", "GGML_CUDA_FORCE_MMQ=ON"):
        assert words in text
    assert "Daily #1" not in text
    assert reverse("config-build", args=[config.pk]) not in text


def test_the_list_is_current_while_builds_end(charlie: User, signed_in: Any) -> None:
    config = pages.config("Daily")
    answer = signed_in(charlie).get(reverse("build-configs"), {"sort": "-name"})
    [topic, *_rest] = live.subscriptions(answer.context["topics"])
    pages.made(config, 1, ended("compile", "succeeded"), state="ready")
    assert "Daily #1" in topic.topic.render("viewer", topic.arg)


def test_a_new_config_begins_with_the_cards_of_the_host(bob: User, signed_in: Any) -> None:
    pages.looked_at()
    pages.repository()
    text = text_of(signed_in(bob).get(reverse("config-new")))
    assert '<option value="cuda" selected>' in text
    assert 'name="architectures" value="86" checked' in text
    assert 'name="architectures" value="61">' in text
    assert "in this host" in text
    assert "RTX 3050" in text
    assert '<option value="/usr/local/cuda-12.4/bin/nvcc" label="CUDA 12.4">' in text
    assert '<option value="/usr/bin/g++" label="gcc 13.2.0">' in text


def test_without_a_look_at_the_host_the_form_says_so(bob: User, signed_in: Any) -> None:
    pages.repository()
    text = text_of(signed_in(bob).get(reverse("config-new")))
    assert "has not looked yet" in text
    assert reverse("toolchain") in text
    assert '<option value="cpu" selected>' in text


def test_without_a_repository_there_is_nothing_to_fill_in(alice: User, bob: User, signed_in: Any) -> None:
    Repository.objects.all().delete()
    assert "Ask an admin" in text_of(signed_in(bob).get(reverse("config-new")))
    text = text_of(signed_in(alice).get(reverse("config-new")))
    assert reverse("repositories") in text
    assert "config-form" not in text


def test_the_preview_shows_the_commands_that_a_build_runs(bob: User, signed_in: Any) -> None:
    pages.looked_at()
    text = preview(
        signed_in(bob), backend="cuda", architectures=["86"], more_architectures="89, 120", ref="mtp"
    )
    assert "# configure" in text
    assert "-DGGML_CUDA=ON" in text
    # As a shell takes it: a list has a semicolon in it.
    assert "&#x27;-DCMAKE_CUDA_ARCHITECTURES=86;89;120&#x27;" in text
    assert "https://github.com/example/fork.git" in text
    assert "Empty: 16, by the cores and the memory of this host." in text
    assert "The path" not in text


def test_the_preview_leaves_out_what_belongs_to_another_backend(bob: User, signed_in: Any) -> None:
    pages.looked_at()
    text = preview(signed_in(bob), backend="cpu", architectures=["86"], nvcc="/x/nvcc", fa_quants="all")
    assert "CUDA" not in text.split('id="commands"')[1].split("</pre>")[0]


def test_the_preview_puts_each_problem_at_its_field(bob: User, signed_in: Any) -> None:
    pages.looked_at()
    text = preview(
        signed_in(bob),
        ref="--output=x",
        **{"definitions-key": ["LLAMA_CUBLAS", ""], "definitions-value": ["ON", ""]},
    )
    ref = text.split('id="note-ref"')[1].split("</div>")[0]
    assert "does not begin with" in ref
    assert "LLAMA_CUBLAS" in text.split('id="note-definitions"')[1].split("</div>")[0]
    assert "2 errors to mend before saving" in text


def test_the_preview_says_what_the_host_lacks(bob: User, signed_in: Any) -> None:
    programs = {name: item for name, item in pages.TOOLCHAIN.programs.items() if name != "cmake"}
    pages.looked_at(dataclasses.replace(pages.TOOLCHAIN, programs=programs))
    text = preview(signed_in(bob))
    assert "cmake is missing on this host" in text
    assert "It can be saved, but not be built on this host yet" in text


def test_while_somebody_types_an_empty_name_is_no_error_yet(bob: User, signed_in: Any) -> None:
    pages.looked_at()
    text = preview(signed_in(bob), name="")
    assert "mend before saving" not in text
    assert "No problem found" in text


def test_what_the_source_offers_is_known_after_its_first_build(bob: User, signed_in: Any) -> None:
    row = pages.repository()
    assert "known after its first build" in preview(signed_in(bob), backend="cuda")
    row.options = ["GGML_CUDA_FA_ALL_QUANTS"]
    row.save()
    text = preview(signed_in(bob), backend="cuda", fa_quants="list", fa_pairs="q8_0-q4_0")
    assert "no list" in text.split('id="note-fa_quants"')[1].split("</div>")[0]
    assert "1 error to mend" in text


def test_a_config_is_saved_and_opened_again_as_it_was(bob: User, signed_in: Any) -> None:
    pages.looked_at()
    client = signed_in(bob)
    values = form(
        backend="cuda",
        architectures=["86"],
        more_architectures="90a",
        fa_quants="list",
        fa_pairs="q8_0-q4_0;f16-f16",
        jobs="5",
        targets=["llama-bench"],
        do="save",
        **{"definitions-key": ["GGML_CUDA_FORCE_MMQ", ""], "definitions-value": ["ON", ""]},
    )
    del values["ccache"]
    assert client.post(reverse("config-new"), values)["Location"] == reverse("build-configs")
    config = BuildConfig.objects.get()
    assert config.architectures == ["86", "90a"]
    assert config.targets == ["llama-server", "llama-bench"]
    assert (config.fa_quants, config.jobs, config.ccache) == ("q8_0-q4_0;f16-f16", 5, False)
    assert config.definitions == [["GGML_CUDA_FORCE_MMQ", "ON"]]
    assert not Build.objects.exists()
    text = text_of(client.get(reverse("config-edit", args=[config.pk])))
    assert 'name="architectures" value="90a" checked' in text
    assert 'value="GGML_CUDA_FORCE_MMQ"' in text
    assert 'value="q8_0-q4_0;f16-f16"' in text
    assert '<option value="list" selected>' in text


def test_errors_keep_everything_that_was_typed(bob: User, signed_in: Any) -> None:
    pages.looked_at()
    values = form(
        name="",
        ref="my branch",
        more_architectures="86x",
        backend="cuda",
        **{"definitions-key": ["MY_OPTION"], "definitions-value": ["1"]},
    )
    text = text_of(signed_in(bob).post(reverse("config-new"), values))
    assert not BuildConfig.objects.exists()
    for kept in ("my branch", "86x", 'value="MY_OPTION"', '<option value="cuda" selected>'):
        assert kept in text
    assert "Nothing was saved yet" in text


def test_a_choice_of_pairs_needs_pairs(bob: User, signed_in: Any) -> None:
    values = form(backend="cuda", architectures=["86"], fa_quants="list", do="save")
    answer = signed_in(bob).post(reverse("config-new"), values)
    assert answer.context["preview"].fields["fa_pairs"].errors == ["Write the pairs, or choose another way."]
    assert signed_in(bob).post(reverse("config-new"), {**values, "backend": "cpu"}).status_code == 302


def test_what_the_service_refuses_comes_back_at_its_field(bob: User, signed_in: Any) -> None:
    pages.config("Mine")
    answer = signed_in(bob).post(reverse("config-new"), form(do="save"))
    assert "already a build config with this name" in answer.context["preview"].fields["name"].errors[0]


def test_an_operator_is_told_who_may_set_other_definitions(alice: User, bob: User, signed_in: Any) -> None:
    values = form(do="save", **{"definitions-key": ["MY_OPTION"], "definitions-value": ["1"]})
    text = text_of(signed_in(bob).post(reverse("config-new"), values))
    assert "Only an admin may set MY_OPTION" in text
    assert "code of anybody" in text_of(signed_in(alice).post(reverse("config-preview"), values))
    assert signed_in(alice).post(reverse("config-new"), values).status_code == 302


def test_saving_and_building_queues_a_build(bob: User, signed_in: Any) -> None:
    pages.looked_at()
    answer = signed_in(bob).post(reverse("config-new"), form(do="build"))
    build = Build.objects.get()
    assert answer["Location"] == reverse("build-detail", args=[build.pk])
    assert (build.config.name, build.state, build.created_by) == ("Mine", "queued", bob)
    assert Job.objects.get().kind == "build.make"


def test_a_build_that_cannot_work_on_the_host_is_not_started(bob: User, signed_in: Any) -> None:
    pages.looked_at(dataclasses.replace(pages.TOOLCHAIN, nvccs=()))
    client = signed_in(bob)
    text = text_of(client.post(reverse("config-new"), form(backend="cuda", do="build")))
    assert "The build was not started" in text
    assert not BuildConfig.objects.exists()
    assert client.post(reverse("config-new"), form(backend="cuda", do="save")).status_code == 302
    config = BuildConfig.objects.get()
    answer = client.post(reverse("config-build", args=[config.pk]), follow=True)
    assert "nvcc" in [str(message) for message in answer.context["messages"]][-1]
    assert not Build.objects.exists()


def test_the_form_opens_with_the_change_that_a_diagnosis_advises(bob: User, signed_in: Any) -> None:
    pages.looked_at()
    config = pages.config(host_compiler="/usr/bin/g++", jobs=16)
    build = pages.made(config, job=ended("compile", "failed"), state="failed")
    build.diagnosis = [
        stored(),
        stored(Change("jobs", "half")),
        stored(Change("host_compiler", "/usr/bin/g++-13")),
    ]
    build.save()
    client = signed_in(bob)
    address = reverse("config-edit", args=[config.pk])
    text = text_of(client.get(f"{address}?change={build.pk}"))
    assert 'name="jobs" value="8"' in text
    assert "changed, before: 16" in text
    assert "The compiler is too new for CUDA." in text
    assert text.count("is-changed") == 1
    text = text_of(client.get(f"{address}?change={build.pk}&cause=2"))
    assert 'name="host_compiler" value="/usr/bin/g++-13"' in text
    assert 'name="jobs" value="16"' in text


def test_a_change_for_a_deleted_config_opens_a_new_one_with_the_inputs(bob: User, signed_in: Any) -> None:
    config = pages.config(ref="mtp", fa_quants="all")
    build = pages.made(config, job=ended("compile", "failed"), state="failed", diagnosis=[])
    build.diagnosis = [stored(Change("fa_quants", ""))]
    build.save()
    config.delete()
    client = signed_in(bob)
    build.refresh_from_db()
    text = text_of(client.get(reverse("build-detail", args=[build.pk])))
    assert f"{reverse('config-new')}?change={build.pk}" in text
    text = text_of(client.get(f"{reverse('config-new')}?change={build.pk}"))
    assert 'name="ref" value="mtp"' in text
    assert "Its build config was deleted" in text
    assert "changed, before: all" in text


@pytest.mark.parametrize("query", ["change=", "change=x", "change=999", "change=1&cause=-1", "change=١"])
def test_a_change_that_makes_no_sense_shows_the_plain_form(query: str, bob: User, signed_in: Any) -> None:
    answer = signed_in(bob).get(f"{reverse('config-new')}?{query}")
    assert answer.status_code == 200
    assert answer.context["card"] is None


def test_a_config_is_deleted_and_its_builds_stay(bob: User, signed_in: Any) -> None:
    config = pages.config()
    build = pages.made(config, job=ended("compile", "failed"), state="failed")
    answer = signed_in(bob).post(reverse("config-delete", args=[config.pk]), headers={"HX-Request": "true"})
    assert answer["HX-Redirect"] == reverse("build-configs")
    assert list(Build.objects.all()) == [build]


def test_an_admin_adds_and_removes_repositories(alice: User, charlie: User, signed_in: Any) -> None:
    pages.repository()
    client = signed_in(alice)
    text = text_of(client.get(reverse("repositories")))
    assert "https://github.com/example/fork.git" in text
    assert "run on this host" in text
    assert "add-repository" not in text_of(signed_in(charlie).get(reverse("repositories")))
    values = {"name": "Mine", "kind": "git", "url": "https://git.example/llama.cpp"}
    assert client.post(reverse("repository-add"), values)["Location"] == reverse("repositories")
    row = Repository.objects.get(name="Mine")
    client.post(reverse("repository-delete", args=[row.pk]))
    assert not Repository.objects.filter(name="Mine").exists()


def test_a_repository_that_is_refused_stays_in_the_form(alice: User, signed_in: Any) -> None:
    values = {"name": "Mine", "kind": "git", "url": "git://git.example/x"}
    answer = signed_in(alice).post(reverse("repository-add"), values)
    assert list(answer.context["form"].errors) == ["url"]
    assert 'value="git://git.example/x"' in text_of(answer)


def test_a_repository_in_use_cannot_be_removed(alice: User, signed_in: Any) -> None:
    config, client = pages.config("Daily"), signed_in(alice)
    address = reverse("repository-delete", args=[config.repository.pk])
    assert address not in text_of(client.get(reverse("repositories")))
    assert "Daily" in str(next(iter(client.post(address, follow=True).context["messages"])))


def test_the_toolchain_page_before_the_first_look(bob: User, signed_in: Any) -> None:
    text = text_of(signed_in(bob).get(reverse("toolchain")))
    assert "has not looked yet" in text
    assert "Look now" in text


def test_the_toolchain_page_shows_what_is_there_and_what_is_missing(charlie: User, signed_in: Any) -> None:
    pages.looked_at()
    text = text_of(signed_in(charlie).get(reverse("toolchain")))
    for words in ("3.28.3", "gcc 13.2.0", "CUDA 12.4", "580.95.05", "RTX 3090", "glibc 2.39", "64.0 GiB"):
        assert words in text
    assert "not found" in text  # ccache, hipcc, make
    assert "cannot be built" in text  # HIP
    assert reverse("toolchain-look") not in text


def test_a_look_is_asked_for_once_and_its_end_reaches_the_page(bob: User, signed_in: Any) -> None:
    client = signed_in(bob)
    local_host()
    answer = client.get(reverse("toolchain"))
    assert client.post(reverse("toolchain-look"))["Location"] == reverse("toolchain")
    assert Job.objects.get().kind == LOOK
    text = text_of(client.post(reverse("toolchain-look"), follow=True))
    assert "being looked at already" in text
    assert Job.objects.count() == 1
    pages.looked_at()
    [topic, *_rest] = live.subscriptions(answer.context["topics"])
    assert "3.28.3" in topic.topic.render("operator", topic.arg)
    assert Host.objects.count() == 1
