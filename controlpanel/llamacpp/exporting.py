"""A profile as a file that starts its server without the panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.command import Rendered
from controlpanel.llamacpp.exporting_compose import compose
from controlpanel.llamacpp.exporting_router import router
from controlpanel.llamacpp.exporting_shell import shell
from controlpanel.llamacpp.exporting_swap import llama_swap
from controlpanel.llamacpp.exporting_systemd import systemd
from controlpanel.llamacpp.exporting_types import Exported, ExportedText, ExportError, Kind, Upkeep, check

__all__ = ["KINDS", "ExportError", "Exported", "ExportedText", "Kind", "Upkeep", "export", "own_words"]

_WRITERS: Mapping[Kind, Callable[[Exported], ExportedText]] = MappingProxyType(
    {"shell": shell, "systemd": systemd, "compose": compose, "router": router, "llama-swap": llama_swap}
)

KINDS: Mapping[Kind, str] = MappingProxyType(
    {
        "shell": N_("Shell script"),
        "systemd": N_("systemd unit"),
        "compose": N_("Docker Compose service"),
        "router": N_("llama.cpp router preset"),
        "llama-swap": N_("llama-swap entry"),
    }
)
"""Every kind with its label."""

# The panel reads the log and stops servers itself; elsewhere these only make more lines or more pings.
_PANELS_OWN = frozenset({"--sse-ping-interval", "-lv", "--log-colors"})
_LEFT = N_("Left out, because only the panel needs it: %(flags)s.")
_CONFIG = N_(
    "The panel hides a config.ini of llama.cpp from its servers. Such a file on the target host may add "
    "settings of its own."
)


def export(kind: Kind, what: Exported) -> ExportedText:
    """Return the text of one kind; ExportError for words that no file can hold."""
    check(what)
    return _WRITERS[kind](what)


def own_words(rendered: Rendered) -> tuple[list[str], list[Message]]:
    """Return the words of a command that make sense without the panel, and a note on the others."""
    words: list[str] = []
    left: list[str] = []
    pos = 0
    for line in rendered.lines:
        if line.source != "managed":
            break
        end = pos + (1 if line.value is None else 2)
        if line.flag in _PANELS_OWN:
            left.append(" ".join(rendered.argv[pos:end]))
        else:
            words += rendered.argv[pos:end]
        pos = end
    notes = [Message(_LEFT, {"flags": ", ".join(left)})] if left else []
    return [*words, *rendered.argv[pos:]], [*notes, Message(_CONFIG)]
