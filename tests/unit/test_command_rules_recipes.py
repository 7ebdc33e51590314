"""The profiles of a model with 27 billion values, MTP and vision on two cards are free of findings."""

import dataclasses

from controlpanel.llamacpp.facts import HostFacts
from controlpanel.llamacpp.helptext import Device
from tests.unit.test_command_rules import FORK, UPSTREAM, big_model, big_projector, shown, warned

HOST = HostFacts(memory_mib=128_000, cores=20, gpus=2)
CARDS = tuple(Device(f"CUDA{n}", "NVIDIA GeForce RTX 3090", 24_135, 23_800) for n in range(2))
RECIPE: dict[str, object] = {
    "ctx_size": 204_800,
    "gpu_layers": 99,
    "tensor_split": "1,1",
    "flash_attn": "on",
    "ubatch": 512,
    "cache_type_k": "q8_0",
    "speculation": "mtp",
    "draft_max": 3,
    "draft_type_k": "q8_0",
    "draft_type_v": "q8_0",
    "parallel": 1,
}


def test_the_recipe_for_the_fork_is_free_of_findings() -> None:
    caps = dataclasses.replace(FORK, devices=CARDS)
    values = {**RECIPE, "cache_type_v": "turbo4"}
    rendered = shown(caps, values, model=big_model(), mmproj=big_projector(), host=HOST)
    assert rendered.problems == []
    assert "--spec-type mtp" in " ".join(rendered.argv)


def test_the_recipe_for_upstream_is_free_of_findings() -> None:
    caps = dataclasses.replace(UPSTREAM, devices=CARDS)
    for kinds in ({"cache_type_v": "q8_0"}, {"cache_type_k": "q4_0", "cache_type_v": "q4_0"}):
        values = {**RECIPE, **kinds, "load_mode": "none"}
        rendered = shown(caps, values, model=big_model(), mmproj=big_projector(), host=HOST)
        assert rendered.problems == []
        assert "--spec-type draft-mtp" in " ".join(rendered.argv)


def test_a_guide_that_asks_for_turbo_keys_is_told_what_runs() -> None:
    values: dict[str, object] = {
        **RECIPE,
        "ubatch": 1024,
        "cache_type_k": "turbo4",
        "cache_type_v": "turbo4",
        "draft_type_k": None,
        "draft_type_v": None,
    }
    found = warned(FORK, values, "--jinja", model=big_model(), mmproj=big_projector(), host=HOST)
    assert set(found) == {"cache_type_k", "draft_type_k"}
