"""manage.py servers: all profiles with the state of their servers."""

from typing import Any

from controlpanel.lib.cli import JsonCommand
from servers.models import Instance


def as_json(instance: Instance) -> dict[str, Any]:
    """Return {profile, desired, observed, port, pid, facts: {mtp, vision, n_ctx}} of one instance."""
    run = instance.run
    alive = run is not None and run.state == "running"
    return {
        "profile": instance.profile.slug,
        "desired": instance.desired,
        "observed": instance.observed,
        "port": instance.port if alive else None,
        "pid": run.pid if run is not None and alive else None,
        "facts": {key: instance.facts.get(key) for key in ("mtp", "vision", "n_ctx")},
    }


class Command(JsonCommand):
    """Lists what should run and what does."""

    help = "List the servers."

    def answer(self, options: dict[str, Any]) -> list[dict[str, Any]]:
        """Return one object per profile."""
        return [as_json(row) for row in Instance.objects.select_related("profile", "run")]

    def text(self, value: list[dict[str, Any]]) -> str:
        """One line per server."""
        lines = [f"{row['profile']:30} {row['observed']:12} {row['port'] or '–'}" for row in value]
        return "\n".join(lines) or "No profiles yet."
