"""The free-text arguments of a profile: splitting, and checking against a build before a start."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.extra_refused import myth, refusal
from controlpanel.llamacpp.helptext import Flag, normalise
from controlpanel.llamacpp.meaning_decimals import stored
from controlpanel.llamacpp.meaning_kinds import Meaning
from controlpanel.llamacpp.meaning_switches import switch_value
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.problems import Problem, error, warning
from controlpanel.llamacpp.renames import RENAMES

MAX_TEXT = 16_000
MAX_ARGS = 300

FIELD = "extra_args"

_NUMBER = re.compile(r"-\.?\d")
_FILE_HINT = re.compile(r"(?:FNAME|FILE|PATH|DIR)\b|\w+_FILE\b")
# TurboQuant has turbo2, turbo3 and turbo4.
_NO_TURBO = re.compile(r"turbo(?![234]$)\w*")
_FILE_LISTS = ("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled")
_LISTED_VALUES = (
    "--cache-type-k",
    "--cache-type-v",
    "--spec-draft-type-k",
    "--spec-draft-type-v",
    "--spec-type",
)


class ExtraArgsError(ValueError):
    """Text that cannot be split into arguments."""

    def __init__(self, text: str, **params: object) -> None:
        self.message = Message(text, params)
        super().__init__(str(self.message))


class _Use(NamedTuple):
    """A flag as written with the values that follow it; `flag` is None when the build does not know it."""

    word: str
    flag: Flag | None
    values: tuple[str, ...]


def parse_extra(text: str) -> list[str]:
    """Split the text as a shell would, over several lines too; raises ExtraArgsError with words.

    A backslash at the end of a line joins it with the next one, as in commands pasted from a shell.
    """
    if len(text) > MAX_TEXT:
        raise ExtraArgsError(N_("The extra arguments are longer than %(limit)s characters."), limit=MAX_TEXT)
    if "\x00" in text:
        raise ExtraArgsError(N_("The extra arguments hold a NUL character: remove it."))
    try:
        args = shlex.split(re.sub(r"\\\r?\n", "", text))
    except ValueError as problem:
        if "escaped" in str(problem):
            raise ExtraArgsError(N_("The extra arguments end with a lone backslash: remove it.")) from problem
        raise ExtraArgsError(N_("A quotation mark is not closed in the extra arguments.")) from problem
    if len(args) > MAX_ARGS:
        raise ExtraArgsError(N_("These are more than %(limit)s extra arguments."), limit=MAX_ARGS)
    return args


def split_extra(args: Sequence[str], caps: Capabilities) -> list[tuple[str, str | None]]:
    """Return each flag with its values as one text, None when it has no values."""
    return [(use.word, " ".join(use.values) if use.values else None) for use in _uses(args, caps)]


def fields_in_extra(args: Sequence[str], caps: Capabilities) -> dict[str, object]:
    """Return the fields that arguments stand for, with the values that say the same there."""
    found: dict[str, object] = {}
    for use in _uses(args, caps):
        meaning = _meaning_of(use, caps)
        value = _value_in_form(use, meaning, caps) if meaning else None
        if meaning and value is not None:
            found[meaning.key] = value
    return found


def check_extra(
    args: Sequence[str],
    caps: Capabilities,
    settings: Mapping[str, object] | None = None,
    allowed_folders: Sequence[Path] = (),
) -> list[Problem]:
    """Return what keeps the arguments from being used with the build.

    `settings` are the touched fields of the form. Files are accepted only inside `allowed_folders`.
    """
    problems: list[Problem] = []
    if any("\x00" in word for word in args):
        problems.append(error(FIELD, N_("The extra arguments hold a NUL character: remove it.")))
    for use in _uses(args, caps):
        problems += _check_use(use, caps, settings or {}, allowed_folders)
    return problems


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)


def _uses(args: Sequence[str], caps: Capabilities) -> Iterator[_Use]:
    """Group the words as llama.cpp does: a known flag takes its values whatever they look like."""
    pos = 0
    while pos < len(args):
        word = args[pos]
        flag = caps.index.get(normalise(word)) if _is_flag(word) else None
        end = pos + 1
        if flag is not None:
            end += flag.arity
        elif _is_flag(word):
            while end < len(args) and not _is_flag(args[end]):
                end += 1
        yield _Use(word, flag, tuple(args[pos + 1 : end]))
        pos = end


def _check_use(
    use: _Use, caps: Capabilities, settings: Mapping[str, object], folders: Sequence[Path]
) -> list[Problem]:
    if not _is_flag(use.word):
        known = myth(use.word)
        if known:
            return [error(FIELD, known, flag=_shown(use.word.partition("=")[0]))]
        text = N_("%(word)s is not a flag and belongs to none.")
        return [error(FIELD, text, word=_shown(use.word))]
    # A refused flag is refused in the place of a value too: another build may take no value there.
    for word in (use.word, *use.values):
        name = normalise(word.partition("=")[0])
        reason = refusal(name, caps.index.get(name)) if _is_flag(word) else None
        if reason:
            return [_refused(name, reason)]
    if use.flag is None:
        return [_unknown(use.word, caps)]
    if use.flag.removed:
        return [_removed(use)]
    if len(use.values) < use.flag.arity:
        return [
            error(FIELD, N_("%(flag)s needs a value after it (%(hint)s)."), flag=use.word, hint=use.flag.hint)
        ]
    found = (
        _set_in_form(use, caps, settings),
        _wrong_value(use, caps),
        _file(use, folders),
        _worth_a_warning(use, caps),
    )
    return [problem for problem in found if problem is not None]


def _shown(word: str) -> str:
    return word if len(word) <= 60 else word[:60] + "..."


def _refused(name: str, reason: str) -> Problem:
    return error(FIELD, reason, flag=_shown(name))


def _unknown(word: str, caps: Capabilities) -> Problem:
    name, equals, _ = word.partition("=")
    name = normalise(name)
    if equals and name in caps.index:
        return error(FIELD, N_("llama-server wants a space after %(flag)s, not an equals sign."), flag=name)
    known = myth(word)
    if known:
        return error(FIELD, known, flag=_shown(word.partition("=")[0]))
    renamed = _renamed(name, caps)
    if renamed:
        return error(FIELD, N_("This build calls %(flag)s %(name)s."), flag=_shown(name), name=renamed)
    near = difflib.get_close_matches(name[:60], sorted(caps.index), n=3, cutoff=0.7)
    if near:
        text = N_("This build has no flag %(flag)s. Similar flags: %(near)s.")
        return error(FIELD, text, flag=_shown(word), near=", ".join(near))
    return error(FIELD, N_("This build has no flag %(flag)s."), flag=_shown(word))


def _renamed(name: str, caps: Capabilities) -> str | None:
    """Return what the build calls a flag that an earlier or later build has."""
    for old, new in RENAMES:
        if name == old and caps.has(new.partition(" ")[0]):
            return new
        if name == new and caps.has(old):
            return old
    return None


def _removed(use: _Use) -> Problem:
    field = next((m for m in MEANINGS.values() if normalise(use.word) in m.names), None)
    if field:
        text = N_("This build has removed %(flag)s: set the field %(label)s.")
        return error(FIELD, text, flag=use.word, label=Message(field.label))
    help_text = use.flag.help if use.flag else ""
    return error(FIELD, N_("%(flag)s: %(help)s"), flag=use.word, help=help_text)


def _set_in_form(use: _Use, caps: Capabilities, settings: Mapping[str, object]) -> Problem | None:
    meaning = _meaning_of(use, caps)
    if meaning is None:
        return None
    if settings.get(meaning.key) is not None:
        text = N_("%(flag)s is set in the field %(label)s already: remove it in one of the two places.")
        return error(FIELD, text, flag=use.word, label=Message(meaning.label))
    if _value_in_form(use, meaning, caps) is None:
        return None
    text = N_("%(flag)s has a field of its own: use the field %(label)s instead.")
    return warning(FIELD, text, flag=use.word, label=Message(meaning.label))


def _meaning_of(use: _Use, caps: Capabilities) -> Meaning | None:
    """Return the field for a flag that the build has."""
    if use.flag is None:
        return None
    fields = MEANINGS.values()
    return next((m for m in fields if any(caps.index.get(name) is use.flag for name in m.names)), None)


def _value_in_form(use: _Use, meaning: Meaning, caps: Capabilities) -> object:
    """Return the value with which the field says the same; None when it cannot."""
    given = use.values[0] if use.values else None
    plain = None if given is None else stored(given)
    for value in (plain, given, *meaning.offered(caps)):
        if value is None or meaning.problem(caps, value) is not None:
            continue
        words = meaning.render(caps, value)
        if [_said(word, shown, caps) for word, shown in words] == [_said(use.word, given, caps)]:
            return value
    return None


def _said(word: str, value: str | None, caps: Capabilities) -> tuple[Flag | None, str, object]:
    """Return what a flag says apart from its spelling: which it is, on or off, and its value."""
    name = normalise(word)
    flag = caps.index.get(name)
    number = None if value is None else stored(value)
    return flag, switch_value(flag, name), value if number is None else number


def _wrong_value(use: _Use, caps: Capabilities) -> Problem | None:
    """Check values that the build lists and that differ between builds."""
    flag = use.flag
    if flag is None or not flag.choices or not any(name in flag.names for name in _LISTED_VALUES):
        return None
    given = use.values[0].split(",") if "--spec-type" in flag.names else [use.values[0]]
    wrong = next((value for value in given if value not in flag.choices), None)
    if wrong is None:
        return None
    if wrong in ("mtp", "draft-mtp") and caps.mtp_value:
        text = N_("This build calls MTP %(right)s: set the field Speculation, which knows the right word.")
        return error(FIELD, text, right=caps.mtp_value)
    text = N_("This build does not know %(value)s for %(flag)s. It offers: %(offered)s.")
    if _NO_TURBO.fullmatch(wrong):
        text = N_("There is no %(value)s in any build. For %(flag)s this one offers: %(offered)s.")
    return error(FIELD, text, value=_shown(wrong), flag=use.word, offered=", ".join(flag.choices))


def _file(use: _Use, folders: Sequence[Path]) -> Problem | None:
    if use.flag is None or not _FILE_HINT.match(use.flag.hint):
        return None
    value = use.values[0]
    listed = any(name in use.flag.names for name in _FILE_LISTS)
    paths = [part.partition(":")[0] for part in value.split(",")] if listed else [value]
    if all(_inside(path, folders) for path in paths):
        return None
    if not folders:
        text = N_(
            "%(flag)s names a file of the host: no folder is registered from which servers may read files."
        )
        return error(FIELD, text, flag=use.word)
    text = N_("%(flag)s names a file outside the registered folders: %(folders)s.")
    return error(FIELD, text, flag=use.word, folders=", ".join(map(str, folders)))


def _inside(path: str, folders: Sequence[Path]) -> bool:
    """Tell whether a path lies inside a folder, after following links."""
    try:
        real = Path(path).resolve()
        return Path(path).is_absolute() and any(real.is_relative_to(folder.resolve()) for folder in folders)
    except (OSError, RuntimeError, ValueError):
        return False


def _worth_a_warning(use: _Use, caps: Capabilities) -> Problem | None:
    names = use.flag.names if use.flag else ()
    if "-lv" in names and caps.log == "new" and re.fullmatch("[0-3]", use.values[0]):
        text = N_("Below %(flag)s 4 this build hides how much memory it takes, and the panel cannot show it.")
        return warning(FIELD, text, flag=use.word)
    if use.flag and use.flag.hint == "N" and _no_number(use.values[0], use.flag.help):
        return warning(
            FIELD, N_("%(flag)s takes a number, not %(value)s."), flag=use.word, value=_shown(use.values[0])
        )
    return None


def _no_number(value: str, help_text: str) -> bool:
    """Tell whether a value is neither a number nor a word that the build names for this flag."""
    return not re.fullmatch(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", value) and value not in help_text
