"""Servers that are unloaded while nobody uses them, and started when somebody asks."""

import asyncio
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.access import has_role
from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish_on_commit
from jobs.adapters.hostlink import Endpoint
from jobs.models import AuditEntry
from jobs.services.audit import Actor, record
from jobs.services.watch import each, with_database
from servers.domain.policy import policy_of
from servers.models import Instance, ServerProfile, Turn
from servers.services.flight import requests_at
from servers.services.instances import (
    STOP,
    Observed,
    endpoint_of,
    ensure_ready,
    has_active_job,
    request_start,
    request_stop,
)

LIMIT = 900.0  # seconds for which a request waits for its server
LOOK = 0.5  # seconds between two looks at a server that starts
DRAIN = 30.0  # seconds that an unload waits for a request that came at the last moment
REASON = 300  # characters of why a start failed
UNDER_WAY = (Observed.STARTING, Observed.LOADING, Observed.BACKOFF)
# Not one that failed: it waits for a person or for its policy.
ASLEEP = (Observed.STOPPED, Observed.EXITED, Observed.STOPPING)
HEARTBEAT = timedelta(minutes=1)  # a turn that is being answered writes one each second
IDLE = "Nobody used it for %d minutes."  # in the audit, which keeps texts as they were written


def is_under_way(instance: Instance) -> bool:
    """True for a server started on demand that will be ready by itself."""
    return policy_of(instance.profile.policy).on_demand and instance.observed in UNDER_WAY


def may_wake(instance: Instance) -> bool:
    """True for a server that rests, or is about to, and may be started by a request."""
    if instance.held or not policy_of(instance.profile.policy).on_demand:
        return False
    # A start that preflight held back has no run: what held it may be over, unless it was an error.
    worst = {check["level"] for check in instance.checks}
    held_back = instance.observed == Observed.FAILED and instance.run_id is None and "error" not in worst
    return instance.observed in ASLEEP or held_back


def can_ask(actor: Actor, instance: Instance) -> bool:
    """True when a request of the actor is answered: at once, or after a start."""
    if instance.observed == Observed.READY or is_under_way(instance):
        return True
    return may_wake(instance) and _may_start(actor)


def _may_start(actor: Actor) -> bool:
    return actor.source in (AuditEntry.Source.CLI, AuditEntry.Source.AGENT) or has_role(
        actor.user, "operator"
    )


def wake(actor: Actor, instance: Instance) -> bool:
    """Start the server if that may be; True when it is on its way, or ready, already or now.

    Also True for one that still ends: it cannot be started before, so ask again.
    """
    if is_under_way(instance) or instance.observed == Observed.READY:
        return True
    if not may_wake(instance) or not _may_start(actor):
        return False
    # The job of a restart starts the server by itself.
    if instance.observed == Observed.STOPPING or has_active_job(instance, STOP):
        return True
    try:
        request_start(actor, instance.profile, on_demand=True)
    except Refused:
        instance.refresh_from_db(fields=["observed"])
        return is_under_way(instance) or instance.observed == Observed.READY
    instance.observed = Observed.STARTING
    return True


async def ready_endpoint(
    profile: ServerProfile,
    actor: Actor,
    tell: Callable[[Instance], None] | None = None,
    limit_s: float = LIMIT,
) -> Endpoint:
    """Return the endpoint of the profile's server as `ensure_ready` does, after starting it where needed.

    `tell` gets the instance at each look as long as it is waited for, and once ready. Refused says why it is
    not started, why it failed, or that it was not ready within `limit_s`. Leaving ends no start.
    """
    try:
        return await sync_to_async(ensure_ready)(profile)
    except Refused:
        return await _awaited(profile, actor, tell, limit_s)


async def _awaited(
    profile: ServerProfile, actor: Actor, tell: Callable[[Instance], None] | None, limit_s: float
) -> Endpoint:
    deadline = time.monotonic() + limit_s
    begun = False
    while True:
        instance, endpoint = await sync_to_async(_look)(profile, actor, begun)
        if tell is not None:
            tell(instance)
        if endpoint is not None:
            return endpoint
        begun = begun or is_under_way(instance)
        if time.monotonic() >= deadline:
            raise Refused(
                _("The server %(name)s was not ready after %(seconds)d seconds. Look at its log.")
                % {"name": profile.name, "seconds": limit_s},
                code="start_slow",
            )
        await asyncio.sleep(LOOK)


def _look(profile: ServerProfile, actor: Actor, begun: bool) -> tuple[Instance, Endpoint | None]:
    """Wake the server; its endpoint when it is ready. `begun`: it was seen to start, so rest is failure."""
    instance = _instance(profile)
    if begun and instance.observed in (Observed.EXITED, Observed.FAILED):
        why = textwrap.shorten(instance.error_text, REASON, placeholder="…")
        text = _("The server %(name)s could not be started: %(why)s")
        raise Refused(text % {"name": profile.name, "why": why}, code="start_failed")
    if instance.observed != Observed.READY and wake(actor, instance):
        return instance, None
    if may_wake(instance):
        text = _("The server %(name)s is not loaded. An operator can start it.")
        raise Refused(text % {"name": profile.name}, code="not_allowed")
    if instance.held and instance.observed in ASLEEP and policy_of(instance.profile.policy).on_demand:
        text = _("The server %(name)s was stopped by hand, so no request starts it. Start it on its page.")
        raise Refused(text % {"name": profile.name}, code="held")
    return instance, ensure_ready(profile)


def _instance(profile: ServerProfile) -> Instance:
    rows = Instance.objects.select_related("profile__build__host").defer("profile__build__capabilities")
    found = rows.filter(profile=profile).first()
    if found is None:
        raise Refused(_("The profile %(name)s was deleted.") % {"name": profile.name}, code="no_server")
    return found


def pin(actor: Actor, profile: ServerProfile, pinned: bool) -> None:
    """Keep the server loaded although nobody uses it, or do so no more."""
    with transaction.atomic():
        if Instance.objects.filter(profile=profile, pinned=not pinned).update(pinned=pinned):
            record(actor, "server.pin" if pinned else "server.unpin", profile)
            publish_on_commit("instance", profile.instance.pk)


@with_database
def unload_idle() -> None:
    """Stop the servers of this host that nobody has used for as long as their policy allows."""
    rows = Instance.objects.select_related("run__host", "profile__build__host").filter(
        observed=Observed.READY,
        pinned=False,
        run__host__slug=settings.PANEL_HOST,
        profile__policy__has_key="idle_min",
    )
    each(rows, _unload)


def _unload(instance: Instance) -> None:
    minutes = policy_of(instance.profile.policy).idle_min
    used = _last_use(instance)
    if minutes is None or used is None or timezone.now() - used < timedelta(minutes=minutes):
        return
    if not _is_answering(instance):
        # Refused: somebody else was faster, or too many stops wait; the next look may do it.
        with suppress(Refused):
            request_stop(Actor.agent(), instance.profile, wait=DRAIN, reason=IDLE % minutes)


def _last_use(instance: Instance) -> datetime | None:
    return max(filter(None, (instance.used_at, instance.ready_at)), default=None)


def _is_answering(instance: Instance) -> bool:
    """Tell whether somebody may be waiting for an answer; also when the server does not say."""
    turns = Turn.objects.filter(conversation__profile=instance.profile, state=Turn.State.STREAMING)
    if turns.filter(updated_at__gte=timezone.now() - HEARTBEAT).exists():
        return True
    endpoint = endpoint_of(instance)
    return endpoint is None or async_to_sync(requests_at)(endpoint) != 0
