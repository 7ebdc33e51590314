"""Instances: start, stop, restart, observe. Only this module changes Instance.desired and .observed."""

import hashlib
import hmac
import time
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish, publish_on_commit
from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.serverlog import last_errors
from jobs.adapters.hostlink import Endpoint
from jobs.models import AuditEntry, Job, Run
from jobs.services.audit import MAX_REASON, Actor, record
from jobs.services.jobs import create_job, request_cancel
from servers.models import Instance, ServerProfile

LAUNCH = "server.launch"
STOP = "server.stop"
PORT_TRIES = 5
WAITING = 4  # stops of a host that may wait at the same time, so that others find a free worker
MAX_WAIT = 3600.0  # seconds that a stop waits for requests in flight at most
Observed = Instance.Observed
Desired = Instance.Desired


def request_start(
    actor: Actor,
    profile: ServerProfile,
    *,
    anyway: bool = False,
    again: bool = False,
    on_demand: bool = False,
) -> None:
    """Ask for the profile's server to run; Refused when it does already or while it stops.

    `anyway`: although preflight warns. `again`: after a failure, which counts on. `on_demand`: for a request,
    so nobody looks at the page and a start that preflight holds back is tried again.
    """
    by_itself = again or on_demand or not by_a_person(actor)
    fresh: dict[str, Any] = {} if again else {"attempts": 0, "first_failure": None}
    with transaction.atomic():
        # What somebody wanted in spite of warnings is wanted for the same revision still.
        wanted = Instance.objects.filter(profile=profile, anyway=True, revision=profile.revision)
        fresh["anyway"] = anyway or (by_itself and wanted.exists())
        won = Instance.objects.filter(profile=profile, observed__in=Instance.RESTING).update(
            desired=Desired.RUNNING,
            observed=Observed.STARTING,
            error="",
            facts={},
            checks=[],
            port=None,
            run=None,
            steps=[{"key": "queued", "at": time.time()}],
            revision=profile.revision,
            retry_at=None,
            ready_at=None,
            held=False,
            **fresh,
        )
        instance = Instance.objects.get(profile=profile)
        if not won:
            raise Refused(_("The server is %(state)s already.") % {"state": instance.get_observed_display()})
        told = {"revision": profile.revision, "anyway": anyway, "attempt": instance.attempts}
        record(actor, "server.start", profile, after={key: value for key, value in told.items() if value})
        create_job(actor, LAUNCH, profile.build.host, "instance", instance.pk, {"again": again or on_demand})
        publish_on_commit("instance", instance.pk)


def request_stop(
    actor: Actor, profile: ServerProfile, wait: float = 0.0, reason: str = "", *, hold: bool = True
) -> Job | None:
    """Ask for the profile's server to end and return the job; Refused when it is not running.

    The job waits up to `wait` s for the requests in flight; new ones are refused meanwhile. With `hold` no
    request starts it again after a person's stop. A server that waits to be started again has no process: it
    is stopped at once, without a job.
    """
    held = hold and by_a_person(actor)
    if _stay_stopped(actor, profile, held):
        return None
    return _request_end(actor, "server.stop", profile, wait, reason, {"then_start": False}, held)


def _stay_stopped(actor: Actor, profile: ServerProfile, held: bool) -> bool:
    with transaction.atomic():
        won = Instance.objects.filter(profile=profile, observed=Observed.BACKOFF).update(
            desired=Desired.STOPPED, observed=Observed.STOPPED, retry_at=None, held=held, error=""
        )
        if won:
            record(actor, "server.stop", profile)
            publish_on_commit("instance", profile.instance.pk)
    return bool(won)


def request_restart(actor: Actor, profile: ServerProfile, wait: float = 0.0, reason: str = "") -> Job:
    """Stop the server as `request_stop` does and start it again with the profile as it is then."""
    return _request_end(actor, "server.restart", profile, wait, reason, {"then_start": True}, held=False)


def restart_again(instance: Instance, reason: str, attempts: int) -> bool:
    """Restart a server that does not answer, which counts as a failure; False when it answers again."""
    params = {"then_start": True, "again": True, "wait": 0.0}
    first = instance.first_failure if attempts > 1 else None
    with transaction.atomic():
        run = instance.run
        fields = {"attempts": attempts, "first_failure": first or run}
        if run is None or not move(instance, Observed.UNRESPONSIVE, to=Observed.STOPPING, **fields):
            return False
        actor = Actor.agent()
        record(actor, "server.restart", instance.profile, after={"reason": reason, "attempt": attempts})
        create_job(actor, STOP, run.host, "instance", instance.pk, params)
    return True


def by_a_person(actor: Actor) -> bool:
    """Tell whether somebody asked for it, not the panel itself."""
    return actor.source != AuditEntry.Source.AGENT


def _request_end(
    actor: Actor,
    action: str,
    profile: ServerProfile,
    wait: float,
    reason: str,
    then: dict[str, Any],
    held: bool,
) -> Job:
    params = {**then, "wait": min(max(wait, 0.0), MAX_WAIT)}
    with transaction.atomic():
        instance = _stopping(profile, held)
        host = instance.run.host if instance.run else profile.build.host
        stops = Job.objects.filter(kind=STOP, host=host, state__in=Job.ACTIVE)
        if wait and sum(map(waits, stops)) >= WAITING:
            text = _("%(number)d servers wait for their requests already. Cut one off, or do not wait.")
            raise Refused(text % {"number": WAITING})
        told = {"wait": params["wait"], "reason": reason[:MAX_REASON]}
        record(actor, action, profile, after={key: value for key, value in told.items() if value} or None)
        return create_job(actor, STOP, host, "instance", instance.pk, params)


def cut_now(actor: Actor, profile: ServerProfile) -> None:
    """End a stop's waiting for the requests in flight; Refused when none waits."""
    with transaction.atomic():
        instance = Instance.objects.get(profile=profile)
        waiting = jobs_of(instance, STOP).select_for_update().filter(state__in=Job.ACTIVE)
        job = next((row for row in waiting if waits(row)), None)
        if job is None:
            raise Refused(_("The server does not wait for requests any more."))
        job.params = {**job.params, "wait": 0.0}
        job.save(update_fields=["params"])
        record(actor, "server.cut", profile)
        publish_on_commit("instance", instance.pk)


def waits(job: Job) -> bool:
    """Tell whether a stop still waits, or is going to wait, for requests in flight."""
    return bool(job.params.get("wait")) and not job.params.get("asked")


def _stopping(profile: ServerProfile, held: bool) -> Instance:
    won = Instance.objects.filter(profile=profile, observed__in=Instance.ALIVE).update(
        desired=Desired.STOPPED, observed=Observed.STOPPING, held=held
    )
    instance = Instance.objects.get(profile=profile)
    if not won:
        raise Refused(
            _("The server is not running: it is %(state)s.") % {"state": instance.get_observed_display()}
        )
    for job in jobs_of(instance, LAUNCH).filter(state__in=Job.ACTIVE):
        request_cancel(job)
    publish_on_commit("instance", instance.pk)
    return instance


def jobs_of(instance: Instance, *kinds: str) -> QuerySet[Job]:
    """Return the instance's jobs of these kinds, the newest first."""
    return Job.objects.filter(kind__in=kinds, subject_kind="instance", subject_id=str(instance.pk))


def has_active_job(instance: Instance, *kinds: str) -> bool:
    """True while a job of one of the kinds is queued or at work for the instance."""
    return jobs_of(instance, *kinds).filter(state__in=Job.ACTIVE).exists()


def move(instance: Instance, *allowed: str, to: str, **fields: Any) -> bool:
    """Change the observed state by a guarded UPDATE; False when somebody else was faster."""
    won = Instance.objects.filter(pk=instance.pk, observed__in=allowed, run=instance.run).update(
        observed=to, **fields
    )
    if won:
        instance.observed = to
        for key, value in fields.items():
            setattr(instance, key, value)
        publish_on_commit("instance", instance.pk)
    return bool(won)


def note_error(instance: Instance, state: str, error: str) -> bool:
    """Say what is wrong with a server that stays in its state; False when it left it, or is said already."""
    return instance.error != error and move(instance, state, to=state, error=error)


def attach_run(instance: Instance, run: Run, port: int) -> bool:
    """Give the starting instance its run and port, before anything is spawned."""
    won = Instance.objects.filter(pk=instance.pk, observed=Observed.STARTING, run=instance.run).update(
        run=run, port=port
    )
    if won:
        instance.run, instance.port = run, port
    return bool(won)


def note_checks(instance: Instance, checks: list[dict[str, Any]]) -> None:
    """Keep what the start's preflight saw."""
    instance.checks = checks
    Instance.objects.filter(pk=instance.pk, run=instance.run).update(checks=checks)
    publish("instance", instance.pk)


def note_revision(instance: Instance) -> None:
    """Note with which revision of its profile the server is started: the one that was read for it."""
    instance.revision = instance.profile.revision
    Instance.objects.filter(pk=instance.pk, run=instance.run).update(revision=instance.revision)


def note_step(instance: Instance, key: str) -> None:
    """Add a step to the rail of the current start, once."""
    if any(step["key"] == key for step in instance.steps):
        return
    instance.steps = [*instance.steps, {"key": key, "at": time.time()}]
    Instance.objects.filter(pk=instance.pk, run=instance.run).update(steps=instance.steps)
    publish("instance", instance.pk)


def note_facts(instance: Instance, facts: dict[str, Any]) -> None:
    """Store what the server said of itself."""
    if facts != instance.facts:
        instance.facts = facts
        Instance.objects.filter(pk=instance.pk, run=instance.run).update(facts=facts)
        publish("instance", instance.pk)


def note_use(instance: Instance) -> None:
    """Note that the server answers requests now."""
    instance.used_at = timezone.now()
    Instance.objects.filter(pk=instance.pk, run=instance.run).update(used_at=instance.used_at)


def server_key(run_id: str) -> str:
    """Return the API key of a run: made from the panel's secret, so that no row has to keep it."""
    return hmac.new(settings.SECRET_KEY.encode(), f"server:{run_id}".encode(), hashlib.sha256).hexdigest()


def endpoint_of(instance: Instance) -> Endpoint | None:
    """Return where the instance's server listens, or None while it has no run."""
    if instance.run is None or instance.port is None:
        return None
    return Endpoint(instance.run.host.slug, instance.run.pk, instance.port, server_key(instance.run.pk))


NOT_READY = {
    Observed.STOPPED: gettext_noop("The server %(name)s is stopped. Start it first."),
    Observed.STARTING: gettext_noop("The server %(name)s is starting. Wait until it is ready."),
    Observed.LOADING: gettext_noop("The server %(name)s is loading its model. Wait until it is ready."),
    Observed.STOPPING: gettext_noop("The server %(name)s is stopping."),
    Observed.UNRESPONSIVE: gettext_noop("The server %(name)s does not answer. Look at its log."),
    Observed.BACKOFF: gettext_noop("The server %(name)s failed and is started again in a moment."),
    Observed.EXITED: gettext_noop("The server %(name)s has ended. Start it again."),
    Observed.FAILED: gettext_noop("The server %(name)s failed. Look at its log."),
}


def ensure_ready(profile: ServerProfile) -> Endpoint:
    """Return the endpoint of the profile's ready server; the only way to reach one. Refused says why not."""
    instance = Instance.objects.select_related("run__host", "profile").get(profile=profile)
    endpoint = endpoint_of(instance)
    if instance.observed != Observed.READY or endpoint is None:
        text = NOT_READY.get(Observed(instance.observed), NOT_READY[Observed.STARTING])
        raise Refused(_(text) % {"name": profile.name})
    return endpoint


def retry_on_next_port(instance: Instance, run: Run) -> bool:
    """Launch again on another port when the panel chose the port and somebody took it meanwhile."""
    if instance.profile.port or "couldn't bind HTTP server socket" not in run.log_tail:
        return False
    taken = [*instance.facts.get("taken_ports", []), instance.port]
    if len(taken) > PORT_TRIES:
        return False
    with transaction.atomic():
        if not move(instance, *Instance.ALIVE, to=Observed.STARTING, run=None, facts={"taken_ports": taken}):
            return False
        launch = jobs_of(instance, LAUNCH).first()
        params = {"taken": taken, "again": bool(launch and launch.params.get("again"))}
        create_job(Actor.agent(), LAUNCH, run.host, "instance", instance.pk, params)
    return True


def why_it_ended(run: Run, cause: Message | None) -> Message:
    """Say how a process ended, with its cause or the most telling lines of its log."""
    if run.exit_code is None:
        first = Message(N_("The server ended; its exit code is not known."))
    elif run.exit_code < 0:
        first = Message(N_("The server was ended by signal %(number)s."), {"number": -run.exit_code})
    else:
        first = Message(N_("The server ended with exit code %(code)s."), {"code": run.exit_code})
    rest = cause or "\n".join(last_errors(run.log_tail, 3))
    return Message("%(first)s\n%(lines)s", {"first": first, "lines": rest}) if rest else first
