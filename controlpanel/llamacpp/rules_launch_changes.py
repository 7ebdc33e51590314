"""Fields of a profile that mend a failed launch, the values they get, and when rules apply at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.rule_types import GENERIC, Change, Found, Rule
from controlpanel.llamacpp.rules_runtime_facts import Facts, was_not_asked_to_stop

# A server that runs otherwise than it should: said only when nothing explains an end.
NOTE = GENERIC - 5

# Flags of fields that are no meanings.
_OTHER_FLAGS = {"-m": "model", "--model": "model", "-mm": "mmproj", "--mmproj": "mmproj", "--port": "port"}
_FIELDS = _OTHER_FLAGS | {
    name: meaning.key for meaning in MEANINGS.values() for name in (*meaning.names, *meaning.more)
}


def unless_stopped(*rules: Rule) -> tuple[Rule, ...]:
    """Return the rules, silent where the end of the server was asked for."""
    return tuple(dataclasses.replace(rule, when=_not_stopped(rule.when)) for rule in rules)


def field_of(flag: str) -> str | None:
    """Return the form field that passes a flag, None when only the extra arguments can."""
    return _FIELDS.get(flag.replace("_", "-"))


def unset_flag(found: Found) -> Iterable[Change]:
    """Pass the flag that the log names no longer."""
    field = field_of(found["flag"])
    return [Change(field, None)] if field and field != "model" else []


def plain_cache(found: Found) -> Iterable[Change]:
    """Let the KV cache be f16, as it is without these fields."""
    return [Change("cache_type_k", None), Change("cache_type_v", None)]


def _not_stopped(when: Callable[[Facts], bool] | None) -> Callable[[Facts], bool]:
    return lambda facts: was_not_asked_to_stop(facts) and (when is None or when(facts))
