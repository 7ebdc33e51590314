"""What a profile says that another build cannot do, and what the other build writes differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.environment import check_environment
from controlpanel.llamacpp.extra_args import check_extra, split_extra
from controlpanel.llamacpp.meanings import MEANINGS


class Lost(NamedTuple):
    """One thing that worked with the old build; `key` is a field, a flag or a variable's name."""

    key: str
    label: Message
    value: str
    message: Message


def lost(
    settings: Mapping[str, object],
    extra: Sequence[str],
    environment: Mapping[str, str],
    old: Capabilities,
    new: Capabilities,
) -> list[Lost]:
    """Return what the old build can do and the new one cannot: fields, extra arguments, variables."""
    found: list[Lost] = []
    for key, meaning in MEANINGS.items():
        value = settings.get(key)
        if value is None or meaning.problem(old, value):
            continue
        reason = meaning.problem(new, value)
        if reason:
            found.append(Lost(key, Message(meaning.label), str(value), reason))
    return [*found, *_lost_extra(extra, old, new), *_lost_variables(environment, old, new)]


def respelled(
    settings: Mapping[str, object], old: Capabilities, new: Capabilities
) -> list[tuple[str, str, str]]:
    """Return (field, words before, words after) of each field that both builds can do in other words."""
    changes: list[tuple[str, str, str]] = []
    for key, meaning in MEANINGS.items():
        value = settings.get(key)
        if value is None or meaning.problem(old, value) or meaning.problem(new, value):
            continue
        before, after = (
            " ".join(part for pair in meaning.render(caps, value) for part in pair if part is not None)
            for caps in (old, new)
        )
        if before != after:
            changes.append((key, before, after))
    return changes


def _lost_extra(extra: Sequence[str], old: Capabilities, new: Capabilities) -> Iterator[Lost]:
    for words in _uses(extra, old):
        # Both builds say the same of a file outside the folders, which are not known here.
        before = {str(problem.message) for problem in check_extra(words, old) if problem.level == "error"}
        for problem in check_extra(words, new):
            if problem.level == "error" and str(problem.message) not in before:
                label = Message(N_("Extra arguments"))
                yield Lost(words[0], label, " ".join(words[1:]), problem.message)
                break


def _uses(extra: Sequence[str], caps: Capabilities) -> Iterator[list[str]]:
    """Yield each flag with its values as separate words."""
    pos = 0
    for _word, value in split_extra(extra, caps):
        end = pos + (1 if value is None else 2)
        while value is not None and " ".join(extra[pos + 1 : end]) != value:
            end += 1
        yield list(extra[pos:end])
        pos = end


def _lost_variables(environment: Mapping[str, str], old: Capabilities, new: Capabilities) -> Iterator[Lost]:
    for name, value in environment.items():
        before = check_environment({name: value}, old)
        for problem in check_environment({name: value}, new):
            if problem not in before:
                yield Lost(name, Message(N_("Environment")), value, problem.message)
