"""What an export is made of, and its text with what a person has to know of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from controlpanel.lib.text import N_, Message, Worded
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.helptext import Flag

Kind = Literal["shell", "systemd", "compose", "router", "llama-swap"]

PORT = 8080
"""The port of a text whose profile has none of its own."""

ESTIMATED = "X-Estimated"
"""A line of a unit, which systemd passes over, that names what the profile itself does not say."""

_NUMBER = re.compile(r"-\.?\d")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_OTHER_THAN_SLUG = re.compile(r"[^A-Za-z0-9_]+")


class ExportError(Worded):
    """A command that no text can hold; str() says why."""


@dataclass(frozen=True)
class Upkeep:
    """How the server is kept running: `limit` starts follow a failure until one was ready for `stable_s` s.

    `restart` is never, on-failure or always. The limit of main memory is in MiB, None for none. After
    `idle_s` s without a request the server is ended, None: it stays.
    """

    restart: str = "on-failure"
    limit: int = 3
    stable_s: int = 300
    memory_mib: int | None = None
    idle_s: int | None = None


@dataclass(frozen=True)
class Exported:
    """A server to be started without the panel: `argv` are the words after the executable.

    `port` None leaves the choice to the person. `memory_mib` is what the server takes of main memory, None
    when that is not known. `caps` tell how many words a flag takes and which devices the build has.
    """

    name: str
    slug: str
    executable: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    model: str = ""
    mmproj: str | None = None
    memory_mib: int | None = None
    description: str = ""
    caps: Capabilities = field(default_factory=Capabilities)
    upkeep: Upkeep = field(default_factory=Upkeep)

    @property
    def label(self) -> str:
        """Return the slug as every place of an export takes it."""
        return _OTHER_THAN_SLUG.sub("-", self.slug).strip("-") or "server"

    @property
    def title(self) -> str:
        """Return name and description in one line of printable characters."""
        return one_line(f"{self.name}: {self.description}" if self.description else self.name)

    @property
    def rows(self) -> list[Row]:
        """Return the flags, each with its values."""
        return list(_rows(self.argv, self.caps))

    @property
    def locks_memory(self) -> bool:
        """Tell whether the server keeps the model from being swapped out."""
        return any(
            row.word == "--mlock" or (row.is_flag("--load-mode") and "mlock" in row.value)
            for row in self.rows
        )


class Row(NamedTuple):
    """One flag as written with the words that follow it; `flag` is None when the build does not know it."""

    word: str
    flag: Flag | None
    values: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Return the flag with its values."""
        return (self.word, *self.values)

    @property
    def value(self) -> str:
        """Return the first value, "" when there is none."""
        return self.values[0] if self.values else ""

    def is_flag(self, name: str) -> bool:
        """Tell whether this is the flag of that name, in any of its spellings."""
        return self.word == name or (self.flag is not None and name in self.flag.names)


@dataclass(frozen=True)
class ExportedText:
    """The text of a file; `language` names its syntax, and `notes` say what the file alone does not."""

    filename: str
    language: str
    text: str
    notes: list[Message]


def check(what: Exported) -> None:
    """Raise ExportError for words that no file can hold."""
    for word in (what.name, what.executable, what.model, what.mmproj or "", *what.argv, *what.env.values()):
        if "\x00" in word:
            raise ExportError(N_("The command holds a NUL character: remove it from the profile."))
        if any("\ud800" <= char <= "\udfff" for char in word):
            raise ExportError(N_("The command holds characters that are no valid text: correct the profile."))
    wrong = next((name for name in what.env if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise ExportError(N_("%(name)s is no name of an environment variable."), name=one_line(wrong)[:60])


def one_line(text: str) -> str:
    """Return a text of a person in one line of printable characters, without a backslash at its end."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(plain.split()).rstrip("\\ ")


def _rows(argv: Sequence[str], caps: Capabilities) -> list[Row]:
    """Group the words as llama.cpp does: a known flag takes its values whatever they look like."""
    rows: list[Row] = []
    pos = 0
    while pos < len(argv):
        word = argv[pos]
        flag = caps.find(word) if _is_flag(word) else None
        end = pos + 1
        if flag is not None:
            end += flag.arity
        while flag is None and end < len(argv) and not _is_flag(argv[end]):
            end += 1
        rows.append(Row(word, flag, tuple(argv[pos + 1 : end])))
        pos = end
    return rows


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)
