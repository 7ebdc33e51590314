"""A profile as a unit of systemd."""

from __future__ import annotations

import re

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.exporting_types import ESTIMATED, Exported, ExportedText, ExportError

_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@+-]+")
# An executable's own name may hold none of these in systemd.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"'\\$]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_RESTARTS = {"never": "no", "on-failure": "on-failure", "always": "always"}
_PAUSE = 2  # seconds before each start after a failure
_STEP = 256  # MiB, in which MemoryMax= is given


def systemd(what: Exported) -> ExportedText:
    """Return a system service with the command's words quoted as systemd reads them."""
    lines = ["[Unit]", f"Description={what.title.replace('%', '%%')}"]
    kept = what.upkeep
    # The first start counts too, and whatever starts within the interval was never stable.
    lines += ["After=network.target", f"StartLimitIntervalSec={kept.limit * (kept.stable_s + _PAUSE)}"]
    lines += [f"StartLimitBurst={kept.limit + 1}", "", "[Service]"]
    lines += ["Type=exec", "# User=llama"]
    lines += ["# LLAMA_API_KEY=... stands in this file, which only root may read:"]
    lines += [f"# EnvironmentFile=/etc/llama-server/{what.label}.env"]
    lines += [f"Environment={_quoted(f'{name}={value}')}" for name, value in what.env.items()]
    lines += _command(what)
    lines += [f"Restart={_RESTARTS[kept.restart]}", f"RestartSec={_PAUSE}"]
    lines += ["KillMode=mixed", "TimeoutStopSec=60"]
    if kept.memory_mib is not None:
        lines.append(f"MemoryMax={kept.memory_mib}M")
    elif what.memory_mib is not None:
        lines += [f"MemoryMax={_limit(what.memory_mib)}M", f"{ESTIMATED}=MemoryMax"]
    if what.locks_memory:
        lines.append("LimitMEMLOCK=infinity")
    lines += ["NoNewPrivileges=yes", "", "[Install]", "WantedBy=multi-user.target"]
    return ExportedText(f"{what.label}.service", "ini", "\n".join(lines) + "\n", _notes(what))


def _notes(what: Exported) -> list[Message]:
    notes = [
        Message(_INSTALL, {"file": f"{what.label}.service", "unit": f"{what.label}"}),
        Message(_KEY, {"file": f"/etc/llama-server/{what.label}.env"}),
        Message(_USER),
    ]
    if what.upkeep.memory_mib is None and what.memory_mib is not None:
        params: dict[str, object] = {"limit": _limit(what.memory_mib), "estimate": what.memory_mib}
        notes.append(Message(_MEMORY, params))
    return notes


def _limit(memory_mib: int) -> int:
    """Return the estimate with a quarter, at least 1 GiB, for what it does not know."""
    wanted = memory_mib + max(memory_mib // 4, 1024)
    return -(-wanted // _STEP) * _STEP


def _command(what: Exported) -> list[str]:
    """Return ExecStart= over several lines; a name that systemd refuses is given to env."""
    start = _quoted(what.executable)
    if _UNSAFE.search(what.executable) or what.executable[:1] != "/":
        if "=" in what.executable:
            raise ExportError(N_("The path of the build cannot be written in a unit: move the build."))
        start = f"/usr/bin/env {_argument(what.executable)}"
    rows = [" ".join(map(_argument, row.words)) for row in what.rows]
    return " \\\n".join([f"ExecStart={start}", *(f"    {row}" for row in rows)]).split("\n")


def _argument(word: str) -> str:
    return _quoted(word.replace("$", "$$"))


def _quoted(word: str) -> str:
    """Return a word that systemd's unquoting and its specifiers turn into the given one."""
    if _PLAIN.fullmatch(word):
        return word
    return '"' + "".join(map(_escaped, word)).replace("%", "%%") + '"'


def _escaped(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if char < " " or char == "\x7f":
        return f"\\x{ord(char):02x}"
    return char


_INSTALL = N_("Put it into /etc/systemd/system/%(file)s, then: systemctl enable --now %(unit)s")
_KEY = N_(
    "The unit sets no key. Write LLAMA_API_KEY=... to %(file)s and take the # off the line EnvironmentFile=; "
    "without a key every program of the host may use the server."
)
_USER = N_(
    "Without the line User= the server runs as root: name a user who may read the model and use the graphics "
    "cards."
)
_MEMORY = N_(
    "MemoryMax is %(limit)s MiB: the estimated %(estimate)s MiB of main memory with a reserve. "
    "Raise it when the server is ended for its memory."
)
