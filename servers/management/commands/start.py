"""manage.py start PROFILE: start a server through the worker and wait for it."""

import time
from typing import Any

from django.core.management.base import CommandParser

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from jobs.services.audit import Actor
from servers.management.commands.servers import as_json
from servers.models import Instance
from servers.services.instances import request_start
from servers.services.lookup import find_profile


class Command(JsonCommand):
    """Asks for the start; the panel's worker does it."""

    help = "Start a profile's server."

    def arguments(self, parser: CommandParser) -> None:
        """PROFILE, and how long to wait."""
        parser.add_argument("profile")
        parser.add_argument("--anyway", action="store_true", help="start although preflight warns")
        parser.add_argument("--no-wait", action="store_true", help="return at once")
        parser.add_argument("--timeout", type=float, default=600, help="seconds to wait for ready (600)")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the server's row once it is ready; Refused when it failed or the time is over."""
        row = find_profile(options["profile"])
        request_start(Actor.cli(), row, anyway=options["anyway"])
        return wait_for_state(row.instance, "" if options["no_wait"] else "ready", options["timeout"])

    def text(self, value: dict[str, Any]) -> str:
        """One line."""
        return f"{value['profile']} is {value['observed']}" + (
            f" on port {value['port']}" if value["port"] else ""
        )


def wait_for_state(instance: Instance, wanted: str, seconds: float) -> dict[str, Any]:
    """Poll the row until the observed state is the wanted one ("" = do not wait)."""
    deadline = time.monotonic() + seconds
    while True:
        instance = Instance.objects.select_related("profile", "run").get(pk=instance.pk)
        if not wanted or instance.observed == wanted:
            return as_json(instance)
        if instance.observed in Instance.RESTING and instance.observed != Instance.Observed.BACKOFF:
            raise Refused(instance.error_text or f"the server is {instance.observed}", code=instance.observed)
        if time.monotonic() > deadline:
            raise Refused(
                f"the server is still {instance.observed} after {seconds:.0f} s; is the panel running?",
                code="timeout",
            )
        time.sleep(0.2)
