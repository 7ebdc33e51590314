"""Rules of alerts: kept, changed and deleted by people."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish_on_commit
from controlpanel.lib.text import Message
from jobs.models import Alert, AlertChannel, AlertRule
from jobs.services.alert_kinds import alert_kind
from jobs.services.audit import Actor, record

EVENT = "alert"
LONGEST_HOLD = 86_400  # seconds
LONGEST_COOLDOWN = 10_080  # minutes


@dataclass(frozen=True)
class RuleData:
    """What a person chooses of a rule, beside its kind."""

    threshold: float | None
    only: str
    hold_s: int
    cooldown_min: int
    channels: Sequence[AlertChannel]
    enabled: bool


def title_of(rule: AlertRule) -> Message:
    """Return what a rule says; the name of its kind when no app knows that (any more)."""
    kind = alert_kind(rule.kind)
    return kind.rule_title(rule.threshold) if kind else Message("%(kind)s", {"kind": rule.kind})


def add_rule(actor: Actor, kind_name: str, data: RuleData) -> AlertRule:
    """Keep a new rule; Refused when its values are not possible."""
    values = _checked(kind_name, data)
    with transaction.atomic():
        now = timezone.now()
        rule = AlertRule.objects.create(
            kind=kind_name, armed_at=now, seen_to=now, created_by=actor.user, **values
        )
        rule.channels.set(data.channels)
        record(actor, "alert_rule.add", rule, after={"kind": kind_name, **_noted(values, data.channels)})
        publish_on_commit(EVENT, rule.pk)
    return rule


def change_rule(actor: Actor, rule: AlertRule, data: RuleData) -> None:
    """Change a rule; one that is switched off lets go of its alerts, one switched on begins at now."""
    values = _checked(rule.kind, data)
    with transaction.atomic():
        before = _noted({key: getattr(rule, key) for key in values}, list(rule.channels.all()))
        if data.enabled and not rule.enabled:
            rule.armed_at = rule.seen_to = timezone.now()
        for key, value in values.items():
            setattr(rule, key, value)
        rule.save()
        rule.channels.set(data.channels)
        if not data.enabled:
            let_go(rule)
        record(actor, "alert_rule.change", rule, before, _noted(values, data.channels))
        publish_on_commit(EVENT, rule.pk)


def delete_rule(actor: Actor, rule: AlertRule) -> None:
    """Delete a rule; its alerts stay in the history, and those that fire end without a notice."""
    with transaction.atomic():
        let_go(rule)
        record(actor, "alert_rule.delete", rule, before={"kind": rule.kind, "threshold": rule.threshold})
        rule.delete()
        publish_on_commit(EVENT, rule.pk)


def let_go(rule: AlertRule) -> None:
    """End a rule's firing alerts without a notice."""
    Alert.objects.filter(rule=rule, state=Alert.State.FIRING).update(
        state=Alert.State.RESOLVED, resolved_at=timezone.now()
    )


def _checked(kind_name: str, data: RuleData) -> dict[str, Any]:
    kind = alert_kind(kind_name)
    if kind is None:
        raise Refused(_("There is no such kind of rule."), "kind")
    limits = kind.parameter
    if limits is not None and (data.threshold is None or not limits.low <= data.threshold <= limits.high):
        raise Refused(
            _("Enter a number from %(low)s to %(high)s.")
            % {"low": f"{limits.low:g}", "high": f"{limits.high:g}"},
            "threshold",
        )
    return {
        "threshold": data.threshold if limits is not None else None,
        "only": data.only.strip()[:100],
        "hold_s": min(max(data.hold_s, 0), LONGEST_HOLD) if kind.find is not None else 0,
        "cooldown_min": min(max(data.cooldown_min, 0), LONGEST_COOLDOWN) if kind.find is not None else 0,
        "enabled": data.enabled,
    }


def _noted(values: dict[str, Any], channels: Sequence[AlertChannel]) -> dict[str, Any]:
    return {**values, "channels": ", ".join(sorted(channel.name for channel in channels))}
