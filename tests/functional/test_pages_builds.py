"""Pages of builds: what they show, and what their buttons do."""

from __future__ import annotations

import re
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from controlpanel.lib.text import Message
from controlpanel.llamacpp.rule_types import Change, Diagnosis, Evidence
from jobs import live
from jobs.models import AuditEntry, Build, Job
from tests.functional import pages

pytestmark = pytest.mark.django_db


def text_of(answer: Any) -> str:
    return answer.content.decode()


def test_an_empty_list_says_the_next_step(alice: User, bob: User, charlie: User, signed_in: Any) -> None:
    for person, new, register in ((alice, True, True), (bob, True, False), (charlie, False, False)):
        text = text_of(signed_in(person).get(reverse("builds")))
        assert "There is no build yet" in text
        assert (reverse("config-new") in text, reverse("build-register") in text) == (new, register)


def test_the_list_shows_what_each_build_can_do(charlie: User, signed_in: Any) -> None:
    pages.build("mainline")
    pages.build("fork", pages.FORK)
    pages.build("broken", state=Build.State.FAILED, capabilities={})
    text = text_of(signed_in(charlie).get(reverse("builds")))
    assert "<code>draft-mtp</code>" in text
    assert "<code>mtp</code>" in text
    assert text.count("TurboQuant") == 1
    assert "failed" in text


def test_the_list_names_the_profiles_that_use_a_build(charlie: User, signed_in: Any) -> None:
    profile = pages.profile("Daily")
    text = text_of(signed_in(charlie).get(reverse("builds")))
    assert f'<a href="{reverse("server-detail", args=[profile.pk])}">Daily</a>' in text


def test_an_admin_registers_a_binary_and_its_probe_is_queued(
    alice: User, signed_in: Any, tmp_path: Path
) -> None:
    answer = signed_in(alice).post(reverse("build-register"), {"name": "mine", "path": sys.executable})
    build = Build.objects.get()
    assert answer["Location"] == reverse("build-detail", args=[build.pk])
    assert (build.name, build.state, build.created_by) == ("mine", "probing", alice)
    assert Job.objects.get().kind == "build.probe"
    assert AuditEntry.objects.get().source == "web"


def test_a_path_that_is_no_executable_is_refused_at_its_field(
    alice: User, signed_in: Any, tmp_path: Path
) -> None:
    path = tmp_path / "missing"
    answer = signed_in(alice).post(reverse("build-register"), {"name": "mine", "path": str(path)})
    form = answer.context["form"]
    assert list(form.errors) == ["path"]
    assert str(path) in text_of(answer)
    assert not Build.objects.exists()


def test_the_page_shows_capabilities_and_all_flags(charlie: User, signed_in: Any) -> None:
    build = pages.build()
    answer = signed_in(charlie).get(reverse("build-detail", args=[build.pk]))
    text = text_of(answer)
    assert len(answer.context["flags"]) > 150
    assert "<code>--ctx-size</code>" in text or "--ctx-size" in text
    assert "--load-mode" in text
    assert 'data-filter="#flags tr"' in text
    assert reverse("build-probe", args=[build.pk]) not in text


def test_the_page_of_a_failed_build_says_why(charlie: User, signed_in: Any) -> None:
    build = pages.build(state=Build.State.FAILED, error="libcudart.so.12 is missing", capabilities={})
    assert "libcudart.so.12 is missing" in text_of(
        signed_in(charlie).get(reverse("build-detail", args=[build.pk]))
    )


def test_probing_again_is_asked_for_once(alice: User, signed_in: Any) -> None:
    build, client = pages.build(), signed_in(alice)
    address = reverse("build-probe", args=[build.pk])
    assert client.post(address)["Location"] == reverse("build-detail", args=[build.pk])
    build.refresh_from_db()
    assert build.state == Build.State.PROBING
    assert "being probed already" in text_of(client.post(address, follow=True))
    assert Job.objects.count() == 1


def test_a_build_that_a_profile_uses_stays_and_the_reason_is_shown(alice: User, signed_in: Any) -> None:
    profile = pages.profile("Daily")
    answer = signed_in(alice).post(reverse("build-delete", args=[profile.build.pk]), follow=True)
    assert "Profiles use this build: Daily" in text_of(answer)
    assert Build.objects.exists()


def test_an_unused_build_is_deleted(alice: User, signed_in: Any) -> None:
    build, client = pages.build(), signed_in(alice)
    answer = client.post(reverse("build-delete", args=[build.pk]), headers={"HX-Request": "true"})
    assert answer["HX-Redirect"] == reverse("builds")
    assert not Build.objects.exists()
    assert "no longer registered" in text_of(client.get(reverse("builds")))


def working(step: str, **job: Any) -> dict[str, Any]:
    """The columns of a job that is at this step of a build."""
    names = ["fetch", "checkout", "configure", "compile"]
    now = time.time()
    done = [
        {"name": name, "started_at": now - 60, "ended_at": now - 47.6} for name in names[: names.index(step)]
    ]
    steps = [*done, {"name": step, "started_at": now - 30, "ended_at": None}]
    return {"state": "running", "step": step, "steps": steps, "started_at": timezone.now(), **job}


def ended(step: str, state: str) -> dict[str, Any]:
    """The columns of a job that ended at this step after 95 seconds."""
    job = working(step, state=state)
    job["steps"][-1]["ended_at"] = job["steps"][-1]["started_at"] + 12.5
    return {**job, "ended_at": job["started_at"] + timedelta(seconds=95)}


def stored(change: Change | None = None, run: str = "r1", offset: int = 70) -> dict[str, Any]:
    """A diagnosis as the runner stores it on a build."""
    found = Diagnosis(
        "gcc-too-new",
        Message("The compiler is too new for CUDA."),
        Message("Choose g++ 13 as the host compiler."),
        (Evidence(3, offset, "error: unsupported <GNU> version!"),),
        (change,) if change else (),
    )
    return {"run": run, "step": "compile", **found.to_json()}


def page(client: Any, build: Build, query: str = "") -> Any:
    return client.get(reverse("build-detail", args=[build.pk]) + query)


def test_the_list_shows_a_build_at_work(bob: User, signed_in: Any) -> None:
    config = pages.config(ref="mtp", fa_quants="all")
    progress = {"done": 37, "total": 222, "text": "ggml-cuda/fattn.cu.o"}
    build = pages.made(
        config, job=working("compile", progress=progress), state="building", source_commit=pages.COMMIT
    )
    text = text_of(signed_in(bob).get(reverse("builds")))
    assert "37/222" in text
    assert '<progress class="build-progress" max="222" value="37"' in text
    assert "@mtp" in text
    assert "#67f38aa<" in text
    assert ">CUDA<" in text
    assert "for 86" in text
    assert "FA all" in text
    assert "data-since=" in text
    assert reverse("build-cancel", args=[build.pk]) in text
    assert reverse("build-rebuild", args=[build.pk]) not in text
    assert "Work on this build goes on: it is building." in text


def test_the_list_says_how_many_wait_before_a_build(charlie: User, signed_in: Any) -> None:
    config, earlier = pages.config(), timezone.now() - timedelta(minutes=1)
    pages.made(config, 1, working("fetch"), state="building")
    waiting = pages.made(config, 2, {"enqueued_at": earlier})
    Job.objects.filter(subject_id=waiting.pk).update(created_at=earlier)
    assert "queued behind 1 job" in text_of(signed_in(charlie).get(reverse("builds")))


def test_the_list_offers_operators_what_they_may_do(bob: User, alice: User, signed_in: Any) -> None:
    config, gib = pages.config(), 1024**3
    capabilities = pages.build("registered").capabilities
    build = pages.made(
        config, job=ended("compile", "succeeded"), state="ready", size=3 * gib, capabilities=capabilities
    )
    registered = Build.objects.get(name="registered")
    text = text_of(signed_in(bob).get(reverse("builds")))
    assert "1 build made here takes 3.0 GiB of the disk" in text
    assert "with its files (3.0 GiB)" in text
    assert reverse("build-delete", args=[build.pk]) in text
    assert reverse("build-delete", args=[registered.pk]) not in text
    assert reverse("build-delete", args=[registered.pk]) in text_of(signed_in(alice).get(reverse("builds")))


def test_an_operator_cannot_touch_a_registered_binary(bob: User, signed_in: Any) -> None:
    build, client = pages.build(), signed_in(bob)
    for name in ("build-delete", "build-probe"):
        assert client.post(reverse(name, args=[build.pk])).status_code == 403
    build.refresh_from_db()
    assert build.state == Build.State.READY


def test_the_list_tells_what_is_newer_once_it_was_counted(bob: User, charlie: User, signed_in: Any) -> None:
    known = {"state": "ready", "source_commit": pages.COMMIT, "path": "/data/builds/1/llama-server"}
    config = pages.config()
    pages.made(config, 1, ended("compile", "succeeded"), **known, behind=12, behind_at=timezone.now())
    pages.made(config, 2, ended("compile", "succeeded"), **known, behind=0, behind_at=timezone.now())
    uncounted = pages.made(config, 3, ended("compile", "succeeded"), **known)
    text = text_of(signed_in(bob).get(reverse("builds")))
    assert "12 behind" in text
    assert "up to date" in text
    assert reverse("build-behind", args=[uncounted.pk]) in text
    assert reverse("build-behind", args=[uncounted.pk]) not in text_of(
        signed_in(charlie).get(reverse("builds"))
    )


def test_a_build_is_canceled_and_made_again(bob: User, signed_in: Any) -> None:
    pages.looked_at()
    build, client = pages.made(pages.config()), signed_in(bob)
    answer = client.post(reverse("build-cancel", args=[build.pk]), {"next": reverse("builds")})
    assert answer["Location"] == reverse("builds")
    build.refresh_from_db()
    assert build.state == Build.State.CANCELED
    answer = client.post(reverse("build-rebuild", args=[build.pk]), headers={"HX-Request": "true"})
    again = Build.objects.latest("pk")
    assert answer["HX-Redirect"] == reverse("build-detail", args=[again.pk])
    assert (again.state, again.inputs) == ("queued", build.inputs)


def test_a_build_without_its_config_cannot_be_made_again(bob: User, signed_in: Any) -> None:
    config = pages.config()
    build = pages.made(config, job=ended("compile", "failed"), state="failed")
    config.delete()
    text = text_of(page(signed_in(bob), build))
    assert reverse("build-rebuild", args=[build.pk]) not in text
    assert 'data-reason="Its build config was deleted."' in text


def test_the_page_follows_the_log_of_the_step_that_runs(charlie: User, signed_in: Any) -> None:
    build = pages.made(pages.config(), job=working("compile"), state="building")
    fetch, compiling = pages.build_run(build, "fetch"), pages.build_run(build, "compile")
    answer = page(signed_in(charlie), build)
    text = text_of(answer)
    assert answer.context["run"] == compiling
    assert f"log:{compiling.pk}" in answer.context["topics"]
    assert f'id="build-{build.pk}" data-run="{compiling.pk}"' in text
    assert f'id="log-part" aria-labelledby="log-title" data-run="{compiling.pk}"' in text
    assert f'href="{reverse("build-detail", args=[build.pk])}?step=fetch"' in text
    assert "12 s" in text

    answer = page(signed_in(charlie), build, "?step=fetch")
    text = text_of(answer)
    assert answer.context["run"] == fetch
    # A page on which somebody reads an older step does not run away from it.
    assert f'id="build-{build.pk}" data-run=""' in text
    [topic, *_rest] = live.subscriptions(answer.context["topics"])
    assert 'data-run=""' in topic.topic.render("viewer", topic.arg)
    assert "Follow the build" in text


def test_the_next_step_reaches_an_open_page(charlie: User, signed_in: Any) -> None:
    build = pages.made(pages.config(), job=working("fetch"), state="building")
    pages.build_run(build, "fetch")
    answer = page(signed_in(charlie), build)
    [topic, *_rest] = live.subscriptions(answer.context["topics"])
    compiling = pages.build_run(build, "compile")
    Job.objects.filter(subject_id=build.pk).update(**working("compile"))
    html = topic.topic.render("viewer", topic.arg)
    assert f'data-run="{compiling.pk}" hx-swap-oob="true"' in html
    assert re.search(r'<li class="is-now" aria-current="step">.*compile', html)


def test_after_a_failure_the_page_shows_the_failed_step_and_its_cause(bob: User, signed_in: Any) -> None:
    build = pages.made(pages.config(), job=ended("configure", "failed"), state="failed")
    pages.build_run(build, "fetch", state="exited", exit_code=0)
    failed = pages.build_run(build, "configure", state="exited", exit_code=1)
    build.diagnosis = [stored(Change("host_compiler", "/usr/bin/g++-13"), failed.pk)]
    build.save()
    answer = page(signed_in(bob), build)
    text = text_of(answer)
    assert answer.context["run"] == failed
    assert 'class="is-failed"' in text
    assert "The compiler is too new for CUDA." in text
    assert f'href="{reverse("run-log", args=[failed.pk])}?at=70"' in text
    assert "unsupported &lt;GNU&gt; version!" in text
    assert f"{reverse('config-edit', args=[build.config.pk])}?change={build.pk}" in text


def test_the_page_says_in_what_the_config_differs_by_now(charlie: User, signed_in: Any) -> None:
    config = pages.config(ref="main")
    build = pages.made(config, job=ended("compile", "succeeded"), state="ready")
    assert "The build config differs by now" not in text_of(page(signed_in(charlie), build))
    config.ref = "mtp"
    config.save()
    text = text_of(page(signed_in(charlie), build))
    assert "<del>main</del> <ins>mtp</ins>" in text


def test_a_build_that_has_told_nothing_yet_is_not_offered_to_profiles(bob: User, signed_in: Any) -> None:
    ready, model = pages.build("ready"), pages.model()
    waiting = pages.made(pages.config())
    client = signed_in(bob)
    text = text_of(client.get(reverse("profile-new")))
    assert f'<option value="{ready.pk}"' in text
    assert f'<option value="{waiting.pk}"' not in text
    answer = client.post(reverse("profile-new"), pages.form(waiting, model))
    assert "build" in answer.context["preview"].form.errors


def test_a_build_made_here_is_deleted_with_its_files(bob: User, signed_in: Any) -> None:
    build, client = pages.made(pages.config(), job=ended("compile", "failed"), state="failed"), signed_in(bob)
    answer = client.post(
        reverse("build-delete", args=[build.pk]), {"next": "/builds/?state=failed"}, follow=True
    )
    assert answer.redirect_chain[-1][0] == "/builds/?state=failed"
    assert "was deleted with its files" in text_of(answer)
    assert not Build.objects.exists()
