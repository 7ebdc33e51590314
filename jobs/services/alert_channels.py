"""Channels of alerts: their addresses and tokens go in sealed, and only the sender gets them out."""

import re
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.sealed import plausible, seal, unseal
from controlpanel.lib.streams import publish_on_commit
from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import stored, translate
from jobs.adapters.addresses import AddressRefused, guard
from jobs.models import AlertChannel, Notice
from jobs.services.alert_rules import EVENT
from jobs.services.audit import Actor, record

PURPOSE = b"llamacpp-panel alert channel"
TELEGRAM = "https://api.telegram.org"
LONGEST = 2000  # characters of an address or a token
MOST_RECEIVERS = 20
TAIL_OF = 16  # characters; of a shorter last part of a secret nothing is shown
OFF = N_("The channel was switched off before this was sent.")
Kind = AlertChannel.Kind


@dataclass(frozen=True)
class ChannelData:
    """What an admin enters; an empty `secret` keeps the one that is stored."""

    name: str
    secret: str = field(repr=False)
    target: str
    language: str
    enabled: bool = True


def add_channel(actor: Actor, kind: str, data: ChannelData) -> AlertChannel:
    """Keep a new channel; Refused with words that do not repeat its secret."""
    if kind not in Kind.values:
        raise Refused(_("There is no such kind of channel."), "kind")
    values = {**_checked(kind, data), **_sealed(kind, data.secret)}
    try:
        with transaction.atomic():
            row = AlertChannel.objects.create(kind=kind, created_by=actor.user, **values)
            record(actor, "alert_channel.add", row, after={"kind": kind, **_noted(row)})
            publish_on_commit(EVENT, row.pk)
    except IntegrityError as error:
        raise Refused(_("There is already a channel with this name."), "name") from error
    return row


def change_channel(actor: Actor, channel: AlertChannel, data: ChannelData) -> None:
    """Change a channel; its secret stays when none is entered."""
    values = _checked(channel.kind, data)
    renewed = bool(data.secret.strip())
    if renewed:
        values |= _sealed(channel.kind, data.secret)
    try:
        with transaction.atomic():
            before = _noted(channel)
            for key, value in values.items():
                setattr(channel, key, value)
            channel.save()
            if not channel.enabled:
                waiting = Notice.objects.filter(channel=channel, state=Notice.State.PENDING)
                waiting.update(state=Notice.State.FAILED, error=stored(Message(OFF)))
            after = _noted(channel) | ({"secret": "changed"} if renewed else {})
            record(actor, "alert_channel.change", channel, before, after)
            publish_on_commit(EVENT, channel.pk)
    except IntegrityError as error:
        raise Refused(_("There is already a channel with this name."), "name") from error


def delete_channel(actor: Actor, channel: AlertChannel) -> None:
    """Forget a channel with its notices; rules go on without it."""
    with transaction.atomic():
        record(actor, "alert_channel.delete", channel, before={"kind": channel.kind, **_noted(channel)})
        channel.delete()
        publish_on_commit(EVENT, channel.pk)


def secret_of(channel: AlertChannel) -> str | None:
    """Return the address or token of a channel; None when it cannot be read any more."""
    return unseal(PURPOSE, channel.secret) if channel.secret else ""


def address_of(channel: AlertChannel, secret: str) -> str:
    """Return where a message for this channel is posted to."""
    return f"{TELEGRAM}/bot{secret}/sendMessage" if channel.kind == Kind.TELEGRAM else secret


def _checked(kind: str, data: ChannelData) -> dict[str, Any]:
    name = " ".join(data.name.split())[:60]
    if not name:
        raise Refused(_("Give the channel a name."), "name")
    if data.language not in dict(settings.LANGUAGES):
        raise Refused(_("There is no such language."), "language")
    return {
        "name": name,
        "target": _target(kind, data.target.strip()),
        "language": data.language,
        "enabled": data.enabled,
    }


def _target(kind: str, text: str) -> str:
    if kind == Kind.TELEGRAM:
        if not text or len(text) > 100 or any(char.isspace() for char in text):
            raise Refused(_("Enter the chat's number, or the @name of a channel."), "target")
        return text
    if kind != Kind.EMAIL:
        return ""
    receivers = [part for part in text.replace(",", " ").split() if part]
    if not receivers or len(receivers) > MOST_RECEIVERS:
        raise Refused(_("Enter one to %(most)d addresses.") % {"most": MOST_RECEIVERS}, "target")
    for receiver in receivers:
        try:
            validate_email(receiver)
        except ValidationError as error:
            raise Refused(
                _("%(address)s is no e-mail address.") % {"address": receiver[:100]}, "target"
            ) from error
    return ", ".join(receivers)[:1000]


def _sealed(kind: str, text: str) -> dict[str, str]:
    """Return the columns of a secret; Refused when it cannot be one."""
    if kind == Kind.EMAIL:
        return {}
    secret = text.strip()
    if not plausible(secret, LONGEST):
        raise Refused(
            _("This is no token of a bot: copy it from BotFather.")
            if kind == Kind.TELEGRAM
            else _("Enter the whole address, as the service shows it."),
            "secret",
        )
    if kind == Kind.TELEGRAM and not secret.replace(":", "").replace("-", "").replace("_", "").isalnum():
        raise Refused(_("This is no token of a bot: copy it from BotFather."), "secret")
    try:
        url = guard().check_url(f"{TELEGRAM}/" if kind == Kind.TELEGRAM else secret)
    except AddressRefused as error:
        raise Refused(translate(error.message), "secret") from None
    tail = secret[-4:] if len(re.split(r"[/:?&=#]", secret)[-1]) >= TAIL_OF else ""
    return {"secret": seal(PURPOSE, secret), "host": url.host[:255], "tail": tail}


def _noted(channel: AlertChannel) -> dict[str, Any]:
    """Return what the audit may know of a channel."""
    return {
        "name": channel.name,
        "host": channel.host,
        "target": channel.target,
        "language": channel.language,
        "enabled": channel.enabled,
    }
