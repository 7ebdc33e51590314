"""What can be done with a server now, and what is asked before."""

from dataclasses import dataclass

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.models import Build
from servers.models import Instance

Observed = Instance.Observed


@dataclass(frozen=True)
class Button:
    """One action on a server; `reason` says why it cannot be done now, "" when it can.

    `question` is asked first; `ask` is the address that words it for this moment.
    """

    name: str
    label: str
    icon: str
    reason: str
    href: str
    question: str = ""
    ask: str = ""


def buttons_of(instance: Instance) -> list[Button]:
    """Start, Restart and Stop, each with the reason why it cannot be done now.

    While a server waits to be started again, the first tries it at once and the last cancels that start.
    """
    profile, build = instance.profile, instance.profile.build
    word = instance.word
    start = stop = ""
    if instance.observed not in Instance.RESTING:
        start = _("The server is %(state)s already.") % {"state": word}
    elif build.state != Build.State.READY and not build.capabilities:
        start = _("The build %(name)s is not ready: it is %(state)s.") % {
            "name": build.name,
            "state": build.word,
        }
    if instance.observed not in Instance.ALIVE:
        stop = _("The server is not running: it is %(state)s.") % {"state": word}
    page = reverse("server-detail", args=[profile.pk])
    restart = _asking("restart", _("Restart"), "ti-refresh", stop, page, profile.name)
    if instance.observed == Observed.BACKOFF:
        return [
            Button("retry", _("Retry now"), "ti-player-play", start, f"{page}retry/"),
            restart,
            Button("stop", _("Cancel the next start"), "ti-x", "", f"{page}stop/"),
        ]
    return [
        Button("start", _("Start"), "ti-player-play", start, f"{page}start/"),
        restart,
        _asking("stop", _("Stop"), "ti-player-stop", stop, page, profile.name),
    ]


def _asking(name: str, label: str, icon: str, reason: str, page: str, profile: str) -> Button:
    if reason:
        return Button(name, label, icon, reason, f"{page}{name}/")
    ask = f"{page}question/?do={name}"
    return Button(name, label, icon, "", f"{page}{name}/", question(profile, name, 0), ask)


def question(name: str, action: str, busy: int | None) -> str:
    """Return what is asked before a stop or restart; `busy` requests are in flight, None: nobody knows."""
    first = _("Restart the server %(name)s?") if action == "restart" else _("Stop the server %(name)s?")
    if busy is None:
        rest = _("The server does not say whether requests are in flight.")
    elif busy:
        rest = ngettext(
            "%(number)d request is in flight.",
            "%(number)d requests are in flight.",
            busy,
        ) % {"number": busy}
    else:
        rest = ""
    return f"{first % {'name': name}} {rest}".rstrip()
