"""What the page of alerts shows: what fires, what was, the rules and the channels."""

from typing import Any

from django.db.models import Count
from django.utils.translation import gettext as _

from controlpanel.lib.words import translate
from jobs.models import Alert, AlertChannel, AlertRule, Notice
from jobs.services.alert_kinds import alert_kind
from jobs.services.alert_notices import latest
from jobs.services.alert_rules import title_of

LAST = 50
FIRING_SHOWN = 100
State = Alert.State
# The dot of a state; what happened once has none.
COLOURS = {State.FIRING: "failed", State.RESOLVED: "ready", State.EVENT: "stopped"}
NOTICE_COLOURS = {
    Notice.State.PENDING: "queued",
    Notice.State.SENT: "ready",
    Notice.State.FAILED: "failed",
}


def firing_rows() -> list[dict[str, Any]]:
    """Return what fires now, the newest first."""
    return _rows(list(Alert.objects.filter(state=State.FIRING)[:FIRING_SHOWN]))


def alerts_context() -> dict[str, Any]:
    """What the page keeps current."""
    past = Alert.objects.exclude(state=State.FIRING)
    return {"firing": firing_rows(), "past": _rows(list(past[:LAST])), "last": LAST, **_rules()}


def channels_context() -> dict[str, Any]:
    """The channels with how they went last; without any secret."""
    channels = list(AlertChannel.objects.all())
    last = latest(channels)
    pending = Notice.objects.filter(state=Notice.State.PENDING).order_by().values_list("channel")
    waiting: dict[int, int] = dict(pending.annotate(count=Count("pk")))
    rows = [
        {
            "channel": row,
            "waiting": waiting.get(row.pk, 0),
            "last": _notice(last.get(row.pk)),
            "place": _place(row),
        }
        for row in channels
    ]
    return {"channels": rows}


def _rules() -> dict[str, Any]:
    rules = AlertRule.objects.prefetch_related("channels")
    rows = [
        {
            "rule": rule,
            "title": translate(title_of(rule)),
            "is_state": (kind := alert_kind(rule.kind)) is not None and kind.find is not None,
            "channels": list(rule.channels.all()),
        }
        for rule in rules
    ]
    return {"rules": rows, "any_channel": AlertChannel.objects.exists()}


def _rows(alerts: list[Alert]) -> list[dict[str, Any]]:
    notices: dict[int, list[Notice]] = {}
    for notice in Notice.objects.filter(alert__in=alerts).select_related("channel").order_by("pk"):
        notices.setdefault(notice.alert_id or 0, []).append(notice)
    return [
        {
            "alert": alert,
            "colour": COLOURS[State(alert.state)],
            "notices": [_notice(notice) for notice in notices.get(alert.pk, [])],
        }
        for alert in alerts
    ]


def _notice(notice: Notice | None) -> dict[str, Any] | None:
    if notice is None:
        return None
    return {
        "notice": notice,
        "channel": notice.channel.name,
        "kind": str(Notice.Kind(notice.kind).label),
        "colour": NOTICE_COLOURS[Notice.State(notice.state)],
        "error": notice.error_text if notice.error else "",
        "again": notice.state == Notice.State.PENDING and notice.attempts > 0,
    }


def _place(channel: AlertChannel) -> str:
    """Return where a channel leads, as far as everybody may know it."""
    ending = _("ends in …%(tail)s") % {"tail": channel.tail} if channel.tail else ""
    return " · ".join(part for part in (channel.host, ending, channel.target) if part)
