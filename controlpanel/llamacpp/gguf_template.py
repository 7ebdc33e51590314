"""The chat template of a model file: whether there is one, and whether it can offer tools."""

from __future__ import annotations

import re
from dataclasses import dataclass

from controlpanel.llamacpp.gguf_header import GgufHeader

KEY = "tokenizer.chat_template"

_MAX_NAMED = 16
_TOOLS = re.compile(r"\btools?\b|\btool_calls?\b")


@dataclass(frozen=True)
class Template:
    """`size` in bytes as far as known; `tool_use` None when the text was too long to be read.

    `named` are the variants stored beside the default one.
    """

    present: bool
    size: int
    tool_use: bool | None
    named: tuple[str, ...]


def read_template(header: GgufHeader) -> Template:
    """Return the facts of the chat template, empty ones where the file has none."""
    keys = [key for key in (*header.metadata, *header.lengths) if key.startswith(f"{KEY}.")]
    named = tuple(sorted({key.removeprefix(f"{KEY}.")[:100] for key in keys})[:_MAX_NAMED])
    text = header.text(KEY)
    if text is not None:
        tool_use = bool(_TOOLS.search(text)) or "tool_use" in named
        return Template(bool(text), len(text.encode()), tool_use, named)
    size = header.lengths.get(KEY, 0)
    return Template(size > 0, size, "tool_use" in named or (None if size else False), named)
