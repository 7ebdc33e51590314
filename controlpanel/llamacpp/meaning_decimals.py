"""Fields that hold a number with decimals."""

from __future__ import annotations

import re
from decimal import Decimal

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.meaning_kinds import Kind, Meaning, Words, no_flag, shown

_LARGEST = 10**15
_PLAIN = re.compile(r"-?[0-9]{1,16}(?:\.[0-9]{1,6})?")
_WRITTEN = re.compile(r"[-+]?(?:[0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})(?:[eE][-+]?[0-9]{1,2})?")


def decimal(value: object) -> Decimal | None:
    """Return a number or plain decimal text as a number, None for anything else.

    A profile stores a whole number as such and any other as plain text, such as "0.7"; a float counts as
    the text it is shown as. More than 6 decimals are refused.
    """
    if isinstance(value, (int, float)):
        if isinstance(value, bool) or not -_LARGEST <= value <= _LARGEST:
            return None
        value = format(Decimal(repr(value)), "f")
    return Decimal(value) if isinstance(value, str) and _PLAIN.fullmatch(value) else None


def plain(number: Decimal) -> str:
    """Return a number without exponent and without zeros that say nothing."""
    text = format(number, "f") if number else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text


def stored(written: str) -> int | str | None:
    """Return what a profile stores for a number as a command line may write it; None for anything else."""
    if not _WRITTEN.fullmatch(written):
        return None
    text = plain(Decimal(written))
    return text if "." in text else int(text)


def _check(meaning: Meaning, caps: Capabilities, value: object) -> Message | None:
    number = decimal(value)
    low, high = Decimal(str(meaning.low)), Decimal(str(meaning.high))
    if number is not None and low <= number <= high:
        return no_flag(meaning, caps)
    text = N_("Give a number from %(low)s to %(high)s with at most 6 decimals, such as 0.7; not %(value)s.")
    return Message(text, {"low": meaning.low, "high": meaning.high, "value": shown(value)})


def _words(meaning: Meaning, caps: Capabilities, value: object) -> Words:
    flag, number = caps.find(*meaning.names), decimal(value)
    name = flag.name if flag else meaning.names[0]
    return ((name, str(value) if number is None else plain(number)),)


def _offered(meaning: Meaning, caps: Capabilities) -> tuple[str, ...]:
    return ()


DECIMAL = Kind(_check, _words, _offered)
