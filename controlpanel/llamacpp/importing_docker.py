"""The part of a `docker run` command that starts a server: its variables, and what follows the image."""

from __future__ import annotations

import re
from collections.abc import Sequence

from controlpanel.lib.text import N_
from controlpanel.llamacpp.importing_types import Line, line, shown
from controlpanel.llamacpp.importing_upkeep import Upkeep

PROGRAMS = ("docker", "podman", "nerdctl")

_ENV = ("-e", "--env")
_VOLUMES = ("-v", "--volume", "--mount")
_PORTS = ("-p", "--publish")
_MEMORY = ("-m", "--memory")
_SWITCHES = frozenset(
    ("--detach", "--interactive", "--tty", "--rm", "--init", "--privileged", "--read-only")
    + ("--publish-all", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--quiet", "--replace")
)
_SHORT_SWITCHES = re.compile(r"-[ditPq]+")
_SHORT_VALUE = re.compile(r"-[evpuwhmlac](?=[^=])")

Found = tuple[list[str], list[str], list[Line]]
"""The words after the image, the variables as NAME=value, and what is said of the rest."""


def read_docker(words: Sequence[str], upkeep: Upkeep) -> Found:
    """Read the words after `docker run`; what keeps the container running goes into `upkeep`."""
    variables: list[str] = []
    lines: list[Line] = []
    pos = 0
    while pos < len(words) and words[pos].startswith("-") and words[pos] != "--":
        name, value, step = _option(words, pos)
        pos += step
        if name in _ENV:
            variables.append(value)
        elif name in _VOLUMES:
            lines.append(_volume(name, value))
        elif name == "--restart":
            upkeep.restart(name, value)
        elif name in _MEMORY:
            upkeep.memory("--memory", value)
        elif name in _PORTS:
            text = N_("%(flag)s: no port of a container is needed; people reach servers through the panel.")
            lines.append(line("dropped", name, text))
        else:
            text = N_("%(flag)s: this is an option of the container; the panel starts servers without one.")
            lines.append(line("dropped", name, text))
    if words[pos : pos + 1] == ["--"]:
        pos += 1
    if pos < len(words):
        text = N_("%(flag)s: the image is not used; the profile's build takes its place.")
        lines.append(line("dropped", words[pos], text))
    rest = list(words[pos + 1 :])
    # Images with several tools take the tool's name first.
    if rest and (rest[0] in ("--server", "-s") or rest[0].rpartition("/")[2] == "llama-server"):
        rest = rest[1:]
    return rest, variables, lines


def _option(words: Sequence[str], pos: int) -> tuple[str, str, int]:
    """Return an option's name, its value, and how many words it took."""
    word = words[pos]
    if word in _SWITCHES or _SHORT_SWITCHES.fullmatch(word):
        return word, "", 1
    if word.startswith("--") and "=" in word:
        name, _, value = word.partition("=")
        return name, value, 1
    if len(word) > 2 and _SHORT_VALUE.match(word):
        return word[:2], word[2:], 1
    return word, words[pos + 1] if pos + 1 < len(words) else "", 2


def _volume(flag: str, value: str) -> Line:
    if flag == "--mount":
        parts = dict(part.partition("=")[::2] for part in value.split(","))
        host = parts.get("source") or parts.get("src") or ""
        inside = parts.get("target") or parts.get("dst") or parts.get("destination") or ""
    else:
        host, _, inside = value.partition(":")
        inside = inside.partition(":")[0]
    text = N_(
        "%(flag)s: %(inside)s of the container is %(host)s on its host. Paths are not changed: "
        "choose the model's file in the field Model."
    )
    return line("dropped", flag, text, host=shown(host), inside=shown(inside or host))
