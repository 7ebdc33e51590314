"""How a server is kept up, as pages show it: its policy, starts after failures, and the last preflight."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlpanel.lib.words import translate
from controlpanel.llamacpp.rule_types import Diagnosis
from jobs.models import Run
from servers.domain.policy import NEVER, RESTARTS, Policy
from servers.domain.preflight import Check
from servers.models import Instance
from servers.views.rail import BROKEN

Observed = Instance.Observed


@dataclass(frozen=True)
class Loop:
    """Where a server stands that failed and is started by the panel itself.

    `number` of `limit` such starts is to come (`waits`), was the last (`given_up`) or goes on (`again`); 0
    after a reboot, which counts as none. `until` is when the next one begins, in seconds since 1970.
    """

    kind: Literal["waits", "given_up", "again"]
    number: int
    limit: int
    until: str
    stable: timedelta


@dataclass(frozen=True)
class Failure:
    """One failed start: what is known of the cause, and its run where it came to one."""

    title: str
    run: Run | None


def loop_of(instance: Instance, policy: Policy) -> Loop | None:
    """Return where the server's starts by the panel stand, None when there are none."""
    kind: Literal["waits", "given_up", "again"]
    if instance.observed == Observed.BACKOFF:
        kind = "waits"
    elif not instance.attempts or instance.observed in (Observed.STOPPED, Observed.EXITED):
        return None
    else:
        hangs = instance.observed == Observed.UNRESPONSIVE and instance.attempts >= policy.limit
        kind = "given_up" if hangs or instance.observed == Observed.FAILED else "again"
    until = f"{instance.retry_at.timestamp():.3f}" if kind == "waits" and instance.retry_at else ""
    return Loop(kind, instance.attempts, policy.limit, until, timedelta(seconds=policy.stable_s))


def failures_of(instance: Instance, runs: list[Run]) -> dict[str, Failure | None]:
    """Return {"first", "latest"} of the failures in a row; "first" is None when it is the latest as well.

    `runs` are the server's runs, the newest first.
    """
    current, first = instance.run, instance.first_failure
    latest: Failure | None
    if instance.observed in BROKEN:
        said = instance.error_text.partition("\n")[0]
        latest = Failure(_cause_of(current) or said, current) if current else Failure(said, None)
    else:
        past = next((run for run in runs if current is None or run.pk != current.pk), None)
        latest = Failure(_cause_of(past) or _end_of(past), past) if past else None
    if first is None or (latest is not None and latest.run is not None and latest.run.pk == first.pk):
        return {"first": None, "latest": latest}
    return {"first": Failure(_cause_of(first) or _end_of(first), first), "latest": latest}


def _cause_of(run: Run) -> str:
    return translate(Diagnosis.from_json(run.diagnosis[0]).title) if run.diagnosis else ""


def _end_of(run: Run) -> str:
    if run.exit_code is None:
        return _("exit code unknown")
    if run.exit_code < 0:
        return _("ended by signal %(code)s") % {"code": -run.exit_code}
    return _("exit code %(code)s") % {"code": run.exit_code}


def unloaded(instance: Instance, policy: Policy) -> bool:
    """Tell whether the server only waits for a request that starts it."""
    return policy.on_demand and instance.observed == Observed.STOPPED and not instance.held


def why_unloaded(instance: Instance, policy: Policy) -> str:
    """Return why a server is unloaded and what loads it, as words after its state."""
    if instance.run_id is None or policy.idle_min is None:
        return _("the next request starts it")
    text = ngettext(
        "after %(number)d minute without a request; the next request starts it",
        "after %(number)d minutes without a request; the next request starts it",
        policy.idle_min,
    )
    return text % {"number": policy.idle_min}


def policy_rows(policy: Policy) -> list[tuple[str, str]]:
    """Return what the panel does by itself for a server, label and words, without what is switched off."""
    restart = _(RESTARTS[policy.restart])
    if policy.restart != NEVER:
        text = ngettext("%(when)s, up to %(number)d time", "%(when)s, up to %(number)d times", policy.limit)
        restart = text % {"when": restart, "number": policy.limit}
    rows = [(_("Restart"), restart)]
    if policy.memory_mib is not None:
        rows.append((_("Memory limit"), f"{policy.memory_mib:,} MiB"))
    if policy.idle_min is not None:
        text = ngettext(
            "after %(number)d minute without a request",
            "after %(number)d minutes without a request",
            policy.idle_min,
        )
        rows.append((_("Unload"), text % {"number": policy.idle_min}))
    if policy.on_demand:
        rows.append((_("Start on demand"), _("a request starts it")))
    return rows


def vram_of(instance: Instance) -> list[tuple[int, int | None]]:
    """Return the cards on which the running server's process has memory, each with MiB or None."""
    stored = instance.facts.get("vram") or [] if instance.observed not in Instance.RESTING else []
    return [(int(card), mib) for card, mib in stored]


def preflight_of(instance: Instance) -> dict[str, Any] | None:
    """Return what the last start's preflight saw, None without one.

    `stops` is what kept the start back, and `overridable` whether somebody may start the server anyway.
    """
    checks = [Check.from_json(item) for item in instance.checks]
    if not checks:
        return None
    failed = instance.observed in BROKEN and bool(instance.steps) and instance.steps[-1]["key"] == "preflight"
    stopping = [check for check in checks if check.level == "error" or (check.holds and not instance.anyway)]
    return {
        "rows": [
            {
                "level": check.level,
                "message": translate(check.message),
                "remedy": translate(check.remedy) if check.remedy else "",
            }
            for check in checks
        ],
        "number": len(checks),
        "warnings": sum(check.level != "ok" for check in checks),
        "open": any(check.level != "ok" for check in checks) and instance.observed != Observed.READY,
        "stops": translate(stopping[0].message) if failed and stopping else "",
        "overridable": failed and bool(stopping) and all(check.level != "error" for check in checks),
    }
