"""What a container's options or a unit say of how the server is kept running, as the panel's policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.importing_types import Line, line, shown

_LABELS = {"restart": N_("Restart"), "limit": N_("Restarts in a row"), "memory_mib": N_("Memory limit")}
_RESTARTS: Mapping[str, str] = MappingProxyType(
    {
        "no": "never",
        "on-failure": "on-failure",
        "always": "always",
        "unless-stopped": "always",
    }
)
_TRIES = re.compile(r"on-failure:([0-9]{1,9})")
_SIZE = re.compile(r"([0-9]{1,18})([bkmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_MIB = 1024**2


@dataclass
class Upkeep:
    """The policy's values that were found, by the names of its fields, and what is said of each part."""

    policy: dict[str, object] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def restart(self, flag: str, value: str) -> None:
        """Take the word for a restart, in Docker's or in systemd's spelling."""
        tries = _TRIES.fullmatch(value)
        word = _RESTARTS.get("on-failure" if tries else value)
        if word is None:
            self._odd(flag, value)
            return
        self._take(flag, "restart", word)
        if tries and int(tries[1]):
            self._take(flag, "limit", int(tries[1]))

    def burst(self, flag: str, value: str) -> None:
        """Take systemd's number of starts, of which the first is none by itself."""
        if re.fullmatch("[0-9]{1,9}", value) and int(value) > 1:
            self._take(flag, "limit", int(value) - 1)

    def memory(self, flag: str, value: str) -> None:
        """Take a limit of memory in bytes or with a unit; less than a MiB counts as one."""
        size = _SIZE.fullmatch(value)
        if size is None or not int(size[1]):
            self._odd(flag, value)
            return
        self._take(flag, "memory_mib", -(-int(size[1]) * _UNITS[size[2].lower()] // _MIB))

    def _take(self, flag: str, name: str, value: object) -> None:
        self.policy[name] = value
        text = N_("%(flag)s: the field %(label)s is set to %(value)s.")
        self.lines.append(line("mapped", flag, text, label=Message(_LABELS[name]), value=str(value)))

    def _odd(self, flag: str, value: str) -> None:
        text = N_("%(flag)s: the panel has nothing like %(value)s; choose under Keeping it running.")
        self.lines.append(line("dropped", flag, text, value=shown(value)))
