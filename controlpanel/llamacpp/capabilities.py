"""What one llama-server binary accepts, probed from the binary itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.helptext import (
    Device,
    Flag,
    normalise,
    parse_devices,
    parse_help,
    parse_version,
)


@dataclass(frozen=True)
class Capabilities:
    """The dialect of one build.

    `mtp_value`: what --spec-type calls MTP. `load_mode`: "load-mode" or "mmap" (--mmap, --mlock).
    `log`: "new" when the build hides buffer sizes below -lv 4, else "old".
    """

    version: str = ""
    build: int = 0
    commit: str = "unknown"
    spec_types: tuple[str, ...] = ()
    mtp_value: str | None = None
    cache_types: tuple[str, ...] = ()
    load_mode: str | None = None
    log: str = "old"
    devices: tuple[Device, ...] = ()
    flags: tuple[Flag, ...] = ()

    @cached_property
    def index(self) -> Mapping[str, Flag]:
        """Return every spelling, negative ones included, with its flag."""
        return {normalise(name): flag for flag in self.flags for name in flag.all_names}

    def find(self, *names: str) -> Flag | None:
        """Return the flag of the first spelling that the build still accepts."""
        found = (self.index.get(normalise(name)) for name in names)
        return next((flag for flag in found if flag is not None and not flag.removed), None)

    def has(self, name: str) -> bool:
        """Tell whether the build accepts a flag, in any spelling."""
        return self.find(name) is not None

    @property
    def turboquant(self) -> bool:
        """Tell whether the KV cache can use TurboQuant types."""
        return any(name.startswith("turbo") for name in self.cache_types)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a JSON column."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Capabilities:
        """Rebuild what to_dict returned, also after a trip through JSON."""
        known = {field.name for field in dataclasses.fields(cls)}
        plain = {key: _tuples(value) for key, value in data.items() if key in known}
        plain["devices"] = tuple(Device(**device) for device in data.get("devices", ()))
        plain["flags"] = tuple(
            Flag(**{key: _tuples(value) for key, value in flag.items()}) for flag in data.get("flags", ())
        )
        return cls(**plain)


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def capabilities_from(help_text: str, version_text: str = "", devices_text: str = "") -> Capabilities:
    """Build the capabilities from what the binary prints; any text is accepted."""
    version = parse_version(version_text)
    bare = Capabilities(flags=parse_help(help_text))
    spec_types = _choices(bare, "--spec-type")
    levels = bare.find("--log-verbosity", "--verbosity", "-lv")
    hides_buffers = bare.has("--log-jsonl") or (levels is not None and "4: trace" in levels.help)
    return dataclasses.replace(
        bare,
        version=version.text,
        build=version.build,
        commit=version.commit,
        spec_types=spec_types,
        mtp_value=next((value for value in ("draft-mtp", "mtp") if value in spec_types), None),
        cache_types=_choices(bare, "--cache-type-k"),
        load_mode="load-mode" if bare.has("--load-mode") else "mmap" if bare.has("--no-mmap") else None,
        log="new" if hides_buffers else "old",
        devices=parse_devices(devices_text),
    )


def _choices(caps: Capabilities, name: str) -> tuple[str, ...]:
    flag = caps.find(name)
    return flag.choices if flag else ()


def why_not_a_server(caps: Capabilities) -> Message | None:
    """Return why a binary is no llama-server, None when it is one."""
    if not caps.flags:
        return Message(N_("The program printed no list of options for --help: this is not a llama-server."))
    missing = [name for name in ("--model", "--port") if not caps.has(name)]
    if not missing:
        return None
    text = N_(
        "The program has no %(flags)s: this is another tool of llama.cpp, not llama-server. "
        "Name the file llama-server in the build's bin folder."
    )
    return Message(text, {"flags": ", ".join(missing)})
