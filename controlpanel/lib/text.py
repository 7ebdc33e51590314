"""User-facing texts of modules that do not import Django."""

from __future__ import annotations

from dataclasses import dataclass, field


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


class Worded(Exception):
    """An error whose sentence can be translated where it is shown; str() is the English one."""

    def __init__(self, text: str, **params: object) -> None:
        self.message = Message(text, params)
        super().__init__(str(self.message))

    @classmethod
    def of(cls, message: Message) -> Worded:
        """Return the error that says a message which somebody else made."""
        return cls(message.text, **message.params)
