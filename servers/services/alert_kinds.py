"""What the servers app lets alert rules watch: servers that are down, crash loops, collapsed acceptance."""

import time
from collections.abc import Callable

from django.db.models import QuerySet

from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import message_in
from jobs.domain.alerts import UNKNOWN, Finding, Found, Parameter
from jobs.services.alert_kinds import AlertKind, register_alert_kind
from servers.domain.meter import STALE_AFTER, ServerMeter
from servers.models import Instance
from servers.services.metering import latest_meters

Observed = Instance.Observed
DOWN = (Observed.FAILED, Observed.EXITED, Observed.UNRESPONSIVE)
TROUBLE = {
    Observed.FAILED: N_("It failed: %(error)s"),
    Observed.EXITED: N_("It ended by itself."),
    Observed.UNRESPONSIVE: N_("It does not answer."),
    Observed.BACKOFF: N_("It ended and is started again: %(error)s"),
}
WELL = {
    Observed.READY: N_("It is ready."),
    Observed.STARTING: N_("It starts."),
    Observed.LOADING: N_("It loads."),
    Observed.STOPPED: N_("It was stopped."),
    Observed.STOPPING: N_("It stops."),
}
FAILED = Message(N_("It failed."))
IDLE = Message(N_("It does not run."))
SHARE = N_("%(percent)s %% of the drafted tokens are accepted")


def _each_server(judge: Callable[[Instance], bool]) -> Found:
    return Found(
        tuple(Finding(_key(row), row.profile.name, judge(row), _state_of(row)) for row in _instances())
    )


def _instances() -> QuerySet[Instance]:
    rows = Instance.objects.select_related("profile").order_by("pk")
    return rows.only("profile__name", "desired", "observed", "attempts", "error")


def _key(instance: Instance) -> str:
    return f"server {instance.profile.pk}"


def _state_of(instance: Instance) -> Message:
    observed = Observed(instance.observed)
    if observed in WELL:
        return Message(WELL[observed])
    text = TROUBLE[observed]
    if "%(error)s" not in text:
        return Message(text)
    return Message(text, {"error": message_in(instance.error)}) if instance.error else FAILED


def servers_down(_limit: float) -> Found:
    """Find servers that should run and have failed, ended or do not answer."""
    return _each_server(lambda row: row.desired == Instance.Desired.RUNNING and row.observed in DOWN)


def crash_loops(_limit: float) -> Found:
    """Find servers that the panel starts again after a failure, or has given up to start."""
    return _each_server(
        lambda row: row.observed == Observed.BACKOFF or (row.observed == Observed.FAILED and row.attempts > 0)
    )


def low_acceptance(limit: float) -> Found | None:
    """Find running servers that accept less than so many percent of the tokens they drafted."""
    meters = latest_meters()
    if meters is None:
        return None
    now = time.time()
    return Found(
        tuple(
            Finding(_key(row), row.profile.name, *_accepts(row, meters.get(row.profile.pk), limit, now))
            for row in _instances()
        )
    )


def _accepts(
    instance: Instance, meter: ServerMeter | None, limit: float, now: float
) -> tuple[bool | None, Message]:
    if instance.observed in Instance.RESTING:
        return False, IDLE
    if meter is None or meter.acceptance is None or now - meter.time > STALE_AFTER:
        return None, UNKNOWN
    percent = 100 * meter.acceptance
    return percent < limit, Message(SHARE, {"percent": f"{percent:.0f}"})


def register() -> None:
    """Called once from the app's registrations."""
    for kind in (
        AlertKind(
            "server_down",
            N_("Server down"),
            N_("Server down"),
            N_("A server that should run has failed, ended by itself or does not answer."),
            find=servers_down,
            hold_s=30,
        ),
        AlertKind(
            "crash_loop",
            N_("Crash loop"),
            N_("Server in a crash loop"),
            N_("A server fails and is started again, or was given up after that."),
            find=crash_loops,
            hold_s=0,
        ),
        AlertKind(
            "acceptance",
            N_("MTP acceptance"),
            N_("Acceptance below %(limit)s %%"),
            N_("Fewer drafted tokens are accepted than a share: drafting may cost more than it gains."),
            Parameter("%", 40, 1, 99),
            find=low_acceptance,
            hold_s=300,
        ),
    ):
        register_alert_kind(kind)
