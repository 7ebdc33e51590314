"""The fields of a profile's form that say how its server is kept running."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django import forms
from django.utils.translation import gettext as _

from controlpanel.lib.words import translate
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.problems import Problem
from servers.domain.policy import DEFAULT, RESTARTS
from servers.domain.policy_problems import PREFIX
from servers.domain.policy_words import WORDS, worded
from servers.domain.preflight import joined
from servers.domain.preflight_memory import over_limit
from servers.services.fit import Fit
from servers.services.profiles import ProfileData

KEYS = {f"{PREFIX}{name}": name for name in WORDS}
"""The keys of the form with the policy's names."""

_DEFAULTS = asdict(DEFAULT)
_YES = "yes"


def default_of_policy(name: str) -> str:
    """Return what an empty field stands for."""
    return translate(worded(name, _DEFAULTS[name]))


def policy_control(key: str, value: str) -> forms.CharField:
    """Return the form's field, whose empty value is the default."""
    name = KEYS[key]
    attrs = {"class": "form-control", "autocomplete": "off", "aria-describedby": f"note-{key}"}
    choices: list[tuple[str, str]] = []
    if name == "restart":
        choices = [(word, _(label)) for word, label in RESTARTS.items()]
    elif name == "on_demand":
        choices = [(_YES, _("yes"))]
    widget: forms.Widget
    if choices:
        known = {word for word, _label in choices}
        unset = _("default (%(default)s)") % {"default": default_of_policy(name)}
        odd = [(value, value)] if value and value not in known else []
        attrs["class"] = "form-select"
        widget = forms.Select(attrs, choices=[("", unset), *choices, *odd])
    else:
        default = _DEFAULTS[name]
        attrs["placeholder"] = default_of_policy(name) if default is None else str(default)
        widget = forms.TextInput({**attrs, "inputmode": "numeric"})
    return forms.CharField(label=_(WORDS[name].label), required=False, max_length=100, widget=widget)


def typed_policy(clean: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy that was typed, without defaults; what cannot be a value stays, to be told."""
    given = {name: _typed(name, clean[key].strip()) for key, name in KEYS.items() if clean.get(key)}
    return {name: value for name, value in given.items() if value != _DEFAULTS[name]}


def initial_policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy as the form shows it."""
    return {key: _shown(policy[name]) for key, name in KEYS.items() if name in policy}


def memory_findings(data: ProfileData | None, fit: Fit | None) -> list[Problem]:
    """Compare the memory limit with the estimate, as the preflight does."""
    limit = whole(data.policy.get("memory_mib")) if data else None
    if fit is None or fit.own is None or limit is None:
        return []
    over = over_limit(fit.own, limit)
    if over is None:
        return []
    told = joined(part for part in (over.message, over.remedy) if part is not None)
    return [Problem("warning", f"{PREFIX}memory_mib", told)]


def _typed(name: str, text: str) -> object:
    if name == "on_demand":
        return True if text == _YES else text
    number = None if name == "restart" else whole(text)
    return text if number is None else number


def _shown(value: object) -> object:
    if isinstance(value, bool):
        return _YES if value else ""
    return value
