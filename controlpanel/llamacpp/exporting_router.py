"""A profile as a section of the preset file of llama.cpp's own router, for --models-preset."""

from __future__ import annotations

import re

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.exporting_types import Exported, ExportedText, Row, one_line
from controlpanel.llamacpp.helptext import normalise

# The router sets these for each server that it starts.
_ROUTERS_OWN = ("--host", "--port")
# The format has no quotes: a value ends at the line's end or where a comment begins, and loses outer blanks.
_NO_VALUE = re.compile(r"[;#\r\n]|^[ \t]|[ \t]$")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def router(what: Exported) -> ExportedText:
    """Return one section; what its format cannot hold stands in a comment and in the notes."""
    entries: dict[str, str] = {}
    left: list[Row] = []
    for row in what.rows:
        if row.word in _ROUTERS_OWN:
            continue
        entry = _entry(row)
        if entry is None:
            left.append(row)
        else:
            entries[entry[0]] = entry[1]
    lines = [f"; {what.title}", f"[{what.label}]"]
    lines += [f"{key} = {value}".rstrip(" ") for key, value in entries.items()]
    lines += [f"; not possible here: {one_line(' '.join(row.words))}" for row in left]
    notes = [Message(_START, {"file": f"{what.label}.ini", "model": what.label})]
    if what.env:
        names = ", ".join(f"{name}={one_line(value)}" for name, value in what.env.items())
        notes.append(Message(_ENV, {"variables": names}))
    notes += [Message(_LEFT, {"flag": one_line(row.word)[:60]}) for row in left]
    return ExportedText(f"{what.label}.ini", "ini", "\n".join(lines) + "\n", notes)


def _entry(row: Row) -> tuple[str, str] | None:
    """Return key and value of a flag, None when the format cannot hold it."""
    name = row.flag.name if row.flag else row.word
    key = normalise(name).lstrip("-")
    if not _KEY.fullmatch(key) or len(row.values) > 1 or _NO_VALUE.search(row.value):
        return None
    if row.values:
        return key, row.value
    negative = row.flag is not None and normalise(row.word) in row.flag.negatives
    return key, "false" if negative else "true"


_START = N_(
    "Start the router with: llama-server --models-preset %(file)s --host 127.0.0.1 --port 8080. "
    "Requests name the model %(model)s. Address, port and key are the router's own: "
    "give it the key as LLAMA_API_KEY."
)
_ENV = N_("A preset holds no variables: set these for the router itself: %(variables)s")
_LEFT = N_(
    "%(flag)s is left out: its value cannot be written in a preset, which knows no quotes and takes ; and # "
    "for the start of a comment."
)
