"""What the numbers mean by which the NVIDIA driver tells of errors of a card."""

from __future__ import annotations

from controlpanel.lib.text import Message
from controlpanel.llamacpp.rules_gpu_xid import XID_RULES

_RULES = {rule.cause_key: rule for rule in XID_RULES}
_OTHER_KEYS = {8: "xid8_link_stall"}


def told(number: int) -> tuple[Message, Message]:
    """Return what an error is and what to do about it."""
    rule = _RULES.get(_OTHER_KEYS.get(number, f"xid{number}"), _RULES["xid_other"])
    params: dict[str, object] = {"number": str(number)} if "%(number)s" in rule.title else {}
    return Message(rule.title, params), Message(rule.remedy)
