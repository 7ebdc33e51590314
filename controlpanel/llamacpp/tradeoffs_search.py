"""The step of a setting that is enough, and the largest or smallest number that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.memory_types import HOST
from controlpanel.llamacpp.tradeoffs_steps import all_experts, context_part, expert_part, layer_part
from controlpanel.llamacpp.tradeoffs_trial import Trial
from controlpanel.llamacpp.tradeoffs_types import Offered, Part

_LEAST_CONTEXT = 4096
_FURTHER = 3  # layers per border between cards
_STEP, _LARGE_STEP, _LARGE = 256, 1024, 32_768

Changes = Mapping[str, object]


def enough(trial: Trial, offered: Offered, steps: Iterable[Part], given: Changes) -> Part | None:
    """Return the first step that fits on top of the changes given, else the one that helps most.

    None when no step that the build offers helps.
    """
    before = best = trial.outcome(given)
    found: Part | None = None
    for step in steps:
        after = trial.outcome({**given, **step.changes}) if offered.allows_all(step.changes) else None
        if before is None or best is None or after is None:
            continue
        if after.rank < best.rank or (after.rank == before.rank and after.better(best)):
            found, best = step, after
        if best.rank == 0 and found is not None:
            break
    return found


def context_now(trial: Trial) -> int | None:
    """Return the tokens of all slots together, None when neither settings nor file say them."""
    return whole(trial.settings.get("ctx_size")) or trial.header.context_length


def shorter_context(trial: Trial, offered: Offered, rank: int, given: Changes) -> Part | None:
    """Return the largest context below the present one whose verdict is as good as a rank."""
    now = context_now(trial)
    if now is None or not offered.allows("ctx_size", now):
        return None
    step = _LARGE_STEP if now > _LARGE else _STEP
    tokens = _last(
        _LEAST_CONTEXT // step,
        (now - 1) // step,
        lambda count: trial.reaches({**given, "ctx_size": count * step}, rank),
    )
    return None if tokens is None else context_part(trial, tokens * step, now)


def longer_context(trial: Trial, offered: Offered) -> Part | None:
    """Return the largest context that fits, of those above the present one up to the model's own."""
    now, native = context_now(trial), trial.header.context_length
    if now is None or native is None or now >= native or not offered.allows("ctx_size", now):
        return None
    step = _LARGE_STEP if native > _LARGE else _STEP
    if trial.reaches({"ctx_size": native}, 0):
        return context_part(trial, native, now)
    tokens = _last(
        now // step + 1, native // step, lambda count: trial.reaches({"ctx_size": count * step}, 0)
    )
    return None if tokens is None else context_part(trial, tokens * step, now)


def experts_away(trial: Trial, offered: Offered, rank: int, given: Changes) -> Part | None:
    """Return the fewest layers whose experts must go to main memory for a verdict as good as a rank."""
    used, geometry = trial.used, trial.geometry
    if geometry is None or used.cpu_moe or not trial.has_experts:
        return None
    if not offered.allows("n_cpu_moe", 1):
        part = all_experts()
        return part if offered.allows_all(part.changes) and _reached(trial, part, rank, given) else None
    count = _first(
        used.n_cpu_moe + 1,
        geometry.count,
        lambda layers: trial.reaches({**given, **expert_part(layers).changes}, rank),
    )
    return None if count is None else expert_part(count)


def fewer_layers(trial: Trial, offered: Offered, rank: int, given: Changes) -> Part | None:
    """Return the most layers that the cards can keep for a verdict as good as a rank, one at least.

    On one card that is exact; over several cards a few more may happen to lie so that they fit as well.
    """
    if not offered.allows("gpu_layers", 1):
        return None
    now = sum(place != HOST for place in trial.places(given))

    def is_enough(layers: int) -> bool:
        return trial.reaches({**given, "gpu_layers": layers}, rank)

    count = _last(1, now - 1, is_enough)
    if count is None:
        return None
    # Between cards a layer more may lie better than one fewer.
    further = range(count + 1, min(count + _FURTHER * (len(trial.devices) - 1), now - 1) + 1)
    return layer_part(trial, max([count, *filter(is_enough, further)]))


def _reached(trial: Trial, part: Part, rank: int, given: Changes) -> bool:
    return trial.reaches({**given, **part.changes}, rank)


def _first(low: int, high: int, is_enough: Callable[[int], bool]) -> int | None:
    """Return the first number from low to high that is enough when all after it are."""
    if low > high or not is_enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return high


def _last(low: int, high: int, is_enough: Callable[[int], bool]) -> int | None:
    """Return the last number from low to high that is enough when all before it are."""
    found = _first(-high, -low, lambda number: is_enough(-number))
    return None if found is None else -found
