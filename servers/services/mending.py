"""The change of a profile that a diagnosis names, computed for this profile and these cards."""

from collections.abc import Iterable
from dataclasses import replace

from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.rule_types import Change
from jobs.services.builds import capabilities_of
from servers.services.estimates import prepare
from servers.services.profiles import ProfileData
from servers.services.suggestions import largest_context

LARGEST = "fit"  # as the value of ctx_size: the largest context that fits
LEAST_CONTEXT = 1024


def mended(data: ProfileData, changes: Iterable[Change], own_pid: int | None = None) -> ProfileData:
    """Return the profile with the changes in it; what its build cannot do is left out."""
    fit = False
    for change in changes:
        if change.field == "ctx_size" and change.value == LARGEST:
            fit = True
        elif change.field in MEANINGS:
            data = _with_setting(data, change)
        elif change.field == "port" and (change.value is None or isinstance(change.value, int)):
            data = replace(data, port=change.value)
        elif change.field == "mmproj" and change.value is None:
            data = replace(data, mmproj=None)
    # Last, because the others make room too.
    return _with_largest_context(data, own_pid) if fit else data


def _with_setting(data: ProfileData, change: Change) -> ProfileData:
    kept = {key: value for key, value in data.settings.items() if key != change.field}
    if change.value is None:
        return replace(data, settings=kept)
    if MEANINGS[change.field].problem(capabilities_of(data.build), change.value):
        return data
    return replace(data, settings={**kept, change.field: change.value})


def _with_largest_context(data: ProfileData, own_pid: int | None) -> ProfileData:
    found = largest_context(prepare(data, own_pid))
    now = data.settings.get("ctx_size") or data.model.context_length
    if found is None and isinstance(now, int):
        # Nothing is known of the cards: half is a beginning.
        found = max(LEAST_CONTEXT, now // 2 // 256 * 256)
    return data if found is None else replace(data, settings={**data.settings, "ctx_size": found})
