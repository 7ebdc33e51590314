"""What one start teaches, what it does not, and what the verdict makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.memory import SAFETY, Device, Estimate, estimate
from controlpanel.llamacpp.memory_learn import Learned, learn
from controlpanel.llamacpp.memory_log import Buffers
from controlpanel.llamacpp.memory_types import BOUNDS
from tests.unit.memory_headers import big_qwen, make_header, smol

BIG = big_qwen()
GPU = (Device("CUDA0", 81_920),)
SETTINGS: dict[str, object] = {"ctx_size": 32_768, "parallel": 1}
MTP: dict[str, object] = {**SETTINGS, "speculation": "mtp", "draft_max": 3}
TAUGHT = Learned(flash=True, work=0.5, draft=0.25, driver=400.0)


def on_gpu(settings: dict[str, object], learned: Learned | None = None, total: float = 81_920) -> Estimate:
    """The estimate for one card."""
    return estimate(BIG, None, settings, "upstream", (Device("CUDA0", total),), learned)


def log(found: Estimate, **more: float) -> Buffers:
    """Buffers as a server would tell them that takes what was estimated."""
    terms = {term: size for term, size in found.devices[0].terms.items() if size and term in BOUNDS}
    terms.pop("margin")
    return Buffers({"CUDA0": {**terms, **more}})


def test_what_is_learned_makes_the_estimate_what_was_measured() -> None:
    for settings in (SETTINGS, MTP, {**MTP, "ubatch": 128, "cache_type_k": "q8_0"}):
        wanted = on_gpu(settings, TAUGHT)
        learned = learn((BIG,), None, settings, "upstream", GPU, log(wanted))
        assert learned is not None
        assert learned.work == pytest.approx(0.5, rel=1e-6)
        assert learned.draft == (pytest.approx(0.25, rel=1e-6) if "draft_max" in settings else None)
        again = on_gpu(settings, learned).devices[0].terms
        assert again["compute"] == pytest.approx(wanted.devices[0].terms["compute"], abs=1e-5)


def test_the_scores_of_the_fork_are_told_from_what_a_layer_takes() -> None:
    def compute(tokens: int, learned: Learned) -> float:
        settings: dict[str, object] = {"ctx_size": tokens, "parallel": 1}
        found = estimate(BIG, None, settings, "fork", GPU, learned).devices[0].terms["compute"]
        assert found is not None
        return found

    scores, layer = 512 * 248_320 * 4 / 2**20, 512 * 102_400 * 4 / 2**20 / 2
    # Masks of many tokens are larger than the scores, which are made when the masks are gone.
    assert compute(204_800, TAUGHT) == pytest.approx(600 + layer)
    assert compute(2048, TAUGHT) == pytest.approx(scores + 0.4 * layer)
    for tokens in (2048, 204_800):
        settings: dict[str, object] = {"ctx_size": tokens, "parallel": 1}
        buffers = Buffers({"CUDA0": {"compute": compute(tokens, TAUGHT)}})
        learned = learn((BIG,), None, settings, "fork", GPU, buffers)
        assert learned is not None and learned.work == pytest.approx(TAUGHT.work)


def test_the_mask_is_known_and_the_rest_is_learned() -> None:
    def compute(**more: object) -> float:
        return on_gpu({**SETTINGS, **more}, TAUGHT).devices[0].terms["compute"] or 0.0

    assert compute(ctx_size=65_536) - compute() == 32_768 * 512 * 2 / 2**20
    assert compute(ubatch=1024) == pytest.approx(2 * compute())


@pytest.mark.parametrize(
    ("more", "copies"),
    [
        ({}, 4),
        ({"gpu_layers": 66}, 4),
        ({"gpu_layers": 65}, 1),
        ({"kv_offload": "off"}, 1),
        ({"n_cpu_moe": 1}, 1),
        ({"split_mode": "none"}, 1),
        # The second card holds nothing, but the server counts it.
        ({"tensor_split": "1,0"}, 4),
    ],
)
def test_several_cards_that_hold_all_layers_have_the_mask_four_times(
    more: dict[str, object], copies: int
) -> None:
    cards = (Device("CUDA0", 81_920), Device("CUDA1", 81_920))

    def compute(tokens: int) -> float:
        settings: dict[str, object] = {"parallel": 1, "tensor_split": "1,1", **more, "ctx_size": tokens}
        return estimate(BIG, None, settings, "upstream", cards).devices[0].terms["compute"] or 0.0

    assert compute(65_536) - compute(32_768) == copies * 32


def test_slots_with_caches_of_their_own_need_columns_for_their_own_cells_only() -> None:
    def compute(**more: object) -> float:
        return (
            estimate(smol(), None, {"ctx_size": 8192, **more}, "upstream", (), TAUGHT).host["compute"] or 0.0
        )

    assert compute(parallel=4) == compute(parallel=1, ctx_size=2048)
    assert compute(parallel=4, kv_unified=True) == compute(parallel=1)


def test_only_computation_and_the_driver_are_corrected() -> None:
    bounds, corrected = on_gpu(MTP).devices[0], on_gpu(MTP, TAUGHT).devices[0]
    changed = {term for term in bounds.terms if bounds.terms[term] != corrected.terms[term]}
    assert changed == {"compute", "mtp_compute", "margin"}
    assert corrected.terms["margin"] == 400
    assert corrected.bounds == BOUNDS - changed
    assert corrected.certain == corrected.total
    assert any("corrected" in str(message) for message in on_gpu(MTP, TAUGHT).why)
    assert not any("corrected" in str(message) for message in on_gpu(MTP).why)


def test_what_a_start_did_not_show_stays_a_bound() -> None:
    plain = Learned(flash=True, work=0.5)
    bounds, found = on_gpu(MTP).devices[0], on_gpu(MTP, plain).devices[0]
    assert found.terms["mtp_compute"] == bounds.terms["mtp_compute"]
    assert found.terms["margin"] == bounds.terms["margin"]
    assert found.bounds == BOUNDS - {"compute"}


def test_what_flash_attention_taught_does_not_hold_without_it() -> None:
    settings = {**SETTINGS, "flash_attn": "off"}
    taught = Learned(flash=True, work=0.1)
    assert on_gpu(settings, taught).devices == on_gpu(settings).devices
    off = Learned(flash=False, work=0.1)
    assert on_gpu(settings, off).devices[0].terms["compute"] != on_gpu(settings).devices[0].terms["compute"]


def test_a_corrected_total_needs_a_margin_to_fit_and_decides_against() -> None:
    needed = on_gpu(SETTINGS, TAUGHT).devices[0].total
    assert needed is not None

    def verdict(total: float, learned: Learned | None = TAUGHT) -> str:
        return on_gpu(SETTINGS, learned, total).verdict

    assert verdict(needed / (1 - SAFETY) + 1) == "fits"
    assert verdict(needed / (1 - SAFETY) - 1) == "tight"
    assert verdict(needed + 1) == "tight"
    assert verdict(needed - 1) == "does not fit"
    # Where the driver's share is a bound still, it cannot decide against.
    assert verdict(needed + 100, Learned(flash=True, work=0.5)) == "tight"


def test_the_driver_is_what_the_process_holds_beside_its_buffers() -> None:
    buffers = log(on_gpu(SETTINGS, TAUGHT), weights=20_000.0)
    beside = sum(buffers.devices["CUDA0"].values())
    found = learn((BIG,), None, SETTINGS, "upstream", GPU, buffers, {0: beside + 350})
    assert found is not None and found.driver == pytest.approx(350)
    # A sample from before everything was loaded.
    early = learn((BIG,), None, SETTINGS, "upstream", GPU, buffers, {0: beside - 350})
    assert early is not None and early.driver is None
    other = learn((BIG,), None, SETTINGS, "upstream", GPU, buffers, {1: 1e6})
    assert other is not None and other.driver is None


def test_a_cache_that_is_unpacked_is_told_from_what_a_layer_takes() -> None:
    long: dict[str, object] = {"ctx_size": 204_800, "parallel": 1, "cache_type_k": "q8_0"}
    wanted = on_gpu(long, TAUGHT)
    learned = learn((BIG,), None, long, "upstream", GPU, log(wanted))
    assert learned is not None and learned.work == pytest.approx(0.5)
    short = on_gpu({"ctx_size": 4096, "parallel": 1}, learned).devices[0].terms["compute"]
    assert short == on_gpu({"ctx_size": 4096, "parallel": 1}, TAUGHT).devices[0].terms["compute"]


@pytest.mark.parametrize(
    ("model", "settings", "compute"),
    [
        (BIG, {**SETTINGS, "split_mode": "row"}, 500.0),
        (BIG, SETTINGS, 0.0),
        (BIG, SETTINGS, 30.0),  # less than the mask alone
        (BIG, SETTINGS, 1e7),
        (BIG, {**SETTINGS, "ubatch": 64}, 500.0),  # the states cover what a layer takes
        (BIG, {**SETTINGS, "parallel": 16, "kv_unified": True}, 800.0),
        (make_header("llama", {}), SETTINGS, 500.0),
        (make_header("llama", {"block_count": 2}), SETTINGS, 500.0),
    ],
)
def test_a_start_that_tells_nothing_teaches_nothing(
    model: GgufHeader, settings: dict[str, object], compute: float
) -> None:
    buffers = Buffers({"CUDA0": {"compute": compute}})
    assert learn((model,), None, settings, "upstream", GPU, buffers) is None


def test_a_model_without_states_teaches_with_few_tokens_too() -> None:
    settings: dict[str, object] = {"ctx_size": 4096, "parallel": 1, "ubatch": 16}
    found = learn((smol(),), None, settings, "upstream", (), Buffers({"CPU": {"compute": 0.6}}))
    assert found is not None and found.work is not None


def test_it_survives_json_and_nothing_else_does() -> None:
    for learned in (TAUGHT, Learned(flash=False, projector=0.7)):
        assert Learned.from_dict(learned.to_dict()) == learned
    good = TAUGHT.to_dict()
    wrong: list[Any] = [None, [], "x", {}, {**good, "version": 0}, {**good, "flash": "yes"}]
    wrong += [{"version": 1, "flash": True, "work": value} for value in (0, -1, 5, float("nan"), "0.5", True)]
    for data in wrong:
        assert Learned.from_dict(data) is None, data


def test_an_older_start_fills_what_a_newer_did_not_show() -> None:
    newer = Learned(flash=True, work=0.6)
    older = Learned(flash=True, work=0.5, draft=0.25, projector=0.7, driver=400.0)
    assert newer.filled(older) == Learned(True, 0.6, 0.25, 0.7, 400.0)
    without = Learned(flash=False, work=0.5, draft=0.25, driver=400.0)
    assert newer.filled(without) == Learned(True, 0.6, None, None, 400.0)
