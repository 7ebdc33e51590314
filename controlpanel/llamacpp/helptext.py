"""What a llama.cpp program says about itself: --help, --version and --list-devices."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_TEXT = 4 * 1024 * 1024

_SECTION = re.compile(r"-----\s*(.+?)\s*-----")
_COMMA = re.compile(r", +(?=-)")
_NAME = re.compile(r"-{1,2}[A-Za-z0-9][\w.-]*")
_ENV = re.compile(r"\(env: ([A-Z0-9_]+)\)")
# A comma or an equals sign begins an explanation of the value, unless words alone make a list.
_DEFAULT = re.compile(
    r"default: ?((?:(?![,;] | = )[^()])*(?:(?<=[A-Za-z])(?:, [A-Za-z]\w*(?=[,)])){2,})?)"
    r"|defaults to ([^,;.()]+)"
    r"|- ([a-z0-9][\w+-]*) \(default\): "
)
_LISTED = re.compile(
    r"(?:allowed values|available tools|list of built-in templates): ((?:[\w+.-]+, )*[\w+.-]*\w)"
)
_TYPES = re.compile(r"\btypes: ((?:[\w+-]+, )+[\w+-]+)")
_BULLET = re.compile(r"- ([a-z0-9][\w+-]*)(?: \(default\))?: ")
_WORD = re.compile(r"[a-z0-9][\w+-]*")
_REMOVED = "the argument has been removed"

# Options begin at column 0 with their help at column 40, or in ik_llama.cpp at column 2 with it at 34.
_OLDER = re.compile(r"(?=.{33}) {2,12}(?=-)")
_HINT_TWICE = re.compile(r"(-\S+) (\S+), (--\S+ \2)$")
_OLDER_SECTION = re.compile(r"([a-z][a-z /-]*):")
_INDENT = " " * 34

_VERSION = re.compile(r"version: (?:(\S+) \(build (\d+), commit (\S+)\)|(\d+) \((\S+)\))")
_DEVICE = re.compile(r"\s+(\w+): (.+) \((\d{1,9}) MiB, (\d{1,9}) MiB free\)")


@dataclass(frozen=True)
class Flag:
    """One option of a program; a flag without `hint` takes no value."""

    names: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    hint: str = ""
    help: str = ""
    env: str = ""
    default: str | None = None
    choices: tuple[str, ...] = ()
    removed: bool = False
    section: str = ""

    @property
    def all_names(self) -> tuple[str, ...]:
        """Return every spelling, the negative ones last."""
        return self.names + self.negatives

    @property
    def name(self) -> str:
        """Return the first long spelling."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])

    @property
    def arity(self) -> int:
        """Return how many words follow the flag."""
        if self.hint in ("START END", "TARGET DRAFT"):
            return 2
        return 1 if self.hint else 0


@dataclass(frozen=True)
class Version:
    """The build's own statement; `build` is 0 and `commit` "unknown" for a build without git."""

    text: str
    build: int
    commit: str


@dataclass(frozen=True)
class Device:
    """A device that can hold layers; memory in MiB."""

    name: str
    description: str
    total: int
    free: int


def normalise(name: str) -> str:
    """Return a flag as the program's own parser sees it: `_` in a long name means `-`."""
    return name.replace("_", "-") if name.startswith("--") else name


def parse_help(text: str) -> tuple[Flag, ...]:
    """Return the options in the order of the help text; lines that fit no rule are left out."""
    flags, _ = _scan(text)
    return flags


def unparsed_lines(text: str) -> tuple[str, ...]:
    """Return the lines that the parser does not understand."""
    _, others = _scan(text)
    return others


def _lines(text: str) -> list[str]:
    """Return the lines of a bounded part of untrusted text, without NUL, which databases refuse."""
    return text[:MAX_TEXT].replace("\x00", "").splitlines()


def _scan(text: str) -> tuple[tuple[Flag, ...], tuple[str, ...]]:
    blocks: list[tuple[str, str, list[str]]] = []
    others: list[str] = []
    section = ""
    for line in _lines(text):
        heading = _SECTION.fullmatch(line.rstrip()) or _OLDER_SECTION.fullmatch(line.rstrip())
        older = _OLDER.match(line)
        if heading:
            section = heading[1].removesuffix(" params")
        elif _NAME.match(line, older.end() if older else 0):
            blocks.append((section, _older_head(line) if older else line, []))
        elif blocks and line.startswith(_INDENT):
            blocks[-1][2].append(line.strip())
        elif line.strip():
            others.append(line)
    return tuple(_flag(*block) for block in blocks), tuple(others)


def _older_head(line: str) -> str:
    """Return a line of the older layout as one of the newer: names, one hint, two spaces, help."""
    cut = 34 if line[32:34].isspace() else len(line)
    names = _HINT_TWICE.sub(r"\1, \3", " ".join(line[:cut].split()))
    return f"{names}  {line[cut:]}"


def _flag(section: str, head: str, lines: list[str]) -> Flag:
    names, hint, first = _split_head(head)
    help_lines = _unwrap([first, *lines])
    text = " ".join(help_lines)
    positive, negative = _polarity(names)
    env = _ENV.search(text)
    default = _DEFAULT.search(text)
    value = next(part for part in default.groups() if part is not None) if default else None
    value = value.strip().strip("'\"") if value is not None else None
    return Flag(
        names=positive,
        negatives=negative,
        hint=hint,
        help="\n".join(line for line in help_lines if not _ENV.fullmatch(line)),
        env=env[1] if env else "",
        default=value,
        choices=_choices(hint, text, help_lines, value),
        removed=_REMOVED in text,
        section=section,
    )


def _split_head(head: str) -> tuple[list[str], str, str]:
    """Split an option's first line into names, value hint and the start of its help."""
    names: list[str] = []
    pos = 0
    while match := _NAME.match(head, pos):
        names.append(match[0])
        pos = match.end()
        comma = _COMMA.match(head, pos)
        if comma is None:
            break
        pos = comma.end()
    rest = head[pos:]
    if rest.startswith("  ") or not rest.strip():
        return names, "", rest.strip()
    hint, _, first = rest.strip().partition("  ")
    return names, hint, first.strip()


def _unwrap(lines: list[str]) -> list[str]:
    """Join word-wrapped lines; list entries and the environment line stay on their own."""
    joined: list[str] = []
    for line in lines:
        if not line:
            continue
        if joined and not line.startswith(("- ", "(env: ")):
            joined[-1] += " " + line
        else:
            joined.append(line)
    return joined


def _polarity(names: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Separate `--x` from `--no-x`; short negative names stand between the two groups."""
    positive = [i for i, name in enumerate(names) if name.startswith("--") and not name.startswith("--no-")]
    has_negative = any(name.startswith("--no-") for name in names)
    if not positive or not has_negative:
        return tuple(names), ()
    cut = positive[-1] + 1
    return tuple(names[:cut]), tuple(names[cut:])


def _choices(hint: str, text: str, lines: list[str], default: str | None) -> tuple[str, ...]:
    inner = hint[1:-1] if hint[:1] + hint[-1:] in ("[]", "{}", "<>", "()") else hint
    words = re.split(r"[|,]", inner)
    if len(words) > 1 and all(_WORD.fullmatch(word) for word in words) and not _looks_like_example(words):
        return tuple(words)
    # A file's contents and the types of a key are no choices.
    one_of = not hint.endswith("FILE") and "=" not in hint.partition("[")[0]
    allowed = (_LISTED.search(text) or _TYPES.search(text)) if one_of else None
    if allowed:
        return tuple(allowed[1].split(", "))
    bullets = [match[1] for line in lines if (match := _BULLET.match(line))]
    if bullets and default and _WORD.fullmatch(default) and default not in bullets:
        bullets.append(default)
    return tuple(bullets)


def _looks_like_example(words: list[str]) -> bool:
    """Tell `dev1,dev2` from real choices."""
    return all(word[-1].isdigit() and word[:-1].isalpha() for word in words)


def parse_version(text: str) -> Version:
    """Read `--version` in both dialects; unknown text is kept, with build 0."""
    match = _VERSION.search("\n".join(_lines(text)))
    if match is None:
        lines = [line.strip() for line in _lines(text) if line.strip()]
        return Version(lines[0][:200] if lines else "", 0, "unknown")
    return Version(match[1] or match[4], _build(match[2] or match[4]), match[3] or match[5])


def _build(digits: str) -> int:
    """Return the build number; a made-up one that no database column holds counts as none."""
    return int(digits) if len(digits) <= 9 else 0


def parse_devices(text: str) -> tuple[Device, ...]:
    """Read `--list-devices`; empty when the build sees no GPU."""
    matches = (_DEVICE.fullmatch(line) for line in _lines(text))
    return tuple(Device(m[1], m[2], int(m[3]), int(m[4])) for m in matches if m)
