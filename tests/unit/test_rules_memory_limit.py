"""A server that was ended at its memory limit: what the panel knows goes before what the log suggests."""

from __future__ import annotations

import pytest

from controlpanel.llamacpp.rules import diagnose
from tests.unit.rule_areas import check_words

AREAS = {"launch": ("launch", "gpu", "host", "container"), "runtime": ("runtime", "gpu", "host", "container")}
LOADING = "load_tensors: loading model tensors, this can take a while\n"
SERVING = (
    "main: server is listening on http://127.0.0.1:18170\nslot launch_slot_: id  0 | task 3 | processing\n"
)
KERNEL = "Memory cgroup out of memory: Killed process 92787 (llama-server) total-vm:9kB, oom_score_adj:0\n"
OOM = "CUDA error: out of memory\n"
OVER = {"over_memory_limit_mib": 2000, "over_memory_used_mib": 2345, "stop_requested": False}


@pytest.mark.parametrize("areas", AREAS.values(), ids=AREAS)
@pytest.mark.parametrize("log", [LOADING, SERVING + KERNEL, SERVING + OOM, ""])
@pytest.mark.parametrize("exit_code", [-9, None])
def test_the_limit_is_the_first_cause_and_explains_the_kill(
    areas: tuple[str, ...], log: str, exit_code: int | None
) -> None:
    found = diagnose(log, areas, exit_code, OVER)
    best = found[0]
    assert (best.cause_key, best.passing) == ("memory_limit", True)
    assert "2,345 MiB" in str(best.title) and "2,000 MiB" in str(best.title)
    assert not {"killed", "group_memory_limit"}.intersection(cause.cause_key for cause in found)
    check_words(best)


@pytest.mark.parametrize("areas", AREAS.values(), ids=AREAS)
def test_without_the_panels_word_a_kill_is_only_a_kill(areas: tuple[str, ...]) -> None:
    causes = [found.cause_key for found in diagnose(SERVING, areas, -9, {"stop_requested": False})]
    assert causes == ["killed"]


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, {"cache_ram": 0, "ctx_size": "less"}),
        ({"cache_ram": 8192}, {"cache_ram": 4096, "ctx_size": "less"}),
        ({"cache_ram": 0}, {"ctx_size": "less"}),
    ],
)
def test_the_change_makes_the_prompt_cache_smaller_and_then_the_context(
    settings: dict[str, object], expected: dict[str, object]
) -> None:
    best = diagnose(SERVING, "host", -9, {**OVER, "settings": settings})[0]
    assert {change.field: change.value for change in best.change} == expected
