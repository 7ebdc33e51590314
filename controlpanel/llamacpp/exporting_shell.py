"""A profile as a script for any POSIX shell."""

from __future__ import annotations

import shlex

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.exporting_types import Exported, ExportedText


def shell(what: Exported) -> ExportedText:
    """Return a script that ends as the server itself."""
    lines = ["#!/bin/sh", f"# {what.title}"]
    lines.append('export LLAMA_API_KEY="${LLAMA_API_KEY:?Set it to the key that clients have to send.}"')
    lines += [f"export {name}={shlex.quote(value)}" for name, value in what.env.items()]
    command = [f"exec {shlex.quote(what.executable)}"]
    command += ["  " + shlex.join(row.words) for row in what.rows]
    text = "\n".join([*lines, " \\\n".join(command)]) + "\n"
    return ExportedText(f"{what.label}.sh", "shell", text, [Message(_KEY)])


_KEY = N_(
    "The script starts only when LLAMA_API_KEY holds the key that clients have to send: the panel makes "
    "a new one for each start and stores none."
)
