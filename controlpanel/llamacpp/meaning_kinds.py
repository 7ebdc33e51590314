"""Kinds of profile fields: how a value is checked against a build and becomes words of its command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.capabilities import Capabilities

Words = tuple[tuple[str, str | None], ...]
"""Flags with their values; None for a flag that takes none."""

MIN_CONTEXT = 256
MAX_CONTEXT = 16_777_216
MAX_SHARES = 15  # llama-server refuses as many shares as it can have devices, which are 16

_SPLIT = re.compile(r"\d{1,6}(?:\.\d{1,6})?(?:[,/]\d{1,6}(?:\.\d{1,6})?){0,63}")


@dataclass(frozen=True)
class Kind:
    """How the fields of one kind behave.

    `check` returns why a value cannot be used with a build, None when it can. `words` renders a checked
    value. `offered` lists the possible values; empty for a number or a text.
    """

    check: Callable[[Meaning, Capabilities, object], Message | None]
    words: Callable[[Meaning, Capabilities, object], Words]
    offered: Callable[[Meaning, Capabilities], tuple[str, ...]]


@dataclass(frozen=True)
class Meaning:
    """One field: `names` are the spellings of its flag, the preferred one first.

    `more` are spellings that are read and never written, `env` is the flag's variable. `choices` are the
    values where the build does not list its own; `low` and `high` bound a number. `group` is where a form
    shows the field, a key of GROUPS.
    """

    key: str
    label: str
    help: str
    names: tuple[str, ...]
    kind: Kind
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = 0
    more: tuple[str, ...] = ()
    env: str = ""
    group: str = ""

    def problem(self, caps: Capabilities, value: object) -> Message | None:
        """Return why `value` cannot be used with the build, None when it can."""
        return self.kind.check(self, caps, value)

    def render(self, caps: Capabilities, value: object) -> Words:
        """Return the words of the command line for a checked value."""
        return self.kind.words(self, caps, value)

    def offered(self, caps: Capabilities) -> tuple[str, ...]:
        """Return the values that the field can have with the build; empty for a number or a text."""
        return self.kind.offered(self, caps)


def whole(value: object) -> int | None:
    """Return a whole number given as such or in digits, None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return None


def no_flag(meaning: Meaning, caps: Capabilities) -> Message | None:
    """Return the message for a build that has no flag for the field."""
    if caps.find(*meaning.names):
        return None
    text = N_("This build has no %(flag)s: leave the field empty or choose another build.")
    return Message(text, {"flag": meaning.names[0]})


def _number(meaning: Meaning, caps: Capabilities, value: object) -> Message | None:
    number = whole(value)
    if number is None or not meaning.low <= number <= meaning.high:
        text = N_("Give a whole number from %(low)s to %(high)s, not %(value)s.")
        return Message(text, {"low": meaning.low, "high": meaning.high, "value": shown(value)})
    return no_flag(meaning, caps)


def _context(meaning: Meaning, caps: Capabilities, value: object) -> Message | None:
    number = whole(value)
    if number == 0 or (number is not None and MIN_CONTEXT <= number <= MAX_CONTEXT):
        return no_flag(meaning, caps)
    params: dict[str, object] = {"low": MIN_CONTEXT, "high": MAX_CONTEXT, "value": shown(value)}
    if number is not None and number > MAX_CONTEXT:
        text = N_(
            "A context of %(value)s tokens is beyond any model and any memory: "
            "give at most %(high)s, or 0 for the model's own size."
        )
    else:
        text = N_(
            "Give the context size in tokens, from %(low)s to %(high)s, or 0 for the model's own size; "
            "not %(value)s."
        )
    return Message(text, params)


def _layers(meaning: Meaning, caps: Capabilities, value: object) -> Message | None:
    number = whole(value)
    if value in ("auto", "all") or (number is not None and meaning.low <= number <= meaning.high):
        return no_flag(meaning, caps)
    text = N_("Give a number of layers from %(low)s to %(high)s, auto or all; not %(value)s.")
    return Message(text, {"low": meaning.low, "high": meaning.high, "value": shown(value)})


def _choice(meaning: Meaning, caps: Capabilities, value: object) -> Message | None:
    missing = no_flag(meaning, caps)
    if missing:
        return missing
    offered = meaning.offered(caps)
    if value in offered:
        return None
    text = N_("This build does not know %(value)s here. It offers: %(offered)s.")
    if isinstance(value, str) and value.startswith("turbo") and not caps.turboquant:
        text = N_(
            "This build does not know %(value)s here: it has no TurboQuant. It offers: %(offered)s. "
            "For TurboQuant types choose a build of a fork that has them."
        )
    return Message(text, {"value": shown(value), "offered": ", ".join(offered)})


def _speculation(meaning: Meaning, caps: Capabilities, value: object) -> Message | None:
    if value not in meaning.choices:
        text = N_("Speculation is one of %(offered)s, not %(value)s.")
        return Message(text, {"offered": ", ".join(meaning.choices), "value": shown(value)})
    if value == "none" or caps.mtp_value:
        return no_flag(meaning, caps)
    if not caps.spec_types:
        text = N_("This build has no speculative decoding: set Speculation to none or choose another build.")
        return Message(text)
    text = N_(
        "This build has no MTP; its kinds of speculation are: %(offered)s. "
        "Set Speculation to none or choose another build."
    )
    return Message(text, {"offered": ", ".join(caps.spec_types)})


def _loading(meaning: Meaning, caps: Capabilities, value: object) -> Message | None:
    if caps.load_mode is None:
        return no_flag(meaning, caps)
    offered = meaning.offered(caps)
    if value in offered:
        return None
    text = N_("This build does not know %(value)s here. It offers: %(offered)s.")
    return Message(text, {"value": shown(value), "offered": ", ".join(offered)})


def _split(meaning: Meaning, caps: Capabilities, value: object) -> Message | None:
    if not isinstance(value, str) or not _SPLIT.fullmatch(value):
        text = N_("Give one share per GPU, such as 3,1; not %(value)s.")
        return Message(text, {"value": shown(value)})
    shares = re.split("[,/]", value)
    if not any(float(share) for share in shares):
        return Message(N_("At least one GPU must get a share above 0."))
    if len(shares) > MAX_SHARES:
        text = N_("%(shares)s shares: llama-server takes at most %(limit)s.")
        return Message(text, {"shares": len(shares), "limit": MAX_SHARES})
    if caps.devices and len(shares) > len(caps.devices):
        text = N_("%(shares)s shares for %(devices)s GPUs: give at most one share per GPU.")
        return Message(text, {"shares": len(shares), "devices": len(caps.devices)})
    return no_flag(meaning, caps)


def shown(value: object) -> str:
    """Return a value as a message shows it, cut when it is long."""
    text = str(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _flag_choices(meaning: Meaning, caps: Capabilities) -> tuple[str, ...]:
    flag = caps.find(*meaning.names)
    return (flag.choices if flag else ()) or meaning.choices


def _spec_choices(meaning: Meaning, caps: Capabilities) -> tuple[str, ...]:
    return tuple(value for value in meaning.choices if value == "none" or caps.mtp_value)


def _load_choices(meaning: Meaning, caps: Capabilities) -> tuple[str, ...]:
    """Return the load modes; the older dialect has a flag for each, and some builds lack --mlock."""
    if caps.load_mode == "load-mode":
        return _flag_choices(meaning, caps)
    return tuple(value for value in meaning.choices if value != "mlock" or caps.has("--mlock"))


def _plain(meaning: Meaning, caps: Capabilities, value: object) -> Words:
    flag = caps.find(*meaning.names)
    return ((flag.name if flag else meaning.names[0], str(value)),)


def _spec_words(meaning: Meaning, caps: Capabilities, value: object) -> Words:
    return _plain(meaning, caps, caps.mtp_value if value == "mtp" else value)


def _load_words(meaning: Meaning, caps: Capabilities, value: object) -> Words:
    if caps.load_mode == "load-mode":
        return _plain(meaning, caps, value)
    flags = {"mmap": "--mmap", "none": "--no-mmap", "mlock": "--mlock"}
    flag = flags.get(str(value))
    # The older dialect has no word for "auto": memory-mapping is what it does unasked.
    return ((flag, None),) if flag and caps.has(flag) else ()


def _nothing(meaning: Meaning, caps: Capabilities) -> tuple[str, ...]:
    return ()


def _layer_words(meaning: Meaning, caps: Capabilities) -> tuple[str, ...]:
    return ("auto", "all")


NUMBER = Kind(_number, _plain, _nothing)
CONTEXT = Kind(_context, _plain, _nothing)
LAYERS = Kind(_layers, _plain, _layer_words)
CHOICE = Kind(_choice, _plain, _flag_choices)
SPECULATION = Kind(_speculation, _spec_words, _spec_choices)
LOADING = Kind(_loading, _load_words, _load_choices)
SPLIT = Kind(_split, _plain, _nothing)
