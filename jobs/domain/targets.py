"""What a configured build can make, read from `cmake --build FOLDER --target help`."""

from __future__ import annotations

import re

_MAKE = re.compile(r"^\.\.\. (\S+)", re.MULTILINE)
_NINJA = re.compile(r"^([^\s:]+): ", re.MULTILINE)


def targets_in(text: str) -> frozenset[str]:
    """Return the names of the targets, as make or ninja lists them."""
    return frozenset(_MAKE.findall(text) or _NINJA.findall(text))
