"""Whatever the settings and the cards: each change that is offered does what it promises."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.memory import Device, EstimateError, estimate
from controlpanel.llamacpp.memory_learn import Learned
from controlpanel.llamacpp.memory_types import Dialect
from controlpanel.llamacpp.tradeoffs import tradeoffs
from controlpanel.llamacpp.tradeoffs_trial import Trial
from tests.unit.memory_headers import big_qwen, small_qwen, smol
from tests.unit.test_tradeoffs import FORK, UPSTREAM, experts, found_for, vision

MODELS = {"big": big_qwen(), "small": small_qwen(True), "smol": smol(), "experts": experts()}
VISION = vision()

_TYPES = ("f16", "q8_0", "q4_0")
_ONE_OF: dict[str, tuple[object, ...]] = {
    "ctx_size": (0, 4096, 16_384, 65_536, "131072", 200_000, 262_144),
    "parallel": (1, 1, 1, 2, 3, 8),
    "kv_unified": ("on", "off"),
    "cache_type_k": _TYPES,
    "cache_type_v": _TYPES,
    "flash_attn": ("on", "off", "auto"),
    "gpu_layers": (1, 20, 99, "all", "auto"),
    "split_mode": ("layer", "layer", "layer", "none", "row"),
    "tensor_split": ("1", "1", "1,1", "3,1", "0,1", "1,1,1"),
    "speculation": ("none", "mtp"),
    "draft_max": (1, 3, 8),
    "draft_type_k": ("f16", "q8_0"),
    "draft_type_v": ("f16", "q8_0"),
    "ubatch": (64, 256, 512, 1024, 2048),
    "n_cpu_moe": (0, 5, 24),
    "cpu_moe": ("on",),
    "mmproj_offload": ("on", "off"),
    "swa_full": ("on",),
    "kv_offload": ("on", "off"),
}
_TAUGHT = (None, None, Learned(flash=True, work=0.3, draft=0.4, projector=0.5, driver=350.0))


@st.composite
def profiles(draw: st.DrawFn, dialect: Dialect, heads: bool) -> dict[str, object]:
    """Settings of which most make sense together."""
    ones = {key: st.sampled_from(one) for key, one in _ONE_OF.items()}
    profile: dict[str, object] = draw(st.fixed_dictionaries({}, optional=ones))
    if not heads:
        profile.pop("speculation", None)
    if dialect == "fork":
        profile["parallel"] = 1
        if draw(st.booleans()):
            profile |= {"cache_type_k": draw(st.sampled_from(("q8_0", "turbo4"))), "cache_type_v": "turbo4"}
    if profile.get("flash_attn") == "off":
        profile["cache_type_v"] = "f16"
    return profile


SIZES = st.sampled_from((2048, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 81_920))
CARDS = st.lists(st.tuples(SIZES, st.floats(0, 0.9)), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.data(),
    st.sampled_from(("big", "big", "experts", "small", "smol")),
    st.booleans(),
    st.sampled_from(("upstream", "fork")),
    CARDS,
    st.sampled_from(_TAUGHT),
)
def test_every_change_gives_exactly_what_it_promises(
    data: st.DataObject,
    name: str,
    sees: bool,
    dialect: Dialect,
    cards: list[tuple[int, float]],
    learned: Learned | None,
) -> None:
    profile = data.draw(profiles(dialect, name in ("big", "small")))
    model, mmproj = MODELS[name], VISION if sees else None
    devices = [Device(f"CUDA{index}", size, size * used) for index, (size, used) in enumerate(cards)]
    offered = FORK if dialect == "fork" else UPSTREAM
    try:
        now = estimate(model, mmproj, profile, dialect, devices, learned)
    except EstimateError as error:
        event("no estimate")
        with pytest.raises(EstimateError, match=".") as raised:
            tradeoffs([model], mmproj, profile, dialect, devices, offered)
        assert str(raised.value) == str(error)
        return
    found = found_for(
        profile, devices, model=model, mmproj=mmproj, dialect=dialect, offered=offered, learned=learned
    )
    event(f"{now.verdict}: {len(found)}")
    changes = [sorted(entry.changes.items(), key=str) for entry in found]
    assert all(changes.count(one) == 1 for one in changes)
    if now.verdict == "fits":
        assert all(entry.verdict == "fits" for entry in found)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CARDS.filter(lambda cards: len(cards) == 2), st.sampled_from(("big", "experts")))
def test_no_other_split_of_two_cards_is_better(cards: list[tuple[int, float]], name: str) -> None:
    profile: dict[str, object] = {"ctx_size": 32_768, "parallel": 1, "tensor_split": "1,1"}
    devices = [Device(f"CUDA{index}", size, size * used) for index, (size, used) in enumerate(cards)]
    model = MODELS[name]
    found = found_for(profile, devices, model=model, dialect="upstream", offered=UPSTREAM)
    trial = Trial([model], None, profile, "upstream", devices)
    total = len(trial.places({}))
    outcomes = [trial.outcome({"tensor_split": f"{count},{total - count}"}) for count in range(total + 1)]
    best = max(outcome.room for outcome in outcomes if outcome is not None)
    freed = max((entry.freed or 0.0 for entry in found if entry.key == "split"), default=0.0)
    assert trial.base.room + freed == pytest.approx(best, abs=1.0)
