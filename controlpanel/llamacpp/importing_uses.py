"""Grouping the words of a command into flags with their values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from controlpanel.llamacpp.helptext import normalise
from controlpanel.llamacpp.importing_flags import Names, Use
from controlpanel.llamacpp.importing_types import secret

_NUMBER = re.compile(r"-\.?\d")
_LONG_DASHES = "\N{EN DASH}\N{EM DASH}"
_ON_OFF = ("on", "off", "auto", "1", "0", "true", "false", "enabled", "disabled", "-1")


def is_flag(word: str) -> bool:
    """Tell a flag from a value, also from a negative number."""
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)


def group(args: Sequence[str], names: Names) -> Iterator[Use]:
    """Yield each flag with its values, and each word that belongs to none alone."""
    pos = 0
    while pos < len(args):
        word, equals, value = _plain_dashes(args[pos], names).partition("=")
        name = normalise(word)
        end = pos + 1
        if not is_flag(word):
            yield Use(args[pos], (), args[pos])
        elif equals:
            yield Use(name, (value,), word)
        else:
            end = _end(name, args, pos, names)
            yield Use(name, tuple(args[pos + 1 : end]), word)
        pos = end


def _plain_dashes(word: str, names: Names) -> str:
    """Return a flag whose dashes a text editor has joined into one long dash as it was."""
    if word[:1] not in _LONG_DASHES:
        return word
    bare = word.lstrip(_LONG_DASHES)
    spelled = [dashes + bare for dashes in ("--", "-")]
    return next((name for name in spelled if names.flag(normalise(name.partition("=")[0]))), word)


def _end(name: str, args: Sequence[str], pos: int, names: Names) -> int:
    """Return where the values of the flag at `pos` end; a known flag is nobody's value."""
    flag = names.flag(name)
    end = pos + 1
    if names.keys.get(name) == "flash_attn":
        # Builds until 2025 took no value here.
        return end + (end < len(args) and args[end] in _ON_OFF)
    if flag is None and not secret(name):
        while end < len(args) and not is_flag(args[end]):
            end += 1
        return end
    arity = flag.arity if flag else 1
    while end < len(args) and end <= pos + arity and names.flag(normalise(args[end])) is None:
        end += 1
    return end
