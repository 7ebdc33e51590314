"""The live parts of the page of alerts: what fires and fired, the rules, and for admins the channels."""

from jobs.live import Topic, register_topic
from jobs.services.alert_rules import EVENT
from jobs.topics import live, may_see
from jobs.views import alert_rows


def _render(role: str, _arg: str) -> str:
    text = live("jobs/_alerts.html", role, alert_rows.alerts_context())
    if role == "admin":
        text += live("jobs/_alert_channels.html", role, alert_rows.channels_context())
    return text


def register() -> None:
    """Called once from the app's registrations."""
    register_topic(Topic("alerts", frozenset({EVENT}), may_see, _render))
