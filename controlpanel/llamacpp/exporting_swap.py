"""A profile as an entry of the configuration of llama-swap."""

from __future__ import annotations

import shlex

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.exporting_types import Exported, ExportedText, ExportError, one_line
from controlpanel.llamacpp.exporting_yaml import Value, block

_PORT = "${PORT}"
_MACRO = "${"


def llama_swap(what: Exported) -> ExportedText:
    """Return one model; llama-swap chooses the port, and what it would misread stands in the notes."""
    ttl = what.upkeep.idle_s
    notes = [Message(_PORT_NOTE if ttl is None else _PORT_AND_TTL), Message(_KEY)]
    if not _survives(what.executable):
        raise ExportError(N_("The path of the build cannot be written for llama-swap."))
    rows = [_word(what.executable)]
    for row in what.rows:
        if row.word == "--port":
            rows.append(f"--port {_PORT}")
        elif all(map(_survives, row.words)):
            rows.append(" ".join(map(_word, row.words)))
        else:
            notes.append(Message(_LEFT, {"flag": one_line(row.word)[:60]}))
    model: dict[str, Value] = {"cmd": "\n".join(rows) + "\n", "proxy": f"http://127.0.0.1:{_PORT}"}
    name = one_line(what.name).replace(_MACRO, "$ {")
    model["name"] = name
    if what.description:
        model["description"] = one_line(what.description).replace(_MACRO, "$ {")
    if name != what.label:
        model["aliases"] = [name]
    if ttl is not None:
        model["ttl"] = ttl
    kept = [f"{key}={value}" for key, value in what.env.items() if _MACRO not in value]
    notes += [Message(_LEFT, {"flag": key}) for key, value in what.env.items() if _MACRO in value]
    if kept:
        model["env"] = kept
    title = what.title.replace(_MACRO, "$ {")
    lines = [f"# {title}", *_with_command(block({"models": {what.label: model}}), rows)]
    return ExportedText(f"llama-swap.{what.label}.yaml", "yaml", "\n".join(lines) + "\n", notes)


def _with_command(lines: list[str], rows: list[str]) -> list[str]:
    """Return the lines with the command as a block of its own lines where YAML can hold it so."""
    if not all(char.isprintable() for row in rows for char in row):
        return lines
    pos = next(pos for pos, line in enumerate(lines) if line.startswith("    cmd: "))
    return [*lines[:pos], "    cmd: |", *(f"      {row}" for row in rows), *lines[pos + 1 :]]


def _word(word: str) -> str:
    """Return a word quoted as a POSIX shell reads it, with no macro in it: llama-swap has no escape."""
    return shlex.quote(word).replace(_MACRO, "$''{")


def _survives(word: str) -> bool:
    """Tell whether llama-swap, which takes out comments and joins lines before it splits, keeps a word."""
    first, *rest = word.split("\n")
    joined = any(line.strip().endswith("\\") for line in (first, *rest[:-1])) if rest else False
    return not joined and not any(line.strip().startswith("#") for line in rest)


_PORT_NOTE = N_(
    "llama-swap chooses the port and starts the server with the first request. Add a line ttl: with seconds "
    "to have it ended when nobody uses it."
)
_PORT_AND_TTL = N_("llama-swap chooses the port and starts the server with the first request.")
_KEY = N_(
    "The server gets no key of its own: it listens on 127.0.0.1 only, and llama-swap checks the keys under "
    "apiKeys: of its configuration. Start llama-swap without LLAMA_API_KEY, which servers would inherit."
)
_LEFT = N_("%(flag)s is left out: llama-swap would read its value otherwise.")
