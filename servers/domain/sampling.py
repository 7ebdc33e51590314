"""Sampling settings of a conversation: what may be set, its limits, and what a server does unasked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlpanel.lib.text import N_, Message

MAX_SYSTEM = 20_000  # characters
SYSTEM = "system"


@dataclass(frozen=True)
class Setting:
    """One number that goes into a request under its own name; `help` is one line."""

    name: str
    label: str
    low: float
    high: float
    whole: bool
    help: str


SETTINGS = (
    Setting(
        "temperature",
        N_("Temperature"),
        0,
        5,
        False,
        N_("Higher is more varied; 0 always takes the likeliest token."),
    ),
    Setting("top_k", "Top K", 0, 1000, True, N_("Only the K likeliest tokens; 0 = all.")),
    Setting("top_p", "Top P", 0, 1, False, N_("Only the likeliest tokens up to this sum; 1 = all.")),
    Setting(
        "min_p", "Min P", 0, 1, False, N_("Only tokens at least this likely beside the likeliest; 0 = all.")
    ),
    Setting("repeat_penalty", N_("Repeat penalty"), 0.1, 5, False, N_("Above 1 avoids repetition; 1 = off.")),
    Setting("max_tokens", N_("Longest answer"), 1, 1_000_000, True, N_("Tokens after which it ends.")),
    Setting("seed", N_("Seed"), 0, 2**32 - 2, True, N_("The same number gives the same answer again.")),
)
NAMES = frozenset(setting.name for setting in SETTINGS) | {SYSTEM}


def read_sampling(values: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Message]]:
    """Return the settings that a form has set, and what is wrong with others, by name."""
    found: dict[str, Any] = {}
    wrong: dict[str, Message] = {}
    for setting in SETTINGS:
        text = values.get(setting.name, "").strip()
        if not text:
            continue
        number = _number(text, setting.whole)
        if number is None or not setting.low <= number <= setting.high:
            wrong[setting.name] = _out_of_range(setting)
        else:
            found[setting.name] = number
    system = values.get(SYSTEM, "").replace("\r\n", "\n").replace("\0", "").strip()
    if len(system) > MAX_SYSTEM:
        wrong[SYSTEM] = Message(
            N_("The system prompt has %(length)s characters; at most %(limit)s are accepted. Shorten it."),
            {"length": len(system), "limit": MAX_SYSTEM},
        )
    elif system:
        found[SYSTEM] = system
    return found, wrong


def server_defaults(props: Any) -> dict[str, str]:
    """Return what /props says a server does unasked, as texts; a setting that it does not tell is absent."""
    defaults = props.get("default_generation_settings") if isinstance(props, dict) else None
    params = defaults.get("params") if isinstance(defaults, dict) else None
    if not isinstance(params, dict):
        return {}
    # No limit and a random seed are told as numbers outside the range of a setting.
    special = {("max_tokens", -1), ("seed", 2**32 - 1)}
    found = {}
    for setting in SETTINGS:
        value = params.get(setting.name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found[setting.name] = "" if (setting.name, value) in special else f"{round(value, 4):g}"
    return found


def _number(text: str, whole: bool) -> int | float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number) or (whole and number != int(number)):
        return None
    return int(number) if whole else number


def _out_of_range(setting: Setting) -> Message:
    text = (
        N_("%(name)s: enter a whole number from %(low)s to %(high)s, or nothing.")
        if setting.whole
        else N_("%(name)s: enter a number from %(low)s to %(high)s, or nothing.")
    )
    limits = {"low": f"{setting.low:g}", "high": f"{int(setting.high)}"}
    return Message(text, {"name": Message(setting.label), **limits})
