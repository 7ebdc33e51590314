"""The rail of a server's start: its steps with their seconds."""

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy

from servers.models import Instance

Observed = Instance.Observed
STEPS = {
    "queued": gettext_lazy("queued"),
    "preflight": gettext_lazy("preflight"),
    "spawn": gettext_lazy("spawn"),
    "loading": gettext_lazy("loading"),
    "context": gettext_lazy("context"),
    "mtp": gettext_lazy("MTP"),
    "vision": gettext_lazy("vision"),
    "warmup": gettext_lazy("warm-up"),
    "loaded": gettext_lazy("loaded"),
    "ready": gettext_lazy("ready"),
}
BROKEN = (Observed.FAILED, Observed.BACKOFF)  # the last start, or what became of it, went wrong


@dataclass(frozen=True)
class Step:
    """One step of a start; `seconds` is None while it goes on or lies ahead, `since` its begin."""

    key: str
    word: Any
    status: str  # done, now, failed, ahead
    seconds: float | None
    since: str


def steps_of(instance: Instance) -> list[Step]:
    """The rail of the last start, empty when there was none."""
    reached = {str(step["key"]): float(step["at"]) for step in instance.steps}
    if not reached:
        return []
    settings = instance.profile.settings
    wanted = {
        "mtp": settings.get("speculation") == "mtp",
        "vision": bool(instance.profile.mmproj_id),
        # Not every build tells of it, so that one that is ready has had it.
        "warmup": settings.get("warmup") != "off" and "ready" not in reached,
    }
    keys = [key for key in STEPS if key in reached or wanted.get(key, True)]
    times = sorted(reached.values())
    last = max(reached, key=lambda key: reached[key])
    going_on = instance.observed in {Observed.STARTING, Observed.LOADING}
    steps = []
    for key in keys:
        at = reached.get(key)
        after = next((moment for moment in times if at is not None and moment > at), None)
        status = "ahead" if at is None else "done"
        if key == last and key != "ready":
            status = "now" if going_on else "failed" if instance.observed in BROKEN else "done"
        seconds = after - at if at is not None and after is not None and key != "ready" else None
        since = f"{at:.3f}" if status == "now" else ""
        steps.append(Step(key, STEPS[key], status, seconds, since))
    return steps


def total_seconds(instance: Instance) -> float | None:
    """How long the last start took until ready, None when it never was."""
    reached = {step["key"]: step["at"] for step in instance.steps}
    return reached["ready"] - reached["queued"] if {"ready", "queued"} <= reached.keys() else None
