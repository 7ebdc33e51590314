"""CMake definitions (-DKEY=VALUE) that people add to a build: which are known, which are wrong and why."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.problems import Problem, error, warning
from jobs.domain.cmakenames import ABSENT, FIELDS, KNOWN, LISTS, MANAGED, RENAMED, VALUES
from jobs.domain.trees import Tree

__all__ = ["KNOWN", "check_definition", "known"]

MAX_VALUE = 500
FIELD = "definitions"

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_SWITCH = re.compile(r"ON|OFF|TRUE|FALSE|YES|NO|1|0", re.IGNORECASE)
_FORBIDDEN = "\"'`$"


def known(key: str) -> bool:
    """Tell whether an option is one of those that operators may set."""
    return key in KNOWN


def set_by_the_panel(key: str) -> bool:
    """Tell whether an option is the panel's own business, or that of another field."""
    return key in MANAGED or key in FIELDS


def check_definition(key: str, value: str, tree: Tree | None = None) -> Problem | None:
    """Return what is wrong with a definition, None when nothing is.

    An old or strange name that the tree itself has as an option is right for that tree.
    """
    if not _KEY.fullmatch(key):
        text = N_("“%(key)s” is no name of a CMake option: use letters, digits and “_”.")
        return error(FIELD, text, key=key[:100])
    return _check_name(key, tree) or _check_value(key, value) or _check_spelling(key, tree)


def _check_name(key: str, tree: Tree | None) -> Problem | None:
    if key in FIELDS:
        text = N_("%(key)s is set by the field “%(label)s”: remove it here.")
        return error(FIELD, text, key=key, label=Message(FIELDS[key]))
    if key in MANAGED:
        return error(FIELD, N_("The panel sets %(key)s itself: remove it here."), key=key)
    if tree is not None and key in tree.options:
        return None
    if key in ABSENT:
        return error(FIELD, N_("%(key)s: %(reason)s"), key=key, reason=Message(ABSENT[key]))
    right = _renamed(key)
    if right in FIELDS:
        text = N_("%(key)s is no option of llama.cpp any more; the field “%(label)s” does this.")
        return error(FIELD, text, key=key, label=Message(FIELDS[right]))
    if right:
        text = N_("%(key)s is no option of llama.cpp any more: write %(right)s.")
        return error(FIELD, text, key=key, right=right)
    return None


def _renamed(key: str) -> str:
    """Return today's name of an option, "" when its name is not known to be old."""
    if key in RENAMED:
        return RENAMED[key]
    today = key.replace("LLAMA_", "GGML_", 1)
    return today if key.startswith("LLAMA_") and key not in KNOWN and today in {*KNOWN, *FIELDS} else ""


def _check_value(key: str, value: str) -> Problem | None:
    if len(value) > MAX_VALUE:
        text = N_("The value of %(key)s is longer than %(limit)s characters.")
        return error(FIELD, text, key=key, limit=MAX_VALUE)
    wrong = next((character for character in value if character in _FORBIDDEN), "")
    if wrong:
        return error(FIELD, N_("The value of %(key)s contains “%(wrong)s”."), key=key, wrong=wrong)
    if not value.isprintable():
        text = N_("The value of %(key)s contains a line break or a control character.")
        return error(FIELD, text, key=key)
    if ";" in value and key not in LISTS:
        return error(FIELD, N_("%(key)s takes one value: remove the “;”."), key=key)
    if key in VALUES and not re.fullmatch(VALUES[key], value):
        return error(FIELD, N_("%(value)s is no value for %(key)s."), key=key, value=value)
    if key in KNOWN and key not in VALUES and not _SWITCH.fullmatch(value):
        return error(FIELD, N_("%(key)s is a switch: write ON or OFF."), key=key)
    return None


def _check_spelling(key: str, tree: Tree | None) -> Problem | None:
    if not key.startswith(("GGML_", "LLAMA_")):
        return None
    if tree is not None:
        if key in tree.options:
            return None
        near = _nearest(key, tree.options)
        if near:
            text = N_("This source has no option %(key)s, and CMake would ignore it. Did you mean %(near)s?")
            return warning(FIELD, text, key=key, near=near)
        return warning(FIELD, N_("This source has no option %(key)s, and CMake would ignore it."), key=key)
    if key in KNOWN:
        return None
    near = _nearest(key, KNOWN)
    text = N_("%(key)s is not known, and CMake ignores what it does not know. Did you mean %(near)s?")
    return warning(FIELD, text, key=key, near=near) if near else None


def _nearest(key: str, names: Iterable[str]) -> str:
    prefixed = sorted(name for name in names if name.startswith(("GGML_", "LLAMA_")))
    return next(iter(difflib.get_close_matches(key, prefixed, n=1, cutoff=0.8)), "")
