"""How pages write numbers, times and states: with units, a dash for unknown, a word beside each colour."""

from datetime import datetime, timedelta

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

register = template.Library()
UNKNOWN = "–"

# Green ready, blue working, amber attention, red failed; a state at rest has no colour.
COLOURS = {
    "ready": "green",
    "succeeded": "green",
    "running": "green",
    "probing": "blue",
    "building": "blue",
    "queued": "blue",
    "starting": "blue",
    "loading": "blue",
    "created": "blue",
    "stopping": "amber",
    "canceling": "amber",
    "unresponsive": "amber",
    "exited": "amber",
    "backoff": "amber",
    "lost": "amber",
    "incomplete": "amber",
    "failed": "red",
    "errored": "red",
}


@register.simple_tag
def state(value: str, word: str) -> SafeString:
    """Show a state as a dot and its word."""
    colour = COLOURS.get(value, "grey")
    return format_html(
        '<span class="state state-{}{}"><span class="state-dot" aria-hidden="true"></span>{}</span>',
        colour,
        " is-working" if colour == "blue" else "",
        word,
    )


@register.filter
def size(value: int | None) -> str:
    """Write a number of bytes in MiB below 1 GiB, else in GiB."""
    if value is None:
        return UNKNOWN
    if value < 1024**2:
        return f"{value / 1024:.1f} KiB"
    if value < 1024**3:
        return f"{value / 1024**2:.1f} MiB"
    return f"{value / 1024**3:.1f} GiB"


@register.filter
def count(value: object) -> str:
    """Write a whole number in groups of three digits; anything else is unknown."""
    return f"{value:,}" if isinstance(value, int) else UNKNOWN


@register.filter
def number_or_text(value: object) -> str:
    """Write a whole number in groups of three digits, anything else as it is, nothing as a dash."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return UNKNOWN if value is None or value == "" else str(value)


@register.filter
def tokens(value: int | None) -> str:
    """Write a context size briefly: 262144 as 256K."""
    if value is None:
        return UNKNOWN
    return f"{value // 1024}K" if value >= 1024 and value % 1024 == 0 else f"{value:,}"


@register.filter
def known(value: object) -> object:
    """Return the value, or a dash when there is none."""
    return UNKNOWN if value is None or value == "" else value


@register.filter
def beyond(value: int, limit: int) -> int:
    """Return by how much a number passes a limit."""
    return value - limit


@register.filter
def signal_number(exit_code: int) -> int:
    """Return the number of the signal that a negative exit code stands for."""
    return -exit_code


@register.filter
def yes_no(value: object) -> str:
    """Write a fact: yes, no, or a dash when it is not known."""
    if not isinstance(value, bool):
        return UNKNOWN
    return _("yes") if value else _("no")


@register.filter
def seconds(value: float | None) -> str:
    """Write a duration in seconds with sensible digits."""
    if value is None:
        return UNKNOWN
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 100 else f"{value // 60:.0f} min {value % 60:.0f} s"


@register.filter
def minutes(value: timedelta) -> str:
    """Write a time span in whole minutes."""
    number = max(1, round(value.total_seconds() / 60))
    return ngettext("%(number)d minute", "%(number)d minutes", number) % {"number": number}


@register.filter
def ago(value: object) -> str | SafeString:
    """Write a moment as the time since then, with the exact time on hover; anything else is unknown."""
    if not isinstance(value, datetime):
        return UNKNOWN
    local = timezone.localtime(value)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(timespec="seconds"),
        local.strftime("%Y-%m-%d %H:%M:%S %Z"),
        _since((timezone.now() - value).total_seconds(), local),
    )


def _since(passed: float, local: datetime) -> str:
    if passed < 60:
        return _("just now")
    if passed < 3600:
        return _("%(number)d min ago") % {"number": passed // 60}
    if passed < 86_400:
        return _("%(number)d h ago") % {"number": passed // 3600}
    if passed < 7 * 86_400:
        number = int(passed // 86_400)
        return ngettext("%(number)d day ago", "%(number)d days ago", number) % {"number": number}
    return date_format(local, "DATE_FORMAT")
