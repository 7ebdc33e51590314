"""Changes of what lies on which card, and of what stays in main memory."""

from __future__ import annotations

import pytest

from controlpanel.llamacpp.memory import Device, estimate
from controlpanel.llamacpp.tradeoffs import Loss
from controlpanel.llamacpp.tradeoffs_trial import Trial
from tests.unit.test_tradeoffs import (
    BIG,
    FORK,
    RECIPE,
    TWO,
    UPSTREAM,
    by_key,
    experts,
    found_for,
    keys,
    vision,
    without,
)


@pytest.mark.parametrize(
    "devices",
    [
        TWO,
        (Device("CUDA0", 24_576, 9000), Device("CUDA1", 32_768)),
        (Device("CUDA0", 49_152), Device("CUDA1", 12_288)),
    ],
)
def test_no_split_of_two_cards_leaves_more_room_than_the_one_offered(devices: tuple[Device, ...]) -> None:
    found = found_for(RECIPE, devices, mmproj=vision())
    trial = Trial([BIG], vision(), RECIPE, "fork", devices)
    outcomes = [trial.outcome({"tensor_split": f"{count},{66 - count}"}) for count in range(67)]
    best = max(outcome.room for outcome in outcomes if outcome is not None)
    entry = by_key(found, "split")
    assert entry.freed is not None and entry.freed == pytest.approx(best - trial.base.room)
    shares = str(entry.changes["tensor_split"])
    assert all(int(share) < 66 for share in shares.split(","))


def test_a_split_is_for_several_cards_and_for_layers() -> None:
    assert "split" not in keys(found_for(RECIPE | {"tensor_split": None}, TWO[:1]))
    assert "split" not in keys(found_for({**RECIPE, "split_mode": "none"}, offered=FORK))


def test_eight_uneven_cards_are_filled_evenly() -> None:
    sizes = (12_288, 8192, 24_576, 8192, 16_384, 8192, 6144, 12_288)
    devices = tuple(Device(f"CUDA{index}", size) for index, size in enumerate(sizes))
    settings: dict[str, object] = {"ctx_size": 32_768, "parallel": 1, "tensor_split": "1,1,1,1,1,1,1,1"}
    entry = by_key(found_for(settings, devices, dialect="upstream", offered=UPSTREAM), "split")
    assert entry.verdict == "fits" and len(str(entry.changes["tensor_split"]).split(",")) == 8


def test_the_fewest_experts_that_fit_go_to_main_memory() -> None:
    one = (Device("CUDA0", 16_384),)
    settings: dict[str, object] = {"ctx_size": 16_384, "parallel": 1}
    found = found_for(settings, one, model=experts(), dialect="upstream", offered=UPSTREAM)
    layers = by_key(found, "experts").changes["n_cpu_moe"]
    assert isinstance(layers, int) and layers > 1
    fewer = estimate(experts(), None, {**settings, "n_cpu_moe": layers - 1}, "upstream", one)
    assert fewer.verdict != "fits"
    only_all = without(UPSTREAM, "n_cpu_moe")
    found = found_for(settings, one, model=experts(), dialect="upstream", offered=only_all)
    assert by_key(found, "experts").changes == {"cpu_moe": "on"}
    assert "experts" not in keys(found_for(RECIPE, offered=FORK))


def test_experts_of_two_cards_are_moved_with_another_split() -> None:
    two = (Device("CUDA0", 8192), Device("CUDA1", 8192))
    settings: dict[str, object] = {"ctx_size": 16_384, "parallel": 1}
    found = found_for(settings, two, model=experts(), dialect="upstream", offered=UPSTREAM)
    assert any({"n_cpu_moe", "tensor_split"} <= set(entry.changes) for entry in found)
    assert found[0].verdict == "fits"


def test_the_projector_goes_to_main_memory_where_the_build_can_do_it() -> None:
    one = (Device("CUDA0", 32_768),)
    settings: dict[str, object] = {"ctx_size": 65_536, "parallel": 1}
    cannot = without(UPSTREAM, "mmproj_offload")
    found = found_for(settings, one, mmproj=vision(), dialect="upstream", offered=UPSTREAM)
    assert by_key(found, "projector").changes == {"mmproj_offload": "off"}
    found = found_for(settings, one, mmproj=vision(), dialect="upstream", offered=cannot)
    assert all("mmproj_offload" not in entry.changes for entry in found)
    assert "projector" not in keys(found_for(settings, one, dialect="upstream", offered=UPSTREAM))


def test_as_many_layers_as_fit_stay_on_the_card() -> None:
    one = (Device("CUDA0", 20_480),)
    settings: dict[str, object] = {"ctx_size": 16_384, "parallel": 1, "gpu_layers": 99}
    found = found_for(settings, one, dialect="upstream", offered=UPSTREAM)
    entry = by_key(found, "gpu_layers")
    layers = entry.changes["gpu_layers"]
    assert isinstance(layers, int) and entry.loss == Loss.LAST
    more = estimate(BIG, None, {**settings, "gpu_layers": layers + 1}, "upstream", one)
    assert entry.verdict == "fits" and more.verdict != "fits"
