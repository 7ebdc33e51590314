"""Which flag or variable means which field of a profile, with a build and without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from controlpanel.lib.text import N_
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.extra_refused import refusal
from controlpanel.llamacpp.helptext import Flag, normalise
from controlpanel.llamacpp.meaning_any import ANY
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.renames import RENAMES

LOADING = {
    "--mmap": "mmap",
    "--no-mmap": "none",
    "--mlock": "mlock",
    "--direct-io": "dio",
    "-dio": "dio",
}
"""Flags of the older dialect that say a load mode without a value."""

FIELDS = {
    "-m": "model",
    "--model": "model",
    "-mm": "mmproj",
    "--mmproj": "mmproj",
    "--port": "port",
    "-a": "alias",
    "--alias": "alias",
}
"""Flags of a profile's fields that are no meaning."""

TURBO8 = N_(
    "%(flag)s: there is no %(value)s in any build. TurboQuant has turbo2, turbo3 and turbo4, "
    "in builds of a fork that lists them."
)

_BY_THE_PANEL = frozenset(
    refusal(name) for name in ("--host", "--alias", "--api-key", "--ssl-key-file", "--log-file", "--metrics")
)


def managed(reason: str) -> bool:
    """Tell whether a refusal says that the panel does the same itself."""
    return reason in _BY_THE_PANEL


class Use(NamedTuple):
    """A flag with its values; `shown` is what the text has for it, perhaps a variable's name."""

    name: str
    values: tuple[str, ...]
    shown: str


class Names:
    """The names of one build, those of every build behind them."""

    def __init__(self, caps: Capabilities | None) -> None:
        self.build = caps
        self.caps = caps or ANY
        self.keys = {name: key for key, m in MEANINGS.items() for name in (*m.more, *m.names)}
        for flag in self.caps.flags:
            key = next((self.keys[name] for name in flag.all_names if name in self.keys), None)
            if key is not None and key != "load_mode":
                self.keys |= dict.fromkeys(flag.all_names, key)
        self.keys |= dict.fromkeys(LOADING, "load_mode")
        self.env = {flag.env: flag for flag in ANY.flags if flag.env}
        self.env |= {flag.env: flag for flag in self.caps.flags if flag.env and not flag.removed}

    def flag(self, name: str) -> Flag | None:
        """Return what is known of a flag, removed or not."""
        return self.caps.index.get(name) or ANY.index.get(name)

    def renamed(self, name: str) -> str | None:
        """Return the name that the build has for a flag that it no longer, or not yet, knows."""
        for old, new in RENAMES:
            if name == old and self.caps.has(new.partition(" ")[0]):
                return new
            if name == new and self.caps.has(old):
                return old
        return None

    def known(self) -> Iterator[str]:
        """Yield every name that a mistyped flag may mean."""
        yield from self.caps.index
        if self.build is None:
            yield from (name for pair in RENAMES for name in pair if " " not in name)

    def of_variable(self, name: str, value: str) -> Use | None:
        """Return a variable of llama.cpp as the flag it stands for; None for any other variable."""
        flag = self.env.get(name)
        no = False
        if flag is None and name.startswith("LLAMA_ARG_NO_"):
            flag, no = self.env.get("LLAMA_ARG_" + name.removeprefix("LLAMA_ARG_NO_")), True
        if flag is None:
            return None
        if flag.arity:
            return None if no else Use(normalise(flag.name), (value,), name)
        if not no and value.lower() in ("on", "enabled", "true", "1"):
            return Use(flag.name, (), name)
        negative = next((word for word in flag.negatives if word.startswith("--")), "")
        return Use(negative, (), name)
