"""User-facing texts of modules that do not import Django."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def N_(text: str) -> str:
    """Mark a text for translation and return it unchanged."""
    return text


@dataclass(frozen=True)
class Message:
    """A translatable text with named `%` parameters, translated where it is shown.

    A parameter that is a Message itself is to be translated as well.
    """

    text: str
    params: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the untranslated text with its parameters filled in."""
        return self.text % self.params if self.params else self.text


def plain(message: Message) -> dict[str, Any]:
    """Return a message as plain values that JSON can hold; other parameters than numbers become texts."""
    return {"text": message.text, "params": {key: _plain(value) for key, value in message.params.items()}}


def message_of(data: Mapping[str, Any]) -> Message:
    """Rebuild what plain() returned; KeyError, TypeError or AttributeError where it is something else."""
    params = data["params"].items()
    known = {key: message_of(value) if isinstance(value, Mapping) else value for key, value in params}
    return Message(str(data["text"]), known)


def _plain(value: object) -> Any:
    if isinstance(value, Message):
        return plain(value)
    return value if isinstance(value, int | float) else str(value)


class Worded(Exception):
    """An error whose sentence can be translated where it is shown; str() is the English one."""

    def __init__(self, text: str, **params: object) -> None:
        self.message = Message(text, params)
        super().__init__(str(self.message))

    @classmethod
    def of(cls, message: Message) -> Worded:
        """Return the error that says a message which somebody else made."""
        return cls(message.text, **message.params)
