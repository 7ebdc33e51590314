"""Version numbers as text: read, compared."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\d{1,9}")
_DOTTED = r"(\d{1,9}(?:\.\d{1,9})+)"
_RELEASE = re.compile(rf"\brelease {_DOTTED}")
_VERSION = re.compile(rf"\bversion:? v?{_DOTTED}", re.IGNORECASE)
_FIRST = re.compile(rf"\b[vV]?{_DOTTED}")
_IN_BRACKETS = re.compile(r"\([^()]*\)")
_READ = 4096  # characters of a program's answer that are looked at


def parse_version(text: str) -> str:
    """Return the version in what a program prints for --version, "" when there is none.

    nvcc's is the toolkit's release ("12.4"); a distribution's own number in brackets is passed over.
    """
    text = text[:_READ].strip()
    if text.isascii() and text.isdigit():
        return text
    found = _RELEASE.search(text) or _VERSION.search(text) or _FIRST.search(_IN_BRACKETS.sub(" ", text))
    return found[1] if found else ""


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without zeros at its end, so that 13.0 equals 13."""
    found = [int(number) for number in _NUMBER.findall(version)]
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)


def older(version: str, than: str) -> bool:
    """Tell whether a version is known and older than another."""
    return bool(version) and numbers(version) < numbers(than)
