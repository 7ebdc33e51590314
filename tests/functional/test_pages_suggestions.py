"""Beside the form: what would make a profile fit, and measuring; on the server page what a start took."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.urls import reverse

from jobs.models import Build, Job, ModelArtifact
from jobs.services import gpus, jobs
from servers.models import StartReading
from servers.services import estimates
from servers.services.measure import MEASURE
from tests.cards import publish_cards
from tests.functional import pages
from tests.functional.test_fit_pages import CARD
from tests.models import tiny_models

pytestmark = pytest.mark.django_db
SMALL = replace(CARD, memory_total_mib=1750, memory_used_mib=1000)


@pytest.fixture(autouse=True)
def fresh(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """No samples and no headers of the tests before."""
    monkeypatch.setattr(gpus, "_shown", None)
    monkeypatch.setattr(gpus, "_next_try", 0.0)
    estimates._read.cache_clear()


@pytest.fixture
def mainline() -> Build:
    return pages.build("mainline")


@pytest.fixture
def tiny(tmp_path: Path) -> ModelArtifact:
    return pages.model_of(tiny_models(tmp_path)[0])


def text_of(answer: Any) -> str:
    return unescape(re.sub(r"\s+", " ", answer.content.decode()))


def changes_in(answer: Any) -> list[dict[str, str]]:
    """The changes that the page offers, field to value."""
    found = re.findall(r'data-changes="([^"]*)"', answer.content.decode())
    return [json.loads(unescape(changes)) for changes in found]


def test_a_profile_that_is_too_much_is_told_what_would_make_it_fit(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact
) -> None:
    publish_cards(SMALL)
    data = pages.form(mainline, tiny, ctx_size="262144", parallel="1", gpu_layers="all")
    client, address = signed_in(bob), reverse("profile-preview")
    answer = client.post(address, data)
    text, offered = text_of(answer), changes_in(answer)
    assert "What would make it fit" in text and "Context size" in text and offered
    assert all(key in answer.context["preview"].fields for change in offered for key in change)
    # The first one, taken, fits.
    assert "What else is possible" in text_of(client.post(address, {**data, **offered[0]}))


def test_a_profile_that_fits_offers_more_on_request(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact
) -> None:
    publish_cards(CARD)
    client, data = signed_in(bob), pages.form(mainline, tiny, ctx_size="1024", parallel="1")
    assert "data-changes" not in text_of(client.post(reverse("profile-preview"), data))
    text = text_of(client.post(reverse("profile-preview"), {**data, "suggest": "1"}))
    assert "What else is possible" in text and '"ctx_size": "4096"' in text


def test_what_extra_arguments_decide_is_left_alone(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact
) -> None:
    publish_cards(SMALL)
    data = pages.form(mainline, tiny, parallel="1", extra_args="--ctx-size 262144")
    found = changes_in(signed_in(bob).post(reverse("profile-preview"), data))
    assert found and all("ctx_size" not in change for change in found)


def test_only_the_cards_that_the_server_may_see_are_judged(
    alice: User, signed_in: Any, mainline: Build, tiny: ModelArtifact
) -> None:
    uuids = [f"GPU-{number}2345678-aaaa-bbbb-cccc-0123456789ab" for number in (1, 2)]
    publish_cards(replace(CARD, uuid=uuids[0]), replace(CARD, index=1, uuid=uuids[1]))
    client = signed_in(alice)
    for value, names in (
        ("", ["0 · RTX 3090", "1 · RTX 3090"]),
        (f"{uuids[1]},{uuids[0]}", ["1 · RTX 3090", "0 · RTX 3090"]),
        ("GPU-2", ["1 · RTX 3090"]),
        ("0", ["0 · RTX 3090"]),
        ("1,7,0", ["1 · RTX 3090"]),
        (",".join("0" * 5000), ["0 · RTX 3090"]),
        ("²", []),
        ("-1", []),
    ):
        environment = f"CUDA_VISIBLE_DEVICES={value}" if value else ""
        data = pages.form(mainline, tiny, ctx_size="1024", environment=environment)
        fit = client.post(reverse("profile-preview"), data).context["fit"]
        assert [card.name for card in fit.cards] == names, value


def test_a_build_without_the_tool_says_how_to_get_it(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact
) -> None:
    client = signed_in(bob)
    text = text_of(client.post(reverse("profile-measure"), pages.form(mainline, tiny, ctx_size="1024")))
    job = Job.objects.get(kind=MEASURE)
    assert reverse("profile-measured", args=[job.pk]) in text
    jobs.execute(job.pk)
    text = text_of(client.get(reverse("profile-measured", args=[job.pk])))
    assert "There is no llama-fit-params beside" in text and "hx-get" not in text


def test_one_person_measures_one_thing_at_a_time(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact
) -> None:
    client, data = signed_in(bob), pages.form(mainline, tiny, ctx_size="1024")
    client.post(reverse("profile-measure"), data)
    assert "not ready yet" in text_of(client.post(reverse("profile-measure"), data))
    assert Job.objects.filter(kind=MEASURE).count() == 1


def test_what_was_measured_stands_beside_the_estimate(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact
) -> None:
    client = signed_in(bob)
    client.post(reverse("profile-measure"), pages.form(mainline, tiny, ctx_size="1024"))
    job = Job.objects.get(kind=MEASURE)
    rows = [{"name": "Host", "model": 3, "context": 1, "compute": 2}]
    job.params = {**job.params, "rows": rows, "left": ["--spec-type"]}
    job.save()
    text = text_of(client.get(reverse("profile-measured", args=[job.pk])))
    assert "3 MiB" in text and "--spec-type" in text
    assert re.search(r"estimate</td><td class=\"num\">2\.0 MiB", text)


def test_a_form_with_errors_is_not_measured(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact
) -> None:
    text = text_of(signed_in(bob).post(reverse("profile-measure"), pages.form(mainline, tiny, ctx_size="5")))
    assert "mend them first" in text and not Job.objects.exists()


def test_the_servers_page_shows_what_its_start_took(charlie: User, signed_in: Any) -> None:
    profile = pages.profile("Daily")
    run = pages.run_of(profile)
    StartReading.objects.create(
        run=run,
        profile=profile,
        build=profile.build,
        architecture="qwen35",
        backend="CUDA",
        estimated={"0": {"weights": 100.0, "compute": 50.0}, "-1": {"weights": 10.0}},
        measured={"0": {"weights": 100.0, "compute": 30.0}, "-1": {"weights": 10.0}},
        learned={"version": 1},
    )
    text = text_of(signed_in(charlie).get(reverse("server-detail", args=[profile.pk])))
    assert "Memory of this start" in text and "GPU 0" in text and "Main memory" in text
    assert '<td>Computation</td><td class="num">50.0 MiB</td><td class="num">30.0 MiB</td>' in text
    assert "corrects the estimates for this build" in text
