"""Which card holds which layer, and what stays in main memory."""

from __future__ import annotations

import pytest

from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.memory import Device, Estimate, estimate
from controlpanel.llamacpp.memory_layers import read_geometry
from controlpanel.llamacpp.memory_places import layer_places
from controlpanel.llamacpp.memory_settings import read_settings
from controlpanel.llamacpp.memory_types import HOST
from tests.unit.memory_headers import F16, Shapes, big_qwen, make_header, small_qwen, smol

TWO = (Device("CUDA0", 24_576), Device("CUDA1", 24_576))


def places(settings: dict[str, object], devices: tuple[Device, ...] = TWO) -> list[int]:
    """The places of the big model's 65 layers and its output."""
    geometry = read_geometry(big_qwen())
    assert geometry is not None
    return list(layer_places(geometry, read_settings(settings, "upstream", 4096), devices))


def found(model: GgufHeader, settings: dict[str, object], devices: tuple[Device, ...] = TWO) -> Estimate:
    """The upstream estimate without a projector."""
    return estimate(model, None, {"ctx_size": 4096, "parallel": 1, **settings}, "upstream", devices)


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        ({"tensor_split": "1,1"}, (0, 33, 33)),
        ({"tensor_split": "1e-320,1e-320"}, (0, 33, 33)),
        ({"tensor_split": "2,1"}, (0, 44, 22)),
        ({"tensor_split": "2/1"}, (0, 44, 22)),
        ({"tensor_split": "0,1"}, (0, 0, 66)),
        ({"tensor_split": "1"}, (0, 66, 0)),
        ({"tensor_split": "0,0"}, (0, 33, 33)),
        ({"gpu_layers": 0}, (66, 0, 0)),
        ({"gpu_layers": 10}, (56, 5, 5)),
        ({"gpu_layers": 99}, (0, 33, 33)),
        ({"gpu_layers": "all", "split_mode": "none", "main_gpu": 1}, (0, 0, 66)),
    ],
)
def test_layers_are_dealt_in_order_by_share(
    settings: dict[str, object], counts: tuple[int, int, int]
) -> None:
    placed = places(settings)
    assert tuple(placed.count(place) for place in (HOST, 0, 1)) == counts
    assert placed == sorted(placed)


def test_without_a_split_free_memory_decides() -> None:
    placed = places({}, (Device("CUDA0", 24_576, 16_384), Device("CUDA1", 24_576, 0)))
    assert placed.count(0) == 17 and placed.count(1) == 49


def test_everything_is_somewhere_exactly_once() -> None:
    model = big_qwen()
    whole = sum(tensor.size or 0 for tensor in model.tensors) / 2**20
    mtp: dict[str, object] = {"speculation": "mtp"}
    for settings in (mtp, {**mtp, "gpu_layers": 20}, {**mtp, "tensor_split": "5,1"}):
        result = found(model, settings)
        terms = [result.host, *(fit.terms for fit in result.devices)]
        for names, total in (
            (("weights", "mtp_weights"), whole),
            (("kv",), 4096 * 64 / 1024),
            (("mtp_kv",), 4096 * 4 / 1024),
            (("recurrent", "mtp_recurrent"), 149.625 * 4),
        ):
            assert sum(term.get(name) or 0 for term in terms for name in names) == pytest.approx(total)


def test_the_input_table_stays_in_main_memory_and_serves_as_output_on_the_card() -> None:
    result = found(smol(), {})
    table = 576 * 49_152 * 34 / 32 / 2**20
    assert result.host["weights"] == table
    on_cards = sum(fit.terms.get("weights") or 0 for fit in result.devices)
    assert on_cards == pytest.approx(sum(t.size or 0 for t in smol().tensors) / 2**20)
    assert (result.devices[1].terms["weights"] or 0) > table


def test_caches_can_stay_in_main_memory() -> None:
    result = found(big_qwen(), {"kv_offload": False})
    assert result.host["kv"] == 256
    assert all("kv" not in fit.terms and "recurrent" not in fit.terms for fit in result.devices)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [({}, 0), ({"cpu_moe": True}, 4), ({"n_cpu_moe": 3}, 3), ({"n_cpu_moe": 9}, 4)],
)
def test_experts_stay_in_main_memory_as_asked(settings: dict[str, object], kept: int) -> None:
    def shapes() -> Shapes:
        for index in range(4):
            yield f"blk.{index}.attn_q.weight", (1024, 1024), F16
            yield f"blk.{index}.ffn_up_exps.weight", (1024, 512, 2), F16

    keys = {
        "block_count": 4,
        "embedding_length": 1024,
        "feed_forward_length": 512,
        "expert_count": 2,
        "expert_used_count": 1,
        "attention.head_count": 8,
    }
    result = found(make_header("qwen3moe", dict(keys), shapes(), 1000), settings)
    assert (result.host.get("weights") or 0) == 2 * kept
    assert sum(fit.terms.get("weights") or 0 for fit in result.devices) == 4 * 2 + 2 * (4 - kept)


def test_an_unused_card_takes_nothing_but_what_others_hold() -> None:
    devices = (Device("CUDA0", 24_576), Device("CUDA1", 24_576, 512))
    result = found(small_qwen(False), {"tensor_split": "1,0"}, devices)
    assert result.devices[1].terms == {"others": 512} and result.devices[1].total == 512
