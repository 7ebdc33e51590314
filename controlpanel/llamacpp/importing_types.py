"""What an imported command line is: settings of a profile, and a word on every part of it."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from controlpanel.lib.text import Message

LineKind = Literal["mapped", "renamed", "managed", "dropped", "wrong"]

_SHOWN = 120
_SECRET = re.compile(
    r"(?:^|[-_])(?:key|token|secret|pass|passwd|password|auth|bearer|hft)(?:$|[-_])|api-?_?key"
)


class Line(NamedTuple):
    """What became of one part of the text; `flag` and `message` never repeat a secret."""

    kind: LineKind
    flag: str
    message: Message


class Imported(NamedTuple):
    """What a profile stores of a command; `env` holds the variables that a profile keeps.

    `policy` is what the text says of how the server is kept running, by the names of the policy's fields.
    """

    settings: dict[str, object]
    model: str
    mmproj: str
    port: int | None
    alias: str
    extra: tuple[str, ...]
    env: dict[str, str]
    report: tuple[Line, ...]
    policy: dict[str, object]


def line(kind: LineKind, flag: str, text: str, **params: object) -> Line:
    """Return a line whose message may name the flag."""
    return Line(kind, shown(flag), Message(text, {"flag": shown(flag), **params}))


def shown(text: str) -> str:
    """Return a part of the text as a message shows it, cut when it is long."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def secret(name: str) -> bool:
    """Tell whether what a flag or a variable of that name holds must not be shown."""
    return _SECRET.search(name.lower()) is not None
