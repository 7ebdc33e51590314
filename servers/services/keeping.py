"""Keeps servers up: what follows when one fails, the starts that are due, and those that do not answer.

The agent decides here and enqueues jobs; only the control task starts and stops processes.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import stored
from controlpanel.llamacpp.rule_types import Diagnosis
from jobs.adapters import runs as folders
from jobs.models import Run
from jobs.services.audit import Actor
from jobs.services.builds import capabilities_of
from jobs.services.watch import each, with_database
from servers.domain.policy import Decision, End, decide, policy_of
from servers.models import Incident, Instance, ServerProfile
from servers.services import incidents, instances
from servers.services.diagnosing import why_it_failed
from servers.services.instances import Observed

PATIENCE = 600.0  # seconds for which a start waits for another server on its cards
BEGUN = (Observed.STARTING, Observed.LOADING)
Kind = Incident.Kind
REBOOTED = Message(N_("The host was restarted while the server ran."))


def server_failed(instance: Instance, run: Run) -> None:
    """Settle a server whose process ended although it was to run: rest, give up, or start again later."""
    found = why_it_failed(instance, run)
    rebooted = folders.inspect(run.pk).rebooted
    error = REBOOTED if rebooted else instances.why_it_ended(run, found[0].title if found else None)
    end = End(
        exit_code=run.exit_code,
        ready_s=_ready_s(instance, run),
        mendable=found[0].passing if found else True,
        rebooted=rebooted,
    )
    if rebooted:
        kind = Kind.REBOOT
    elif run.over_memory:
        kind = Kind.MEMORY
    else:
        kind = Kind.START if instance.ready_at is None else Kind.CRASH
    _settle(instance, (*Instance.ALIVE, Observed.STOPPING), end, error, kind, found)


def start_failed(instance: Instance, why: Message, again: bool) -> None:
    """Settle a start that came to no process; only one that the panel made by itself is tried again."""
    _settle(instance, (Observed.STARTING,), End(mendable=again), why, Kind.START, ())


def _settle(
    instance: Instance,
    allowed: Sequence[str],
    end: End,
    error: Message,
    kind: Incident.Kind,
    found: Sequence[Diagnosis],
) -> None:
    decision = decide(policy_of(instance.profile.policy), instance.attempts, end)
    fields: dict[str, Any] = {"attempts": decision.attempts, "error": stored(_with_why(error, decision))}
    if decision.kind == "retry":
        to = Observed.BACKOFF
        fields["retry_at"] = timezone.now() + timedelta(seconds=decision.wait_s)
        if not end.rebooted:
            # A server that was stable has begun a new row of failures.
            first = instance.first_failure if decision.attempts > 1 else None
            fields["first_failure"] = first or instance.run
    else:
        # What a shutdown of the host ended did not come to its end, whatever its exit code.
        to = Observed.EXITED if end.exit_code == 0 and not end.rebooted else Observed.FAILED
    if not instances.move(instance, *allowed, to=to, **fields):
        return
    incidents.note(instance, kind, error, run=instance.run, diagnoses=found)
    if decision.kind == "give_up" and decision.attempts:
        incidents.note(instance, Kind.LOOP, decision.why or error, run=instance.run, diagnoses=found)


def _with_why(error: Message, decision: Decision) -> Message:
    # A first start that failed for good needs no word about starts that nobody expects.
    if decision.why is None or not decision.attempts:
        return error
    return Message("%(error)s\n%(why)s", {"error": error, "why": decision.why})


def _ready_s(instance: Instance, run: Run) -> float | None:
    """Return for how many seconds a server had been ready when its process ended, None: it never was."""
    if instance.ready_at is None:
        return None
    ended = run.ended_at or timezone.now()
    return max((ended - instance.ready_at).total_seconds(), 0.0)


@with_database
def restart_due() -> None:
    """Start the servers of this host whose wait is over; those that share cards one after the other."""
    due = Instance.objects.select_related("profile__build__host").filter(
        observed=Observed.BACKOFF,
        retry_at__lte=timezone.now(),
        profile__build__host__slug=settings.PANEL_HOST,
    )
    each(sorted(due, key=_order), _start_in_turn)


def _start_in_turn(instance: Instance) -> None:
    if not _must_wait(instance):
        with suppress(Refused):  # somebody else was faster
            instances.request_start(Actor.agent(), instance.profile, again=True)


def _order(instance: Instance) -> tuple[int, str]:
    return policy_of(instance.profile.policy).order, instance.profile.name


def _must_wait(instance: Instance) -> bool:
    """Tell whether another server is just loading on the same cards: both would misjudge what is free."""
    cards = _cards_of(instance.profile)
    if not cards and cards is not None:
        return False
    loading = Instance.objects.select_related("profile__build").filter(
        observed__in=BEGUN, profile__build__host__slug=settings.PANEL_HOST
    )
    return any(_is_fresh(other) and _share(cards, _cards_of(other.profile)) for other in loading)


def _is_fresh(instance: Instance) -> bool:
    """Tell whether a start has begun not so long ago that nobody waits for it any more."""
    return not instance.steps or time.time() - float(instance.steps[0]["at"]) < PATIENCE


def _cards_of(profile: ServerProfile) -> set[str] | None:
    """Return the cards that a profile names, all of them for None, none where its build knows no cards."""
    caps = capabilities_of(profile.build)
    if caps.has("--list-devices") and not caps.devices:
        return set()
    named = profile.environment.get("CUDA_VISIBLE_DEVICES")
    names = None if named is None else {name.strip() for name in named.split(",") if name.strip()}
    # A number and a UUID may name the same card.
    return names if names is not None and all(name.isdigit() for name in names) else None


def _share(first: set[str] | None, second: set[str] | None) -> bool:
    if first is None or second is None:
        return first != set() and second != set()
    return bool(first & second)


def restart_hung(instance: Instance, silent_s: float) -> None:
    """Restart a server that has been silent for too long, as its policy says; not one that was to stop."""
    if instance.desired != Instance.Desired.RUNNING:
        return
    policy = policy_of(instance.profile.policy)
    text = Message(N_("The server gave no answer for %(seconds)d seconds."), {"seconds": policy.hang_s})
    since = instance.ready_at
    ready_s = max((timezone.now() - since).total_seconds() - silent_s, 0.0) if since else None
    decision = decide(policy, instance.attempts, End(ready_s=ready_s))
    if decision.kind == "retry":
        if not instances.restart_again(instance, str(text), decision.attempts):
            return
    elif not instances.note_error(instance, Observed.UNRESPONSIVE, stored(_with_why(text, decision))):
        return
    incidents.note(instance, Kind.HANG, text, run=instance.run)


@with_database
def forget_failures() -> None:
    """Forget the failures of servers that have been ready for long enough to count as stable."""
    now = timezone.now()
    rows = Instance.objects.select_related("profile").filter(observed=Observed.READY, attempts__gt=0)

    def look(instance: Instance) -> None:
        stable = timedelta(seconds=policy_of(instance.profile.policy).stable_s)
        if instance.ready_at is not None and now - instance.ready_at >= stable:
            instances.move(instance, Observed.READY, to=Observed.READY, attempts=0, first_failure=None)

    each(rows, look)


@with_database
def bring_back() -> None:
    """Bring back servers that a shutdown of the host ended while the agent could still see it."""
    rows = Instance.objects.select_related("profile", "run").filter(
        desired=Instance.Desired.RUNNING,
        observed=Observed.EXITED,
        run__stop_requested=True,
        profile__build__host__slug=settings.PANEL_HOST,
    )

    def look(instance: Instance) -> None:
        if instance.run is not None and folders.inspect(instance.run.pk).rebooted:
            end = End(exit_code=instance.run.exit_code, rebooted=True)
            _settle(instance, (Observed.EXITED,), end, REBOOTED, Kind.REBOOT, ())

    each(rows, look)


def retry_now(actor: Actor, profile: ServerProfile) -> None:
    """Start a server at once that waits to be started again; Refused in other states."""
    instance = Instance.objects.get(profile=profile)
    if instance.observed != Observed.BACKOFF:
        state = instance.get_observed_display()
        raise Refused(_("Nothing is to be tried again: the server is %(state)s.") % {"state": state})
    instances.request_start(actor, profile, again=True)
