"""Fields that switch something on or off: a flag without a value, in most builds with a negative spelling."""

from __future__ import annotations

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.helptext import Flag
from controlpanel.llamacpp.meaning_kinds import Kind, Meaning, Words, no_flag, shown


def switch_value(flag: Flag | None, name: str) -> str:
    """Return what a spelling of a switch says, "on" or "off"."""
    negative = name.startswith("--no-")
    if flag is not None:
        # Builds that know only how to switch off list a short name beside the negative one.
        only_off = all(word.startswith("--no-") for word in flag.names if word.startswith("--"))
        negative = negative or name in flag.negatives or only_off
    return "off" if negative else "on"


def _spellings(meaning: Meaning, caps: Capabilities) -> dict[str, str]:
    """Return "on" and "off" with the words by which the build says them."""
    found: dict[str, str] = {}
    for name in meaning.names:
        if caps.has(name):
            found.setdefault("off" if name.startswith("--no-") else "on", name)
    return found


def _check(meaning: Meaning, caps: Capabilities, value: object) -> Message | None:
    if value not in ("on", "off"):
        return Message(N_("Give on or off, not %(value)s."), {"value": shown(value)})
    missing = no_flag(meaning, caps)
    words = _spellings(meaning, caps)
    if missing or value in words:
        return missing
    text = N_("This build can say on with %(flag)s, but not off: leave the field empty.")
    if value == "on":
        text = N_("This build can say off with %(flag)s, but not on: leave the field empty.")
    return Message(text, {"flag": next(iter(words.values()))})


def _words(meaning: Meaning, caps: Capabilities, value: object) -> Words:
    return ((_spellings(meaning, caps).get(str(value), meaning.names[0]), None),)


def _offered(meaning: Meaning, caps: Capabilities) -> tuple[str, ...]:
    return tuple(_spellings(meaning, caps)) or meaning.choices


SWITCH = Kind(_check, _words, _offered)
