"""Rules about GPUs, experts, batches and threads."""

import dataclasses

import pytest

from controlpanel.llamacpp.facts import HostFacts
from controlpanel.llamacpp.helptext import Device
from tests.unit.test_command_rules import FORK, UPSTREAM, big_model, refused, shown, warned

TWO = HostFacts(gpus=2)
CARDS = tuple(Device(f"CUDA{n}", "NVIDIA GeForce RTX 3090", 24_135, 23_800) for n in range(2))
PROBED = dataclasses.replace(UPSTREAM, devices=CARDS)


def test_gpus_without_a_share_get_nothing() -> None:
    assert "others get nothing" in warned(UPSTREAM, {"tensor_split": "1"}, host=TWO)["tensor_split"]
    assert "others get nothing" in warned(PROBED, {"tensor_split": "1"})["tensor_split"]
    assert warned(UPSTREAM, {"tensor_split": "1,0"}, host=TWO) == {}
    assert warned(UPSTREAM, {"tensor_split": "1"}) == {}


def test_only_the_gpus_that_the_server_sees_count() -> None:
    one = {"CUDA_VISIBLE_DEVICES": "GPU-8f6e2a10-1111-2222-3333-444455556666"}
    assert warned(PROBED, {"tensor_split": "1"}, host=TWO, environment=one) == {}
    assert "sees 1" in refused(PROBED, {"tensor_split": "3,1"}, host=TWO, environment=one)["tensor_split"]
    both = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert refused(PROBED, {"tensor_split": "3,1"}, host=TWO, environment=both) == {}
    stopped = {"CUDA_VISIBLE_DEVICES": "0,-1,1"}
    assert "sees 1" in refused(PROBED, {"tensor_split": "3,1"}, environment=stopped)["tensor_split"]
    assert warned(PROBED, {"tensor_split": "1"}, "-dev", "CUDA0") == {}


def test_more_shares_than_gpus_are_told_once() -> None:
    for caps in (PROBED, UPSTREAM):
        problems = shown(caps, {"tensor_split": "1,1,1"}, host=TWO).problems
        assert [(problem.level, problem.field) for problem in problems] == [("error", "tensor_split")]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tensor_split": "1,1", "split_mode": "none"}, "goes to one GPU"),
        ({"tensor_split": "1,1", "gpu_layers": 0}, "0 GPU layers"),
    ],
)
def test_a_split_that_splits_nothing_is_warned_about(values: dict[str, object], words: str) -> None:
    assert words in warned(UPSTREAM, values, host=TWO)["tensor_split"]
    assert warned(UPSTREAM, {"tensor_split": "1,1", "split_mode": "layer", "gpu_layers": 99}, host=TWO) == {}


def test_the_main_gpu_exists() -> None:
    values: dict[str, object] = {"main_gpu": 2, "split_mode": "none"}
    assert "no GPU 2" in refused(UPSTREAM, values, host=TWO)["main_gpu"]
    assert "no GPU 2" in refused(PROBED, values)["main_gpu"]
    assert refused(UPSTREAM, {**values, "main_gpu": 1}, host=TWO) == {}
    assert refused(UPSTREAM, values) == {}


def test_the_main_gpu_counts_with_two_split_modes_only() -> None:
    assert "none or row" in warned(UPSTREAM, {"main_gpu": 0})["main_gpu"]
    assert "none or row" in warned(UPSTREAM, {"main_gpu": 0, "split_mode": "layer"})["main_gpu"]
    assert warned(UPSTREAM, {"main_gpu": 0, "split_mode": "none"}) == {}


def test_splitting_by_tensor_is_experimental() -> None:
    assert "experimental" in warned(UPSTREAM, {"split_mode": "tensor"})["split_mode"]
    values: dict[str, object] = {"split_mode": "tensor", "cache_type_k": "q8_0"}
    assert "f16" in refused(FORK, values)["split_mode"]
    assert refused(FORK, {"split_mode": "tensor"}) == {}
    assert warned(UPSTREAM, {"split_mode": "layer"}) == {}


def test_splitting_by_row_is_not_fitted() -> None:
    assert "by itself" in warned(UPSTREAM, {"split_mode": "row"})["split_mode"]
    assert warned(UPSTREAM, {"split_mode": "row", "gpu_layers": 99}) == {}
    assert warned(UPSTREAM, {"split_mode": "row", "fit": "off"}) == {}


def test_experts_stay_on_the_cpu_in_one_way() -> None:
    values: dict[str, object] = {"cpu_moe": "on", "n_cpu_moe": 4}
    assert "already" in warned(UPSTREAM, values)["n_cpu_moe"]
    for key, value in values.items():
        assert warned(UPSTREAM, {key: value}, model=big_model(expert_count=256)) == {}


@pytest.mark.parametrize(("key", "value"), [("cpu_moe", "on"), ("n_cpu_moe", 4)])
def test_a_dense_model_has_no_experts_to_move(key: str, value: object) -> None:
    assert "no experts" in warned(UPSTREAM, {key: value}, model=big_model())[key]
    assert warned(UPSTREAM, {key: value}, model=big_model(expert_count=None)) == {}
    assert warned(UPSTREAM, {"n_cpu_moe": 0}, model=big_model()) == {}


def test_a_micro_batch_is_cut_to_the_batch() -> None:
    assert "cuts" in warned(UPSTREAM, {"batch": 512, "ubatch": 1024})["ubatch"]
    assert "of 512 tokens" in warned(UPSTREAM, {"batch": 256})["batch"]
    assert "batch of 2048" in warned(UPSTREAM, {"ubatch": 4096})["ubatch"]
    assert warned(UPSTREAM, {"batch": 1024, "ubatch": 1024}) == {}


@pytest.mark.parametrize("key", ["threads", "threads_batch"])
def test_more_threads_than_cores_are_warned_about(key: str) -> None:
    host = HostFacts(cores=10)
    assert "10 cores" in warned(UPSTREAM, {key: 20}, host=host)[key]
    assert warned(UPSTREAM, {key: 10}, host=host) == {}
    assert warned(UPSTREAM, {key: 20}) == {}
