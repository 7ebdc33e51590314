"""Notices on their way out: claimed, worded in the channel's language, sent, tried again when that failed.

A notice is claimed by moving its time; who dies while sending leaves it to be sent again after that.
"""

import logging
from collections.abc import Iterable
from datetime import timedelta
from threading import Lock, Thread
from typing import Any

from django.conf import settings
from django.db import connections, transaction
from django.db.models import Min, OuterRef, Subquery
from django.urls import reverse, set_script_prefix
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from controlpanel.lib.streams import publish
from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import stored
from jobs.adapters import notify
from jobs.domain.alerts import wait_after
from jobs.domain.alerts_text import Telling, body_of, headline, plain_text
from jobs.models import AlertChannel, Notice
from jobs.services.alert_channels import address_of, secret_of
from jobs.services.alert_rules import EVENT
from jobs.services.audit import Actor, record
from jobs.services.watch import with_database

logger = logging.getLogger(__name__)

EVERY = 2.0
CLAIM = timedelta(seconds=60)  # much longer than one message may take
GIVEN_UP = timedelta(days=1)  # of age: news that are older than this are none
THREADS = 4  # channels that are sent to at the same time
State, Kind = Notice.State, Notice.Kind
UNREADABLE = N_("The address of %(name)s cannot be read: the panel's secret key was changed. Enter it anew.")
OUR_ERROR = N_("The panel could not make the message (%(name)s). Its log says more.")

_busy: set[int] = set()  # keys of the channels that a thread sends to
_lock = Lock()


@with_database
def send_due() -> None:
    """Begin to send what is due, each channel in a thread of its own, so that a slow one delays no other."""
    waiting = Notice.objects.filter(state=State.PENDING).order_by().values("channel")
    first = waiting.annotate(first=Min("pk")).values("first")
    due = Notice.objects.filter(pk__in=first, due_at__lte=timezone.now()).order_by("channel")
    for key in list(due.values_list("channel", flat=True)):
        with _lock:
            if key in _busy or len(_busy) >= THREADS:
                continue
            _busy.add(key)
        Thread(target=_in_thread, args=(key,), name=f"notices-{key}", daemon=True).start()


def _in_thread(channel_pk: int) -> None:
    # Each thread has a prefix of its own; the link to the panel needs the sub-path.
    set_script_prefix(f"{settings.SUB_PATH}/")
    try:
        send_channel(channel_pk)
    except Exception:
        logger.exception("notices of channel %s", channel_pk)
    finally:
        with _lock:
            _busy.discard(channel_pk)
        connections.close_all()


def send_channel(channel_pk: int) -> None:
    """Send what is due to one channel in its order; ends at the first that has to be tried again."""
    rows = Notice.objects.filter(state=State.PENDING, channel=channel_pk).order_by("pk")
    for pk in list(rows.values_list("pk", flat=True)[:100]):
        notice = claim(pk)
        if notice is None or not send(notice):
            return


def claim(pk: int) -> Notice | None:
    """Take a notice that is due; None when another has it, or its time has not come."""
    now = timezone.now()
    won = Notice.objects.filter(pk=pk, state=State.PENDING, due_at__lte=now).update(due_at=now + CLAIM)
    return Notice.objects.select_related("alert", "channel").get(pk=pk) if won else None


def send(notice: Notice, *, once: bool = False) -> bool:
    """Send a claimed notice and note how that went; False when it waits for another try."""
    try:
        deliver(notice)
    except notify.NotSent as error:
        again = error.again and not once and timezone.now() - notice.created_at < GIVEN_UP
        wait = wait_after(notice.attempts + 1, error.wait) if again else None
        _note_failure(notice, error.message, wait)
        return wait is None
    except Exception as error:
        logger.exception("notice %s", notice.pk)
        _note_failure(notice, Message(OUR_ERROR, {"name": type(error).__name__}), None)
        return True
    _settle(notice, state=State.SENT, sent_at=timezone.now(), error="")
    return True


def send_test(actor: Actor, channel: AlertChannel) -> Notice:
    """Send a test message now, once; the notice that is returned says how it went."""
    with transaction.atomic():
        notice = Notice.objects.create(channel=channel, kind=Kind.TEST, due_at=timezone.now() + CLAIM)
        record(actor, "alert_channel.test", channel)
    send(notice, once=True)
    notice.refresh_from_db()
    return notice


def deliver(notice: Notice) -> None:
    """Word a notice and hand it to its channel; NotSent says why it did not arrive."""
    channel = notice.channel
    secret = secret_of(channel)
    if secret is None:
        raise notify.NotSent(Message(UNREADABLE, {"name": channel.name}), again=False)
    with translation.override(channel.language):
        telling = telling_of(notice)
    if channel.kind == AlertChannel.Kind.EMAIL:
        notify.send_mail(headline(telling), plain_text(telling), channel.target.split(", "))
    else:
        body = body_of(channel.kind, telling, channel.target)
        notify.post(address_of(channel, secret), body, secret)


def telling_of(notice: Notice) -> Telling:
    """Return what a notice says in the active language."""
    alert = notice.alert
    link = settings.PANEL_URL.origin + reverse("alerts") if settings.PANEL_URL else ""
    facts: dict[str, Any] = {"version": 1, "notice": notice.pk, "state": notice.kind}
    if alert is None:
        title = _("Test of the channel %(name)s") % {"name": notice.channel.name}
        value = _("When you can read this, alerts arrive here.")
        return Telling(_("Test"), title, "", value, "", link, {**facts, "title": title, "value": value})
    resolved = notice.kind == Kind.RESOLVED
    value = alert.end_text if resolved else alert.value_text
    times = {"since": alert.since, "resolved_at": alert.resolved_at if resolved else None}
    facts |= {
        "rule": {"id": alert.rule_id, "kind": alert.kind},
        "title": alert.title_text,
        "subject": {"key": alert.subject, "label": alert.label},
        "value": value,
        **{key: moment.isoformat(timespec="seconds") if moment else None for key, moment in times.items()},
    }
    words = {Kind.FIRING: _("Alert"), Kind.RESOLVED: _("Resolved"), Kind.EVENT: _("News")}
    return Telling(
        words[Kind(notice.kind)], alert.title_text, alert.label, value, _times(notice), link, facts
    )


def _times(notice: Notice) -> str:
    alert = notice.alert
    if alert is None:
        return ""
    since = timezone.localtime(alert.since).strftime("%Y-%m-%d %H:%M:%S %Z")
    if notice.kind == Kind.EVENT:
        return since
    if notice.kind == Kind.RESOLVED and alert.resolved_at is not None:
        until = timezone.localtime(alert.resolved_at).strftime("%Y-%m-%d %H:%M:%S %Z")
        return _("From %(since)s until %(until)s.") % {"since": since, "until": until}
    return _("Since %(since)s.") % {"since": since}


def _note_failure(notice: Notice, why: Message, wait: float | None) -> None:
    if wait is None:
        logger.warning("notice %s to channel %s was not sent: %s", notice.pk, notice.channel_id, why)
        _settle(notice, state=State.FAILED, error=stored(why))
        return
    due = timezone.now() + timedelta(seconds=wait)
    _settle(notice, due_at=due, error=stored(why))
    # What is behind it would meet the same trouble, and must not overtake it.
    later = Notice.objects.filter(channel=notice.channel_id, state=State.PENDING, due_at__lt=due)
    later.exclude(pk=notice.pk).update(due_at=due)


def _settle(notice: Notice, **values: Any) -> None:
    Notice.objects.filter(pk=notice.pk, state=State.PENDING).update(attempts=notice.attempts + 1, **values)
    publish(EVENT, notice.pk)


def latest(channels: Iterable[AlertChannel]) -> dict[int, Notice]:
    """Return the newest notice that was tried of each channel."""
    tried = Notice.objects.filter(channel=OuterRef("pk"), attempts__gt=0).order_by("-pk").values("pk")
    rows = AlertChannel.objects.filter(pk__in=[channel.pk for channel in channels])
    last = list(rows.annotate(last=Subquery(tried[:1])).values_list("last", flat=True))
    return {row.channel_id: row for row in Notice.objects.filter(pk__in=last).select_related("channel")}
