"""The little YAML that exports are written in: mappings, lists and quoted texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

Value = str | int | bool | Sequence["Value"] | Mapping[str, "Value"]

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
# Words that some readers take for true, false or nothing.
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
# JSON leaves these as they are, and YAML takes none of them.
_NOT_PRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def quoted(text: str) -> str:
    """Return a text as a double-quoted scalar in one line."""
    plain = json.dumps(text, ensure_ascii=False)
    return _NOT_PRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", plain)


def block(value: Mapping[str, Value], indent: int = 0) -> list[str]:
    """Return the lines of a mapping."""
    lines: list[str] = []
    for key, part in value.items():
        plain = _KEY.fullmatch(key) is not None and key.lower() not in _WORDS
        lines += _entry(f"{' ' * indent}{key if plain else quoted(key)}:", part, indent)
    return lines


def _entry(head: str, value: Value, indent: int) -> list[str]:
    if isinstance(value, str | int):
        return [f"{head} {_scalar(value)}"]
    if isinstance(value, Mapping):
        return [head, *block(value, indent + 2)] if value else [f"{head} {{}}"]
    return [head, *_items(value, indent + 2)] if value else [f"{head} []"]


def _items(values: Sequence[Value], indent: int) -> list[str]:
    lines: list[str] = []
    for value in values:
        if isinstance(value, str | int):
            lines.append(f"{' ' * indent}- {_scalar(value)}")
        elif isinstance(value, Mapping):
            first, *rest = block(value, indent + 2)
            lines += [f"{' ' * indent}- {first.lstrip(' ')}", *rest]
        else:
            raise TypeError("a list of lists is not written here")
    return lines


def _scalar(value: str | int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else str(value)
