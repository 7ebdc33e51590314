"""Rendering the meanings of a profile as the command line of one build."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from controlpanel.lib.text import N_
from controlpanel.llamacpp.capabilities import Capabilities, why_not_a_server
from controlpanel.llamacpp.command_rules import Case, check_rules
from controlpanel.llamacpp.environment import check_environment
from controlpanel.llamacpp.extra_args import check_extra, split_extra
from controlpanel.llamacpp.facts import HostFacts, ModelFacts
from controlpanel.llamacpp.helptext import normalise
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.problems import Problem, error

# The lowest verbosity at which builds of the newer log dialect print buffer sizes.
BUFFER_VERBOSITY = "4"

# A stop waits for an answer's thread, which sleeps until its next ping: 30 s by default.
PING_SECONDS = "2"

_VERBOSITY = frozenset({"-lv", "--verbosity", "--log-verbosity", "-v", "--verbose", "--log-verbose"})

Source = Literal["managed", "passed", "extra"]


@dataclass(frozen=True)
class Managed:
    """What the panel decides itself; `config_home` is an empty folder that hides the host's config.ini."""

    model: str
    mmproj: str | None
    alias: str
    port: int
    host: str = "127.0.0.1"
    config_home: str = ""


class Line(NamedTuple):
    """One flag as a person sees it; `value` is None for a flag without one."""

    flag: str
    value: str | None
    source: Source


@dataclass(frozen=True)
class Rendered:
    """The arguments after the executable, the environment to add, and what is wrong with them.

    A server may only be started when no problem is an error. The API key is not part of it.
    """

    argv: list[str]
    env: dict[str, str]
    lines: list[Line]
    problems: list[Problem] = field(default_factory=list)


def render(
    caps: Capabilities,
    settings: Mapping[str, object],
    extra: Sequence[str],
    managed: Managed,
    model: ModelFacts | None = None,
    mmproj: ModelFacts | None = None,
    allowed_folders: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    host: HostFacts | None = None,
) -> Rendered:
    """Render a profile for a build; fields that are absent or None are left to the build's default."""
    touched = {key: value for key, value in settings.items() if value is not None}
    problems: list[Problem] = []
    reason = why_not_a_server(caps)
    if reason:
        problems.append(Problem("error", "build", reason))
    lines = _managed_lines(caps, managed, extra)
    lines += _setting_lines(caps, touched, problems)
    lines += [Line(flag, value, "extra") for flag, value in split_extra(extra, caps)]
    given = dict(environment or {})
    problems += check_rules(Case(caps, touched, tuple(extra), model, mmproj, given, host or HostFacts()))
    problems += check_extra(extra, caps, touched, allowed_folders)
    problems += check_environment(given, caps)
    argv: list[str] = []
    for line in lines:
        if line.source != "extra":
            argv += [line.flag] if line.value is None else [line.flag, line.value]
    managed_env = {"XDG_CONFIG_HOME": managed.config_home} if managed.config_home else {}
    return Rendered([*argv, *extra], given | managed_env, lines, problems)


def shell_preview(argv: Sequence[str]) -> str:
    """Return a command as it can be pasted into a shell."""
    return shlex.join(argv)


def _managed_lines(caps: Capabilities, managed: Managed, extra: Sequence[str]) -> list[Line]:
    wanted: list[tuple[str, str | None]] = [("--model", managed.model)]
    if managed.mmproj:
        wanted.append(("--mmproj", managed.mmproj))
    wanted += [("--alias", managed.alias), ("--host", managed.host), ("--port", str(managed.port))]
    wanted += [("--metrics", None), ("--slots", None)]
    if not any(normalise(word.split("=")[0]) == "--sse-ping-interval" for word in extra):
        wanted.append(("--sse-ping-interval", PING_SECONDS))
    if caps.log == "new":
        if not _VERBOSITY.intersection(map(normalise, extra)):
            wanted.append(("-lv", BUFFER_VERBOSITY))
        wanted.append(("--log-colors", "off"))
    always = ("--model", "--mmproj", "--host", "--port")
    return [Line(flag, value, "managed") for flag, value in wanted if flag in always or caps.has(flag)]


def _setting_lines(caps: Capabilities, touched: Mapping[str, object], problems: list[Problem]) -> list[Line]:
    """Render the touched fields in the order of the registry, adding to `problems` what cannot be used."""
    for key in touched:
        if key not in MEANINGS:
            problems.append(error(key, N_("There is no setting with the name %(key)s."), key=key))
    lines: list[Line] = []
    for key, meaning in MEANINGS.items():
        if key not in touched:
            continue
        message = meaning.problem(caps, touched[key])
        if message:
            problems.append(Problem("error", key, message))
        else:
            lines += [Line(flag, value, "passed") for flag, value in meaning.render(caps, touched[key])]
    return lines
