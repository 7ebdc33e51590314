"""Finding the command that starts llama-server in a pasted text: a shell's, a container's or a unit's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from controlpanel.lib.text import N_, Worded
from controlpanel.llamacpp.exporting_types import ESTIMATED
from controlpanel.llamacpp.importing_docker import PROGRAMS, read_docker
from controlpanel.llamacpp.importing_shell import Command, Variables, checked, split_shell, split_words
from controlpanel.llamacpp.importing_types import Line, line
from controlpanel.llamacpp.importing_upkeep import Upkeep

_UNIT = re.compile(r"^[ \t]*ExecStart[ \t]*=", re.MULTILINE)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,99})=(.*)", re.DOTALL)
_SERVERS = ("llama-server", "llama-server.exe")
_SHELLS = ("sh", "bash", "dash", "zsh")
_WRAPPERS = ("sudo", "env", "nohup", "exec", "command", "time", "setsid")
_NAMING = ("-a", "--alias", "-m", "--model")
_SHELL_COMMAND = re.compile(r"-[a-z]*c")


@dataclass
class Source:
    """The arguments of llama-server, its variables, how it is kept running, and what is said of the rest."""

    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    upkeep: Upkeep = field(default_factory=Upkeep)


def read_source(text: str) -> Source:
    """Find the command; Worded for a text that holds none or cannot be split."""
    text = checked(text)
    source = Source()
    variables = Variables()
    if _UNIT.search(text):
        words = _unit(text, source, variables)
        _take(words, source, variables, nested=True)
    else:
        _take_shell(text, source, variables, nested=True)
    return source


def _unit(text: str, source: Source, variables: Variables) -> list[str]:
    """Return the words of a systemd unit's ExecStart=, the last one that is not empty."""
    command = ""
    kept: dict[str, str] = {}
    for entry in re.sub(r"\\[ \t]*\r?\n", " ", text).splitlines():
        key, _, value = entry.strip().partition("=")
        key, value = key.strip(), value.strip()
        if key == "ExecStart" and value:
            command = value.lstrip("@-:+!").replace("%%", "%")
        elif key == "Environment":
            for word in split_words(value.replace("%%", "%")):
                _assign(word, source, variables)
        elif key == "EnvironmentFile":
            said = N_("%(flag)s: a file of the host is not read; paste its variables with the command.")
            source.lines.append(line("dropped", key, said))
        else:
            kept[key] = value
    _keep(kept, source.upkeep)
    return [variables.fill(word) for word in split_words(command)]


def _keep(kept: dict[str, str], upkeep: Upkeep) -> None:
    """Take what a unit says of restarts and memory; a limit that is only estimated is none of the profile."""
    if kept.get("Restart"):
        upkeep.restart("Restart", kept["Restart"])
    if kept.get("StartLimitBurst"):
        upkeep.burst("StartLimitBurst", kept["StartLimitBurst"])
    if kept.get("MemoryMax", "infinity") != "infinity" and kept.get(ESTIMATED) != "MemoryMax":
        upkeep.memory("MemoryMax", kept["MemoryMax"])


def _assign(word: str, source: Source, variables: Variables, exported: bool = True) -> bool:
    """Take a word of the form NAME=value; False for any other word."""
    match = _ASSIGNMENT.fullmatch(word)
    if match is None:
        return False
    value = variables.fill(match[2])
    variables.values[match[1]] = value
    if exported:
        source.env[match[1]] = value
    return True


def _take_shell(text: str, source: Source, variables: Variables, nested: bool) -> None:
    commands = split_shell(text)
    chosen = _chosen(commands)
    for command in commands:
        if command is chosen:
            _take([variables.fill(word) for word in command.words], source, variables, nested)
            said = N_("%(flag)s: output goes to the server's log, which the panel keeps.")
            # What follows a `<<<` is text of its own, and may be a password.
            for target in command.redirected:
                source.lines.append(line("dropped", target.split(" ")[0] if "<" in target else target, said))
        else:
            _other(command.words, source, variables)


def _chosen(commands: Sequence[Command]) -> Command:
    """Return the command that starts the server: by its name, else the one with most flags."""
    for command in commands:
        if any(_base(word) in _SERVERS for word in command.words):
            return command
    flags = [sum(word.startswith("-") for word in command.words) for command in commands]
    if not any(flags):
        raise Worded(N_("There is no command that starts llama-server in the text."))
    return commands[flags.index(max(flags))]


def _other(words: list[str], source: Source, variables: Variables) -> None:
    """Take the variables of a command that is not the server's, or say that it is left out."""
    exported = words[:1] == ["export"]
    rest = words[1:] if exported else words
    left = [word for word in rest if not _assign(word, source, variables, exported)]
    if left and not exported:
        text = N_("%(flag)s: this other command of the text is left out.")
        source.lines.append(line("dropped", left[0].partition("=")[0], text))


def _base(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2]


def _take(words: list[str], source: Source, variables: Variables, nested: bool) -> None:
    """Take the server's own command: what stands before its name, then its arguments."""
    start = _program(words)
    # Values of such programs' own options are not shown: one may be a password.
    for pos, word in enumerate(words[: max(start, 0)]):
        if not _assign(word, source, variables) and (pos == 0 or _base(word) in _WRAPPERS):
            text = N_("%(flag)s: this stands before the program and is left out; the panel starts it itself.")
            source.lines.append(line("dropped", word.partition("=")[0], text))
    if start < 0:
        source.args = words
        return
    name, rest = _base(words[start]), words[start + 1 :]
    script = next((pos for pos, word in enumerate(rest) if _SHELL_COMMAND.fullmatch(word)), None)
    if name in PROGRAMS and "run" in rest[:2]:
        rest, assignments, lines = read_docker(rest[rest.index("run") + 1 :], source.upkeep)
        source.lines += lines
        for word in assignments:
            if not _assign(word, source, variables):
                text = N_("%(flag)s: the value of this variable is not in the text.")
                source.lines.append(line("dropped", word.partition("=")[0] or "-e", text))
    elif nested and name in _SHELLS and script is not None and script + 1 < len(rest):
        _take_shell(rest[script + 1], source, variables, nested=False)
        return
    elif name not in _SERVERS:
        text = N_("%(flag)s is not called llama-server: its arguments are read as if it were.")
        source.lines.append(line("dropped", words[start], text))
    source.args = rest


def _program(words: Sequence[str]) -> int:
    """Return where the program stands, -1 when the text begins with its flags."""
    first = next((pos for pos, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
    if first == len(words) or words[first].startswith("-"):
        return -1
    starters = (*PROGRAMS, *_SHELLS)
    names = (*_SERVERS, *starters) if _base(words[first]) in (*_WRAPPERS, *starters) else _SERVERS
    for pos, word in enumerate(words):
        # Of a container's commands only `run` starts with options of its own that are read here.
        other = _base(word) in PROGRAMS and "run" not in words[pos + 1 : pos + 3]
        if _base(word) in names and not other and (pos == 0 or words[pos - 1] not in _NAMING):
            return pos
    while first < len(words) - 1 and _base(words[first]) in _WRAPPERS:
        first += 1
        while first < len(words) - 1 and _ASSIGNMENT.fullmatch(words[first]):
            first += 1
    return first
