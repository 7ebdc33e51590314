"""Rules and channels for tests of alerts, and looks at what they do."""

from __future__ import annotations

from inspect import unwrap
from typing import Any

from django.utils import timezone

from jobs.models import Alert, AlertChannel, AlertRule, Notice
from jobs.services import alert_channels, alert_notices, alert_rules, alerts
from jobs.services.alert_channels import ChannelData
from jobs.services.alert_rules import RuleData
from jobs.services.audit import Actor

CLI = Actor.cli()


def channel(secret: str = "", kind: str = "webhook", **fields: Any) -> AlertChannel:
    """A channel as an admin keeps it."""
    values: dict[str, Any] = {"name": f"{kind} channel", "secret": secret, "target": "", "language": "en"}
    return alert_channels.add_channel(CLI, kind, ChannelData(**{**values, **fields}))


def rule(kind: str, *channels: AlertChannel, **fields: Any) -> AlertRule:
    """A rule that fires at the first look, with a cooldown of ten minutes."""
    values: dict[str, Any] = {"threshold": None, "only": "", "hold_s": 0, "cooldown_min": 10}
    return alert_rules.add_rule(
        CLI, kind, RuleData(channels=channels, **{**values, "enabled": True, **fields})
    )


def evaluate() -> None:
    """Look at all rules, as the duty does, within the test's transaction."""
    unwrap(alerts.evaluate)()


def states() -> list[str]:
    """The alerts in the order in which they began."""
    return [f"{row.state} {row.label}" for row in Alert.objects.order_by("pk")]


def notices() -> list[str]:
    """The notices in the order in which they were made."""
    return [f"{row.kind} {row.state}" for row in Notice.objects.order_by("pk")]


def send_all() -> None:
    """Send what waits as if its time had come."""
    Notice.objects.filter(state=Notice.State.PENDING).update(due_at=timezone.now())
    for row in AlertChannel.objects.all():
        alert_notices.send_channel(row.pk)
