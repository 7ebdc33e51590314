"""What the checks of a profile find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from controlpanel.lib.text import Message


@dataclass(frozen=True)
class Problem:
    """One finding; `field` is a key of the profile's form, or "extra_args", "model", "mmproj", "build"."""

    level: Literal["error", "warning"]
    field: str
    message: Message


def error(field: str, text: str, **params: object) -> Problem:
    """Return a finding that keeps the server from being started."""
    return Problem("error", field, Message(text, params))


def warning(field: str, text: str, **params: object) -> Problem:
    """Return a finding that a person should know of."""
    return Problem("warning", field, Message(text, params))


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Return the findings that keep the server from being started."""
    return [problem for problem in problems if problem.level == "error"]
