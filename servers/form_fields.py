"""The controls of a profile's form: what a build offers for a field, and how a typed value is stored."""

from collections.abc import Mapping

from django import forms
from django.utils.translation import gettext as _

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.meaning_decimals import DECIMAL, stored
from controlpanel.llamacpp.meaning_kinds import CONTEXT, LOADING, NUMBER, Meaning, whole
from controlpanel.llamacpp.meaning_switches import SWITCH

MAX_LINES = 100  # of the environment that are looked at

_ON = ("enabled", "true", "1", "on")
_OFF = ("disabled", "false", "0", "off")


def default_of(meaning: Meaning, caps: Capabilities) -> str:
    """Return what a build does with an untouched field, in words of the field; empty when it is silent."""
    flag = caps.find(*meaning.names)
    default = flag.default if flag and flag.default else ""
    if meaning.kind is SWITCH:
        return "on" if default in _ON else "off" if default in _OFF else default
    if meaning.kind is LOADING and caps.load_mode == "mmap":
        return "mmap"  # the older dialect says of --mmap that it is enabled
    return default


def control(key: str, meaning: Meaning, caps: Capabilities, value: str) -> forms.CharField:
    """Return the form's field of a meaning, whose empty value leaves the build its default."""
    default, offered = default_of(meaning, caps), meaning.offered(caps)
    attrs = {
        "class": "form-control",
        "autocomplete": "off",
        "spellcheck": "false",
        "aria-describedby": f"note-{key}",
    }
    widget: forms.Widget
    if offered and not meaning.high:
        # A value typed for another build stays in sight until somebody changes it.
        values = [*offered, *([value] if value and value not in offered else [])]
        unset = _("default (%(default)s)") % {"default": default} if default else _("default")
        attrs["class"] = "form-select"
        widget = forms.Select(attrs, choices=[("", unset), *((word, word) for word in values)])
    else:
        attrs["placeholder"] = default
        if offered:  # words or a number: a text with suggestions
            attrs["list"] = f"offered-{key}"
        elif mode := _inputmode(meaning):
            attrs["inputmode"] = mode
        widget = forms.TextInput(attrs)
    return forms.CharField(label=_(meaning.label), required=False, max_length=1000, widget=widget)


def _inputmode(meaning: Meaning) -> str:
    """Return the keyboard of a phone for a number; the ones with a minus have no keyboard of their own."""
    if meaning.low < 0:
        return ""
    if meaning.kind is DECIMAL:
        return "decimal"
    return "numeric" if meaning.kind in (NUMBER, CONTEXT) else ""


def typed(meaning: Meaning, text: str) -> int | str:
    """Return what a profile stores for a typed value; what cannot be a value stays as it is, to be told."""
    number = stored(text) if meaning.kind is DECIMAL else whole(text)
    return text if number is None else number


def environment_text(environment: Mapping[str, object]) -> str:
    """Return variables as somebody types them, one NAME=value per line."""
    return "\n".join(f"{name}={value}" for name, value in environment.items())


def read_environment(text: str) -> tuple[dict[str, str], list[str]]:
    """Read variables that were typed so; returns them, and a sentence for each line that is none."""
    found: dict[str, str] = {}
    wrong: list[str] = []
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        return {}, [_("These are more than %(limit)d lines.") % {"limit": MAX_LINES}]
    for number, line in enumerate(lines, 1):
        name, sign, value = (part.strip() for part in line.partition("="))
        if not name and not sign:
            continue
        if not sign:
            wrong.append(_("Line %(number)d has no =: write NAME=value.") % {"number": number})
        elif name in found:
            text_of = _("Line %(number)d: %(name)s is set in an earlier line already.")
            wrong.append(text_of % {"number": number, "name": name[:60]})
        else:
            found[name] = value
    return found, wrong
