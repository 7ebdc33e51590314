"""Lines in which a server quotes what people write or the model answers: they may hold a failure's words."""

from __future__ import annotations

import dataclasses

from controlpanel.llamacpp.rule_types import Rule

# Of verbose logs; the last name is cut to twelve characters by the server.
QUOTED = (
    r"\"(?:content|prompt|input)\"\s*:",
    r"\blog_server_r\w*: +(?:request|response): ",
    r"\b(?:converted request|formatted[ _]prompt|Parsed message|data stream, to_send): ",
    r"\b[Gg]eneration[ _]prompt(?:: |=)",
    r"\bParsing (?:PEG )?input with format ",
    r"\b(?:next|prompt) token(?: +\d+)?: +\d+ '",
)


def unquoted(*rules: Rule) -> tuple[Rule, ...]:
    """Return the rules, silent about such lines."""
    return tuple(dataclasses.replace(rule, unless=(*rule.unless, *QUOTED)) for rule in rules)
