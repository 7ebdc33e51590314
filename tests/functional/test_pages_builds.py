"""Pages of builds: what they show, and what their buttons do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from jobs.models import AuditEntry, Build, Job
from tests.functional import pages

pytestmark = pytest.mark.django_db


def text_of(answer: Any) -> str:
    return answer.content.decode()


def test_an_empty_list_says_the_next_step(alice: User, charlie: User, signed_in: Any) -> None:
    assert reverse("build-register") in text_of(signed_in(alice).get(reverse("builds")))
    assert reverse("build-register") not in text_of(signed_in(charlie).get(reverse("builds")))


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
