"""Repositories and build configs: what is taken, what is refused and why, and what the audit says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User

from controlpanel.lib.errors import Refused
from jobs.domain.buildspec import BuildInputs
from jobs.models import AuditEntry, Build, BuildConfig, Repository
from jobs.services import configs as service
from jobs.services.audit import Actor
from jobs.services.configs import ConfigData
from jobs.services.hosts import local_host
from tests.functional import pages

pytestmark = pytest.mark.django_db


def web(user: User) -> Actor:
    return Actor(user, AuditEntry.Source.WEB)


def data(name: str = "Mine", **inputs: object) -> ConfigData:
    row = Repository.objects.filter(name="fork").first() or pages.repository()
    return ConfigData(name, row, replace(BuildInputs(row.url), **inputs))  # type: ignore[arg-type]


def save(user: User, config: BuildConfig | None, wanted: ConfigData) -> BuildConfig:
    return service.save_config(web(user), local_host(), config, wanted)


def refused(user: User, config: BuildConfig | None, wanted: ConfigData) -> tuple[str, str]:
    """The field and the words of the refusal."""
    with pytest.raises(Refused) as caught:
        save(user, config, wanted)
    return caught.value.field, str(caught.value)


def test_a_repository_is_added_with_its_audit_row(alice: User) -> None:
    row = service.add_repository(web(alice), "  My   fork ", "git", " https://git.example/team/llama.cpp ")
    assert (row.name, row.url, row.created_by) == ("My fork", "https://git.example/team/llama.cpp", alice)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.object_label, entry.after["kind"]) == ("repository.add", "My fork", "git")


@pytest.mark.parametrize(
    ("name", "kind", "url", "field"),
    [
        ("x", "git", "file:///etc", "url"),
        ("x", "git", "ext::sh -c id", "url"),
        ("x", "git", "--upload-pack=id", "url"),
        ("x", "local", "relative/path", "url"),
        ("x", "local", "/srv/../etc", "url"),
        ("x", "local", "https://git.example/x", "url"),
        ("  ", "git", "https://git.example/x", "name"),
        ("fork", "git", "https://git.example/x", "name"),
        ("x", "git", "https://github.com/example/fork.git", "url"),
    ],
)
def test_a_repository_that_cannot_be_taken_names_its_field(
    name: str, kind: str, url: str, field: str, alice: User
) -> None:
    pages.repository()
    before = Repository.objects.count()
    with pytest.raises(Refused) as caught:
        service.add_repository(web(alice), name, kind, url)
    assert caught.value.field == field
    assert Repository.objects.count() == before
    assert not AuditEntry.objects.exists()


def test_a_folder_is_kept_in_its_plain_form(alice: User) -> None:
    assert service.add_repository(web(alice), "local", "local", "/srv//llama.cpp/").url == "/srv/llama.cpp"


def test_a_repository_stays_while_a_config_uses_it(alice: User) -> None:
    config = pages.config("Daily")
    with pytest.raises(Refused, match="Daily"):
        service.delete_repository(web(alice), config.repository)
    config.delete()
    service.delete_repository(web(alice), config.repository)
    assert not Repository.objects.filter(name="fork").exists()
    assert AuditEntry.objects.get().before["url"] == "https://github.com/example/fork.git"


def test_a_config_gives_back_the_inputs_it_was_saved_with(bob: User) -> None:
    wanted = data(
        backend="cuda",
        ref="mtp",
        architectures=("86", "120a"),
        fa_quants="q8_0-q4_0;f16-f16",
        jobs=7,
        native=False,
        definitions=(("GGML_CUDA_FORCE_MMQ", "ON"),),
    )
    config = save(bob, None, wanted)
    config.refresh_from_db()
    assert config.inputs() == wanted.inputs
    assert AuditEntry.objects.get().after["definitions"] == "GGML_CUDA_FORCE_MMQ=ON"


def test_a_change_is_told_by_what_was_before(bob: User) -> None:
    config = save(bob, None, data())
    save(bob, config, data(ref="b9000"))
    entry = AuditEntry.objects.first()
    assert entry is not None
    assert (entry.action, entry.before["ref"], entry.after["ref"]) == ("config.change", "", "b9000")


@pytest.mark.parametrize(
    ("inputs", "field"),
    [
        ({"ref": "--upload-pack"}, "ref"),
        ({"backend": "cuda", "architectures": ("x",)}, "architectures"),
        ({"targets": ("llama-bench",)}, "targets"),
        ({"jobs": 9999}, "jobs"),
        ({"definitions": (("LLAMA_CUBLAS", "ON"),)}, "definitions"),
    ],
)
def test_inputs_that_are_wrong_whatever_the_host_are_refused(
    inputs: dict[str, object], field: str, alice: User
) -> None:
    found, words = refused(alice, None, data(**inputs))
    assert (found, bool(words)) == (field, True)
    assert not BuildConfig.objects.exists()


def test_what_the_source_lacks_is_refused_once_its_options_are_known(alice: User) -> None:
    pages.repository(options=["GGML_CUDA", "GGML_CUDA_FA_ALL_QUANTS"])
    assert refused(alice, None, data(backend="cuda", fa_quants="q8_0-q4_0"))[0] == "fa_quants"
    save(alice, None, data(backend="cuda", fa_quants="all"))


def test_names_are_there_once_and_not_empty(bob: User) -> None:
    save(bob, None, data("Mine"))
    assert refused(bob, None, data("Mine"))[0] == "name"
    assert refused(bob, None, data(" "))[0] == "name"


def test_only_an_admin_sets_definitions_outside_the_known_list(alice: User, bob: User) -> None:
    foreign = data(definitions=(("CMAKE_PROJECT_INCLUDE", "/tmp/x.cmake"),))
    field, words = refused(bob, None, foreign)
    assert (field, "CMAKE_PROJECT_INCLUDE" in words) == ("definitions", True)
    config = save(alice, None, foreign)
    # What the admin put there stays when an operator changes something else, but not with another value.
    save(bob, config, replace(foreign, inputs=replace(foreign.inputs, ref="main")))
    other = replace(foreign.inputs, definitions=(("CMAKE_PROJECT_INCLUDE", "/tmp/y.cmake"),))
    assert refused(bob, config, replace(foreign, inputs=other))[0] == "definitions"


def test_an_operator_chooses_among_the_compilers_found_on_the_host(alice: User, bob: User) -> None:
    pages.looked_at()
    found = {"backend": "cuda", "nvcc": "/usr/local/cuda-12.4/bin/nvcc", "host_compiler": "/usr/bin/g++"}
    save(bob, None, data("found", **found))
    assert refused(bob, None, data("a", backend="cuda", nvcc="/tmp/nvcc"))[0] == "nvcc"
    assert refused(bob, None, data("b", host_compiler="/tmp/g++"))[0] == "host_compiler"
    save(alice, None, data("c", host_compiler="/opt/g++"))


def test_builds_stay_when_their_config_is_deleted(bob: User) -> None:
    config = pages.config()
    build = pages.made(config)
    service.delete_config(web(bob), config)
    build.refresh_from_db()
    assert (build.config, build.made_here, Build.objects.count()) == (None, True, 1)
    assert AuditEntry.objects.get().action == "config.delete"
