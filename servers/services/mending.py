"""The change of a profile that a diagnosis names, computed for this profile and these cards."""

from collections.abc import Iterable
from dataclasses import replace

from controlpanel.lib.text import Message
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.memory_host import is_mapped, own_memory
from controlpanel.llamacpp.rule_types import Change
from controlpanel.llamacpp.rules_runtime_facts import LARGEST, SMALLER
from jobs.services.builds import capabilities_of
from servers.domain.policy import policy_of
from servers.services.estimates import Prepared, prepare
from servers.services.profiles import ProfileData
from servers.services.suggestions import largest_context

LEAST_CONTEXT = 1024
STEP = 256  # tokens


def mended(data: ProfileData, changes: Iterable[Change], own_pid: int | None = None) -> ProfileData:
    """Return the profile with the changes in it; what its build cannot do is left out."""
    before, context = data, ""
    for change in changes:
        if change.field == "ctx_size" and change.value in (LARGEST, SMALLER):
            context = str(change.value)
        elif change.field in MEANINGS:
            data = _with_setting(data, change)
        elif change.field == "port" and (change.value is None or isinstance(change.value, int)):
            data = replace(data, port=change.value)
        elif change.field == "mmproj" and change.value is None:
            data = replace(data, mmproj=None)
    # Last, because the others make room too.
    if context == SMALLER:
        return _with_smaller_context(data, own_pid, alone=data == before)
    return _with_larger_context(data, own_pid) if context else data


def _with_setting(data: ProfileData, change: Change) -> ProfileData:
    kept = {key: value for key, value in data.settings.items() if key != change.field}
    if change.value is None:
        return replace(data, settings=kept)
    if MEANINGS[change.field].problem(capabilities_of(data.build), change.value):
        return data
    return replace(data, settings={**kept, change.field: change.value})


def _with_smaller_context(data: ProfileData, own_pid: int | None, alone: bool) -> ProfileData:
    """Take the largest context that fits, and no more than now; `alone`: nothing else makes room."""
    now, found = _context(data), _largest_context(data, own_pid)
    if now is None:
        return data if found is None else _with_context(data, found)
    if found is None or (alone and found >= now):
        # What would fit is not known, or the server has shown that it does not: half is a beginning.
        found = max(LEAST_CONTEXT, now // 2 // STEP * STEP)
    return _with_context(data, found) if found < now else data


def _with_larger_context(data: ProfileData, own_pid: int | None) -> ProfileData:
    """Take the largest context that fits, and no less than now."""
    now, found = _context(data), _largest_context(data, own_pid)
    if found is None and now is not None:
        # What would fit is not known: twice is a beginning, up to what the model was trained for.
        found = min(2 * now, data.model.context_length or 2 * now)
    return data if found is None or found <= (now or 0) else _with_context(data, found)


def _context(data: ProfileData) -> int | None:
    return whole(data.settings.get("ctx_size")) or data.model.context_length


def _with_context(data: ProfileData, tokens: int) -> ProfileData:
    return replace(data, settings={**data.settings, "ctx_size": tokens})


def _largest_context(data: ProfileData, own_pid: int | None) -> int | None:
    """Return the largest context that fits the cards and the memory limit, None where that is not known."""
    prepared = prepare(data, own_pid)
    found = largest_context(prepared)
    limit = policy_of(data.policy).memory_mib
    most = found or _context(data)
    if limit is None or most is None or isinstance(prepared, Message):
        return found
    within = _within(prepared, most, limit)
    return within if found or within != most else None


def _within(prepared: Prepared, context: int, limit: int) -> int:
    """Return the largest context up to this one whose own main memory stays within the limit in MiB.

    Where none does, or the memory is not known, it is not the context that takes it, and it stays as it is.
    """

    mapped = is_mapped(prepared.inputs.settings, prepared.inputs.caps)

    def enough(tokens: int) -> bool:
        needed = _own_memory(prepared, tokens, mapped)
        return needed is not None and needed <= limit

    if enough(context) or not enough(LEAST_CONTEXT):
        return context
    low, high = LEAST_CONTEXT // STEP, context // STEP + 1  # enough, and too much
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle * STEP) else (low, middle)
    return low * STEP


def _own_memory(prepared: Prepared, tokens: int, mapped: bool) -> int | None:
    inputs = replace(prepared.inputs, settings={**prepared.inputs.settings, "ctx_size": tokens})
    found = replace(prepared, inputs=inputs).estimate()
    return None if isinstance(found, Message) else own_memory(found, mapped).filled
