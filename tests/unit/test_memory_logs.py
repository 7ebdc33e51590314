"""The estimate equals what recorded servers said they took, and its bounds hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from controlpanel.llamacpp.gguf import read_header
from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.memory import estimate
from controlpanel.llamacpp.memory_learn import learn
from controlpanel.llamacpp.memory_log import read_buffers
from controlpanel.llamacpp.memory_types import HOST, Dialect
from tests.models import tiny_models
from tests.unit.memory_headers import LOGS, small_qwen, smol

_SIZE = re.compile(r"(\w+) buffer size = +([\d.]+) MiB")


def log_of(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


def said(name: str) -> dict[str, list[float]]:
    """The buffer sizes of a log by kind, in the order of the log."""
    found: dict[str, list[float]] = {}
    for kind, size in _SIZE.findall(log_of(name)):
        found.setdefault(kind, []).append(float(size))
    return found


@pytest.fixture
def tiny(tmp_path: Path) -> GgufHeader:
    """The model of the fork's logs: three layers, one of each kind, F16."""
    return read_header(tiny_models(tmp_path)[0])


CASES: list[tuple[str, Dialect, dict[str, object]]] = [
    ("upstream-mtp", "upstream", {"ctx_size": 4096, "parallel": 1, "speculation": "mtp", "draft_max": 3}),
    ("upstream-plain", "upstream", {"ctx_size": 1024, "parallel": 1}),
    ("fork-plain", "fork", {"ctx_size": 2048, "parallel": 1}),
    ("fork-mtp-3", "fork", {"ctx_size": 2048, "parallel": 1, "speculation": "mtp", "draft_max": 3}),
    ("fork-unified", "fork", {"ctx_size": 512}),
    ("fork-long", "fork", {"ctx_size": 16_384, "parallel": 1}),
    *(
        (
            f"fork-{name}",
            "fork",
            {
                "ctx_size": 4096,
                "parallel": 1,
                "cache_type_k": key,
                "cache_type_v": value,
                "flash_attn": "on",
                "speculation": "mtp",
            },
        )
        for name, key, value in (
            ("q8-turbo4", "q8_0", "turbo4"),
            ("turbo3", "turbo3", "turbo3"),
            ("turbo4", "turbo4", "turbo4"),
        )
    ),
    ("fork-smol", "fork", {"ctx_size": 512}),
]

MODELS: dict[str, Callable[[], GgufHeader]] = {
    "upstream-mtp": lambda: small_qwen(True),
    "upstream-plain": lambda: small_qwen(False),
    "fork-smol": smol,
}


@pytest.mark.parametrize(("name", "dialect", "settings"), CASES, ids=[case[0] for case in CASES])
def test_weights_caches_and_states_equal_the_log(
    name: str, dialect: Dialect, settings: dict[str, object], tiny: GgufHeader
) -> None:
    model = MODELS[name]() if name in MODELS else tiny
    host = estimate(model, None, settings, dialect, ()).host
    log = said(name)

    def sum_of(*terms: str) -> float:
        return sum(host.get(term) or 0 for term in terms)

    assert sum_of("weights", "mtp_weights") == pytest.approx(log["model"][0], abs=0.01)
    assert sum_of("kv") == pytest.approx(log["KV"][0], abs=0.01)
    assert sum_of("mtp_kv") == pytest.approx(log["KV"][1] if len(log["KV"]) > 1 else 0, abs=0.01)
    assert sum_of("recurrent", "mtp_recurrent") == pytest.approx(log.get("RS", [0.0])[0], abs=0.01)
    assert sum_of("compute") >= log["compute"][0]
    if "mtp_kv" in host:
        assert sum_of("mtp_compute") >= log["compute"][-1]


def test_slots_with_caches_of_their_own_equal_the_log(tiny: GgufHeader) -> None:
    settings: dict[str, object] = {"ctx_size": 2048, "parallel": 4}
    host = estimate(tiny, None, settings, "fork", ()).host
    log = said("fork-slots")
    assert host["kv"] == pytest.approx(log["KV"][0], abs=0.01)
    # That server was to draft 16 tokens as well, which with four slots it refused once it had loaded.
    assert (host["recurrent"] or 0) * 17 == pytest.approx(log["RS"][0], abs=0.01)


def test_the_bounds_are_no_more_than_three_times_the_truth(tiny: GgufHeader) -> None:
    for name, dialect, settings in CASES:
        model = MODELS[name]() if name in MODELS else tiny
        host = estimate(model, None, settings, dialect, ()).host
        assert (host["compute"] or 0) < 3 * said(name)["compute"][0]


@pytest.mark.parametrize("teacher", ["fork-mtp-3", "fork-turbo3", "fork-turbo4"])
def test_after_one_start_of_the_fork_the_totals_of_the_others_are_within_three_percent(
    teacher: str, tiny: GgufHeader
) -> None:
    starts = {name: (settings, read_buffers(log_of(name))) for name, dialect, settings in CASES}
    settings, buffers = starts[teacher]
    learned = learn((tiny,), None, settings, "fork", (), buffers)
    assert learned is not None and learned.draft is not None
    others = [name for name, dialect, _settings in CASES if dialect == "fork" and name not in MODELS]
    assert len(others) == 7
    for name in others:
        settings, buffers = starts[name]
        host = estimate(tiny, None, settings, "fork", (), learned).host
        total = sum(size or 0 for term, size in host.items() if term != "prompt_cache")
        measured = buffers.by_place()[HOST]
        # They had a projector as well, of which the estimate is not told here.
        wanted = sum(size for term, size in measured.items() if term != "mmproj_compute")
        assert total == pytest.approx(wanted, rel=0.03), name
