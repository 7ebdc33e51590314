"""The memory estimate beside a profile's form and in a look at the hub: real headers, published cards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.template.loader import render_to_string
from django.urls import reverse

from controlpanel.llamacpp.gguf import examine
from controlpanel.llamacpp.memory import Device, estimate
from controlpanel.llamacpp.memory_types import MIB
from jobs.domain.gpu import GpuProcess, GpuSample
from jobs.models import Build, Host, ModelArtifact
from jobs.services import gpus
from jobs.services.builds import capabilities_of
from jobs.services.fits import fit_line
from servers.models import Instance
from servers.services import estimates
from tests.cards import publish_cards
from tests.fakes.hub import Hub
from tests.functional import pages
from tests.models import plain_model, tiny_models

pytestmark = pytest.mark.django_db
CARD = GpuSample(0, name="RTX 3090", memory_total_mib=24576, memory_used_mib=1024)
ADDRESS = f"/models/hub/{pages.HUB_REPO}/peek/"


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


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Iterator[Hub]:
    with pages.hub(tmp_path, monkeypatch, settings) as server:
        yield server


def preview(client: Any, build: Build, model: ModelArtifact, **values: Any) -> Any:
    return client.post(reverse("profile-preview"), pages.form(build, model, **values))


def memory(answer: Any) -> str:
    """The card of the form as text; empty without one."""
    found = re.search(
        r'<section class="card" aria-labelledby="fit-title">.*?</section>', html(answer), re.DOTALL
    )
    return plain(found[0]) if found else ""


def html(answer: Any) -> str:
    assert answer.status_code == 200
    return str(answer.content.decode())


def plain(text: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


def sizes(parts: Any) -> dict[str, Any]:
    return {part.key: part.size for part in parts}


def test_each_card_has_a_bar_whose_terms_are_those_of_the_estimate(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact, host: Host
) -> None:
    publish_cards(CARD, replace(CARD, index=1, memory_used_mib=0))
    values = {
        "ctx_size": 8192,
        "speculation": "mtp",
        "parallel": 1,
        "gpu_layers": "all",
        "tensor_split": "1,1",
    }
    answer = preview(signed_in(bob), mainline, tiny, **values)
    shown = answer.context["fit"]
    devices = (Device("a", 24576, 1024), Device("b", 24576, 0))
    want = estimate(examine(tiny.path).parts, None, values, "upstream", devices)
    assert shown.state == "ready"
    for card, wanted in zip(shown.cards, want.devices, strict=True):
        assert card.total == pytest.approx((wanted.total or 0) * MIB, abs=1)
        assert sum(part.size for part in card.parts) == pytest.approx(card.total, abs=len(card.parts))
        assert card.free == card.capacity - card.total
    assert sizes(shown.cards[0].parts)["others"] == 1024 * MIB
    assert sizes(shown.cards[1].parts)["mtp"] > 0
    text = memory(answer)
    for words in (
        "Memory estimate fits",
        "0 · RTX 3090",
        "1 · RTX 3090",
        "/ 24.0 GiB",
        "Weights",
        "KV cache",
        "Free",
    ):
        assert words in text
    assert "Other programs 1.0 GiB" in text
    assert "Main memory" in text
    assert "Prompt cache, at most 8.0 GiB" in text
    assert html(answer).count('<svg class="fit-bar"') == 2
    assert "style=" not in html(answer)


def test_the_parts_of_a_bar_lie_side_by_side_within_the_card(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact, host: Host
) -> None:
    publish_cards(replace(CARD, memory_total_mib=4096))
    (card,) = preview(signed_in(bob), mainline, tiny).context["fit"].cards
    for one, other in zip(card.parts, card.parts[1:], strict=False):
        assert other.x == one.x + one.width
    last = card.parts[-1]
    assert last.x + last.width == pytest.approx(1000 * card.total / card.capacity, abs=1)
    assert last.width == 250


def test_typing_a_larger_context_turns_the_verdict(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact, host: Host
) -> None:
    publish_cards(replace(CARD, memory_total_mib=2500))
    client = signed_in(bob)
    small = preview(client, mainline, tiny, ctx_size=512, parallel=1)
    assert "Memory estimate fits" in memory(small)
    large = preview(client, mainline, tiny, ctx_size=4_000_000, parallel=1)
    assert "Memory estimate does not fit" in memory(large)
    assert "Too much" in memory(large)
    assert "Too much, at most" not in memory(large)
    assert "Too much, at most" in memory(preview(client, mainline, tiny, ctx_size=600_000, parallel=1))
    (card,) = large.context["fit"].cards
    assert card.free is None
    assert card.edge < 1000
    assert 'class="fit-part fit-kv"' in html(large)
    assert 'class="fit-edge"' not in html(small).replace('class="fit-key fit-edge"', "")


def test_a_projector_has_a_part_of_its_own(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact, host: Host, tmp_path: Path
) -> None:
    publish_cards(CARD)
    mmproj = pages.model_of(tiny_models(tmp_path)[1])
    answer = preview(signed_in(bob), mainline, tiny, mmproj=mmproj.pk)
    assert "Vision projector" in memory(answer)
    assert "Vision projector" not in memory(preview(signed_in(bob), mainline, tiny))


def test_without_a_sample_main_memory_is_shown_and_nothing_is_judged(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact, host: Host
) -> None:
    answer = preview(signed_in(bob), mainline, tiny)
    assert answer.context["fit"].cards == ()
    assert sizes(answer.context["fit"].host)["weights"] > 0
    text = memory(answer)
    assert text.startswith("Memory estimate Main memory")
    assert "No GPU is named" in text


def test_an_old_sample_and_a_card_without_numbers_are_told(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact, host: Host
) -> None:
    publish_cards(CARD, GpuSample(index=1), age=60)
    answer = preview(signed_in(bob), mainline, tiny)
    assert len(answer.context["fit"].cards) == 1
    assert "not current" in memory(answer)
    assert "GPU 1 does not tell its memory" in memory(answer)


def test_a_build_for_the_processor_alone_takes_nothing_of_a_card(
    bob: User, signed_in: Any, tiny: ModelArtifact, host: Host
) -> None:
    publish_cards(CARD)
    answer = preview(signed_in(bob), pages.build("cpu", inputs={"backend": "cpu"}), tiny)
    assert answer.context["fit"].cards == ()
    assert "This build uses no GPU" in memory(answer)


def test_a_build_that_lists_no_device_takes_nothing_of_a_card(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact, host: Host
) -> None:
    publish_cards(CARD)
    mainline.capabilities = replace(capabilities_of(mainline), devices=()).to_dict()
    mainline.save()
    answer = preview(signed_in(bob), mainline, tiny)
    assert "This build uses no GPU" in memory(answer) and not answer.context["fit"].cards
    # A build that cannot list devices may well use one.
    flags = tuple(flag for flag in capabilities_of(mainline).flags if "--list-devices" not in flag.names)
    mainline.capabilities = replace(capabilities_of(mainline), flags=flags).to_dict()
    mainline.save()
    assert preview(signed_in(bob), mainline, tiny).context["fit"].cards


@pytest.mark.parametrize(("mib", "word"), [(24_576, "Fits"), (15, "Tight"), (2, "Does not fit")])
def test_main_memory_is_judged_where_its_size_is_known(
    mib: int, word: str, bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact
) -> None:
    pages.looked_at(replace(pages.TOOLCHAIN, memory_mib=mib))
    publish_cards(CARD)
    values = {"gpu_layers": "0", "ctx_size": "4096", "parallel": "1", "cache_ram": "0"}
    assert preview(signed_in(bob), mainline, tiny, **values).context["fit"].word == word


def test_extra_arguments_count_and_one_that_is_not_known_is_told(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact, host: Host
) -> None:
    publish_cards(CARD)
    client = signed_in(bob)
    without = preview(client, mainline, tiny).context["fit"]
    answer = preview(client, mainline, tiny, extra_args="--no-kv-offload")
    assert "kv" in sizes(without.cards[0].parts)
    assert "kv" not in sizes(answer.context["fit"].cards[0].parts)
    assert sizes(answer.context["fit"].host)["kv"] > 0
    told = memory(preview(client, mainline, tiny, extra_args="--override-tensor blk=CPU"))
    assert told == "Memory estimate The estimate does not take --override-tensor into account."


def test_what_is_wrong_with_settings_or_files_is_said_in_words(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact, host: Host, tmp_path: Path
) -> None:
    client = signed_in(bob)
    publish_cards(CARD)
    assert "ctx_size cannot be many" in memory(preview(client, mainline, tiny, ctx_size="many"))
    plain_one = pages.model_of(plain_model(tmp_path))
    assert "holds no MTP heads" in memory(
        preview(client, mainline, plain_one, speculation="mtp", parallel="1")
    )
    assert "There is no file /data/gone.gguf" in memory(preview(client, mainline, pages.model("gone")))
    assert "closed" in memory(preview(client, mainline, tiny, extra_args='"'))
    huge = preview(client, mainline, tiny, ctx_size="9" * 18, parallel="1")
    assert "Memory estimate does not fit" in memory(huge)
    # Shares that are nothing as 32-bit floats.
    publish_cards(CARD, replace(CARD, index=1))
    nothing = preview(client, mainline, tiny, tensor_split="1e-320,1e-320")
    assert "Memory estimate" in memory(nothing) and "make no sense" not in memory(nothing)
    elsewhere = pages.model("far")
    elsewhere.host = Host.objects.create(slug="far", name="Far")
    elsewhere.save()
    assert "far lies on another host" in memory(preview(client, mainline, elsewhere))


def test_a_header_is_read_again_only_when_the_file_changes(
    bob: User, signed_in: Any, mainline: Build, tmp_path: Path, host: Host
) -> None:
    path = tmp_path / "changes.gguf"
    path.write_bytes(tiny_models(tmp_path)[0].read_bytes())
    model = pages.model_of(path)
    client = signed_in(bob)
    for _again in range(2):
        preview(client, mainline, model)
    assert estimates._read.cache_info().misses == 1
    path.write_bytes(path.read_bytes()[:100])
    assert "Main memory" not in memory(preview(client, mainline, model))
    assert estimates._read.cache_info().maxsize == 16


def test_what_the_profiles_own_server_holds_is_free_for_it(
    bob: User, signed_in: Any, mainline: Build, tiny: ModelArtifact, host: Host
) -> None:
    row = pages.profile("Own", Instance.Observed.READY, build=mainline, model=tiny)
    pages.run_of(row, pid=812)
    publish_cards(replace(CARD, processes=(GpuProcess(812, "llama-server", 700), GpuProcess(9, "Xorg", 324))))
    client = signed_in(bob)
    page = client.get(reverse("profile-edit", args=[row.pk]))
    typed = preview(client, mainline, tiny, profile=row.pk)
    other = preview(client, mainline, tiny)
    assert f'name="profile" value="{row.pk}"' in html(page)
    for answer, used in ((page, 324), (typed, 324), (other, 1024)):
        assert sizes(answer.context["fit"].cards[0].parts)["others"] == used * MIB
    assert "of GPU 0 now is taken as free" in memory(page)
    assert "taken as free" not in memory(other)


def peek(client: Any, **data: Any) -> Any:
    return client.post(ADDRESS, {"file": "Tiny-MTP-Q4_K_M.gguf", **data})


def line(answer: Any) -> str:
    """The line of the look into a file; empty without one."""
    found = re.search(r'<p class="fit-line[^>]*>(.*?)</p>', html(answer), re.DOTALL)
    return plain(found[1]) if found else ""


def test_a_look_at_the_hub_says_whether_the_model_fits(
    bob: User, signed_in: Any, hub: Hub, host: Host
) -> None:
    client = signed_in(bob)
    assert "of main memory at a context of 8,192 tokens; no GPU of this host is known" in line(peek(client))
    publish_cards(CARD)
    text = line(peek(client))
    assert re.match(r"Fits : about [\d.]+ GiB of 24\.0 GiB of GPU memory at a context of 8,192 tokens", text)
    publish_cards(replace(CARD, memory_total_mib=1400))
    assert line(peek(client)).startswith("Tight : about")
    publish_cards(replace(CARD, memory_total_mib=1024))
    assert line(peek(client)).startswith("Does not fit : about")


def test_a_projector_that_goes_along_counts(bob: User, signed_in: Any, hub: Hub, host: Host) -> None:
    publish_cards(CARD)
    client = signed_in(bob)
    alone = peek(client, shown="Tiny-MTP-Q4_K_M.gguf").context["fit_line"]
    along = peek(client).context["fit_line"]
    assert along.needed > alone.needed


def test_one_part_of_a_split_model_does_not_tell_what_all_take(tmp_path: Path, host: Host) -> None:
    publish_cards(CARD)
    (header,) = examine(tiny_models(tmp_path)[0]).parts
    part = replace(header, metadata={**header.metadata, "split.count": 2})
    text = plain(render_to_string("jobs/_fit_line.html", {"fit_line": fit_line(part)}))
    assert text.startswith("Unknown : the header alone does not tell how much memory it takes")


def test_a_projector_and_a_page_without_a_look_have_no_line(
    bob: User, signed_in: Any, hub: Hub, host: Host
) -> None:
    publish_cards(CARD)
    client = signed_in(bob)
    assert line(client.post(ADDRESS, {"file": "mmproj-F16.gguf"})) == ""
    assert 'id="fit-line"' not in html(client.get(ADDRESS.removesuffix("peek/")))
