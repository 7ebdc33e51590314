"""The agent's look at all rules: what begins to fire, what is over, and the notices that tell of it."""

import logging
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from controlpanel.lib.streams import publish_on_commit
from controlpanel.lib.words import stored
from jobs.domain.alerts import Decision, Event, Finding, Standing, decide
from jobs.models import Alert, AlertChannel, AlertRule, Notice
from jobs.services.alert_kinds import AlertKind, alert_kind
from jobs.services.alert_rules import EVENT, title_of
from jobs.services.watch import each, with_database

logger = logging.getLogger(__name__)

EVERY = 5.0
OVERLAP = timedelta(seconds=60)  # an end may be written into the database later than the time it bears
SEEN_EVERY = timedelta(minutes=5)  # without an event
KEPT = timedelta(days=90)
KEPT_ROWS = 20_000  # alerts that are over: one that comes and goes without a hold time makes many
MOST = 1000  # subjects of one rule
State = Alert.State

# Since when the condition of (rule, subject) has been met, in seconds since 1970.
_met: dict[tuple[int, str], float] = {}


@with_database
def evaluate() -> None:
    """Look at all rules that are switched on; one that fails keeps no other from its turn."""
    rules = list(AlertRule.objects.filter(enabled=True))
    for key in [key for key in _met if key[0] not in {rule.pk for rule in rules}]:
        del _met[key]
    each(rules, _look)


@with_database
def prune() -> None:
    """Forget alerts and tests whose time is long over, and alerts beyond the newest KEPT_ROWS."""
    old = timezone.now() - KEPT
    over = Alert.objects.exclude(state=State.FIRING)
    oldest_kept = over.values_list("since", flat=True)[KEPT_ROWS - 1 : KEPT_ROWS].first()
    over.filter(since__lt=max(old, oldest_kept or old)).delete()
    Notice.objects.filter(alert=None, created_at__lt=old).delete()


def _look(rule: AlertRule) -> None:
    kind = alert_kind(rule.kind)
    if kind is None:
        return
    if kind.events is not None:
        _look_at_events(rule, kind)
    else:
        _look_at_states(rule, kind)


def _look_at_states(rule: AlertRule, kind: AlertKind) -> None:
    found = kind.find(rule.threshold or 0.0) if kind.find else None
    if found is None:
        return
    now = time.time()
    findings = [item for item in found.findings if _watched(rule, item.label)][:MOST]
    opened = {row.subject: row for row in Alert.objects.filter(rule=rule, state=State.FIRING)}
    told = _told_at(rule) if any(item.firing for item in findings) else {}
    steps: list[tuple[Finding, Decision]] = []
    for item in findings:
        row = opened.get(item.key)
        standing = Standing(
            met_since=_met.get((rule.pk, item.key)),
            is_open=row is not None,
            told=row is not None and row.told_at is not None,
            told_at=told.get(item.key),
        )
        decision = decide(standing, item.firing, now, rule.hold_s, rule.cooldown_min * 60)
        if decision.met_since is None:
            _met.pop((rule.pk, item.key), None)
        else:
            _met[rule.pk, item.key] = decision.met_since
        if decision.act or decision.tell:
            steps.append((item, decision))
    gone = set[str]()
    if found.whole:
        here = {item.key for item in findings}
        gone = set(opened) - here
        for key in [key for key in _met if key[0] == rule.pk and key[1] not in here]:
            del _met[key]
    channels = list(rule.channels.filter(enabled=True)) if steps else []
    if not channels:  # nobody to tell
        steps = [(item, decision) for item, decision in steps if decision.act]
    if steps or gone:
        _write(rule, opened, steps, gone, channels)


def _watched(rule: AlertRule, label: str) -> bool:
    return rule.only.casefold() in label.casefold()


def _told_at(rule: AlertRule) -> dict[str, float]:
    """Return when each subject was last announced, in seconds since 1970."""
    since = timezone.now() - timedelta(minutes=rule.cooldown_min)
    rows = Alert.objects.filter(rule=rule, told_at__gte=since).order_by()
    found = rows.values("subject").annotate(last=Max("told_at")).values_list("subject", "last")
    return {subject: last.timestamp() for subject, last in found}


def _write(
    rule: AlertRule,
    opened: dict[str, Alert],
    steps: list[tuple[Finding, Decision]],
    gone: set[str],
    channels: list[AlertChannel],
) -> None:
    now = timezone.now()
    with transaction.atomic():
        # A rule that was switched off since it was read would leave what it opens firing for ever.
        if not AlertRule.objects.select_for_update().filter(pk=rule.pk, enabled=True).exists():
            return
        for item, decision in steps:
            row = opened.get(item.key)
            if decision.act == "open":
                row = _open(rule, item, decision.met_since)
            elif decision.act == "close" and row is not None:
                if not _close(row, stored(item.value), now):
                    continue
                if decision.tell:
                    _notices(row, channels, Notice.Kind.RESOLVED)
                continue
            if row is not None and decision.tell and channels and _mark_told(row, now):
                _notices(row, channels, Notice.Kind.FIRING)
        for subject in gone:
            _close(opened[subject], "", now)
        publish_on_commit(EVENT, rule.pk)


def _open(rule: AlertRule, item: Finding, met_since: float | None) -> Alert | None:
    since = timezone.now() if met_since is None else _moment(met_since)
    return _create(rule, State.FIRING, item.key, item.label, stored(item.value), since)


def _create(
    rule: AlertRule, state: str, subject: str, label: str, value: str, since: datetime
) -> Alert | None:
    """Make an alert; None when there is one already, which another agent may have made."""
    try:
        with transaction.atomic():
            return Alert.objects.create(
                rule=rule,
                kind=rule.kind,
                title=stored(title_of(rule)),
                subject=subject,
                label=label[:200],
                state=state,
                value=value,
                since=since,
            )
    except IntegrityError:
        return None


def _close(row: Alert, value: str, now: datetime) -> bool:
    return bool(
        Alert.objects.filter(pk=row.pk, state=State.FIRING).update(
            state=State.RESOLVED, resolved_at=now, end_value=value
        )
    )


def _mark_told(row: Alert, now: datetime) -> bool:
    return bool(Alert.objects.filter(pk=row.pk, told_at=None).update(told_at=now))


def _notices(row: Alert, channels: Iterable[AlertChannel], kind: str) -> None:
    now = timezone.now()
    Notice.objects.bulk_create(
        Notice(alert=row, channel=channel, kind=kind, due_at=now) for channel in channels
    )


def _look_at_events(rule: AlertRule, kind: AlertKind) -> None:
    now = timezone.now()
    found = kind.events(rule.seen_to - OVERLAP) if kind.events else []
    events = [item for item in found if item.at > rule.armed_at and _watched(rule, item.label)]
    if events:
        rows = Alert.objects.filter(rule=rule, subject__in=[item.key for item in events])
        known = set(rows.values_list("subject", flat=True))
        events = [item for item in events if item.key not in known]
    if events:
        _write_events(rule, events, now)
    if events or now - rule.seen_to > SEEN_EVERY:
        AlertRule.objects.filter(pk=rule.pk).update(seen_to=now)


def _write_events(rule: AlertRule, events: list[Event], now: datetime) -> None:
    with transaction.atomic():
        channels = list(rule.channels.filter(enabled=True))
        for item in events:
            row = _create(rule, State.EVENT, item.key, item.label, stored(item.value), item.at)
            if row is not None and channels and _mark_told(row, now):
                _notices(row, channels, Notice.Kind.EVENT)
        publish_on_commit(EVENT, rule.pk)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=timezone.get_current_timezone())
