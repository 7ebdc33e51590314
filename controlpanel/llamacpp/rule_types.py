"""What a diagnosis is made of: rules as data, what they found, and the values shown and stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controlpanel.lib.text import Message, message_of, plain

# Ranks of rules. A generic cause is said only when nothing better is known.
SPECIFIC, COMMON, GENERIC = 30, 20, 10

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_MAX_PARAM = 200


@dataclass(frozen=True)
class Evidence:
    """One line of a log: its number from 0, the byte where it starts, and its text, at most 500 chars."""

    line: int
    offset: int
    text: str


@dataclass(frozen=True)
class Change:
    """A form field and the value that mends it; plain values that JSON can hold."""

    field: str
    value: object


@dataclass(frozen=True)
class Diagnosis:
    """One cause with its remedy, one to five lines that show it, and the fields that mend it, if any do.

    `passing`: another start may go well without any change.
    """

    cause_key: str
    title: Message
    remedy: Message
    evidence: tuple[Evidence, ...]
    change: tuple[Change, ...] = ()
    passing: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON column."""
        return {
            "cause_key": self.cause_key,
            "title": plain(self.title),
            "remedy": plain(self.remedy),
            "evidence": [{"line": e.line, "offset": e.offset, "text": e.text} for e in self.evidence],
            "change": [{"field": c.field, "value": c.value} for c in self.change],
            "passing": self.passing,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Diagnosis:
        """Rebuild what to_json returned, also after a trip through JSON; without `passing` it is False."""
        return cls(
            str(data["cause_key"]),
            message_of(data["title"]),
            message_of(data["remedy"]),
            tuple(Evidence(int(e["line"]), int(e["offset"]), str(e["text"])) for e in data["evidence"]),
            tuple(Change(str(c["field"]), c["value"]) for c in data["change"]),
            bool(data.get("passing", False)),
        )


@dataclass(frozen=True)
class Found:
    """What a rule matched: named groups of its line and of the lines near it, facts, and the exit code."""

    groups: Mapping[str, str]
    facts: Mapping[str, object]
    exit_code: int | None

    def __getitem__(self, name: str) -> str:
        """Return a named group, "" when it took no part."""
        return self.groups.get(name, "")

    def listed(self, fact: str) -> list[Any] | None:
        """Return a fact that is a list, None when it is unknown."""
        value = self.facts.get(fact)
        return list(value) if isinstance(value, (list, tuple)) else None


@dataclass(frozen=True)
class Near:
    """A pattern of a line at most `before` lines above or `after` lines below; shown as evidence.

    With `required` false it only adds evidence and named groups.
    """

    pattern: str
    before: int = 0
    after: int = 0
    required: bool = True


@dataclass(frozen=True)
class Rule:
    """One way in which a cause shows itself.

    `patterns` are regexes of one line, of which one must match; each contains a literal of three characters
    outside of groups and alternatives, by which lines are found. A rule without patterns goes by `exit_codes`
    and `when` alone and shows the last line. `unless` are patterns of the same line, `unless_near` of lines
    around it. `title` and `remedy` take named groups, and what `params` returns, as `%(name)s`. `last` shows
    the last line that matches instead of the first. `explains` names causes that this one brings about.
    `passing` says whether another start may go well without any change; all rules of a cause agree.
    """

    cause_key: str
    patterns: tuple[str, ...]
    title: str
    remedy: str
    change: Callable[[Found], Iterable[Change]] | None = None
    rank: int = SPECIFIC
    with_: tuple[Near, ...] = ()
    unless: tuple[str, ...] = ()
    unless_near: tuple[Near, ...] = ()
    explains: tuple[str, ...] = ()
    needs_failure: bool = True
    exit_codes: tuple[int, ...] = ()
    when: Callable[[Mapping[str, object]], bool] | None = None
    params: Callable[[Found], Mapping[str, object]] | None = None
    last: bool = False
    passing: bool = False

    def applies(self, exit_code: int | None, facts: Mapping[str, object]) -> bool:
        """Return whether the rule is to be tried at all; an unknown exit code counts as a failure."""
        if self.needs_failure and exit_code == 0:
            return False
        if self.exit_codes and exit_code not in self.exit_codes:
            return False
        return self.when is None or self.when(facts)

    def diagnosis(self, found: Found, evidence: tuple[Evidence, ...]) -> Diagnosis:
        """Return the rule's words, filled with what it found."""
        values: dict[str, object] = {key: value[:_MAX_PARAM] for key, value in found.groups.items()}
        if self.params is not None:
            values.update(self.params(found))
        change = () if self.change is None else tuple(self.change(found))
        return Diagnosis(
            self.cause_key,
            _filled(self.title, values),
            _filled(self.remedy, values),
            evidence,
            change,
            self.passing,
        )


def _filled(text: str, values: Mapping[str, object]) -> Message:
    return Message(text, {name: values.get(name, "") for name in _PLACEHOLDER.findall(text)})
