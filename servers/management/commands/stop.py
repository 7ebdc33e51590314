"""manage.py stop PROFILE: stop a server through the worker and wait for its end."""

from typing import Any

from django.core.management.base import CommandParser

from controlpanel.lib.cli import JsonCommand
from jobs.services.audit import Actor
from servers.management.commands.start import wait_for_state
from servers.services.instances import request_stop
from servers.services.lookup import find_profile


class Command(JsonCommand):
    """Asks for the stop; the panel's worker does it."""

    help = "Stop a profile's server."

    def arguments(self, parser: CommandParser) -> None:
        """PROFILE, and how long to wait."""
        parser.add_argument("profile")
        parser.add_argument("--no-wait", action="store_true", help="return at once")
        parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for the end (60)")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the server's row once it is stopped."""
        row = find_profile(options["profile"])
        request_stop(Actor.cli(), row)
        return wait_for_state(row.instance, "" if options["no_wait"] else "stopped", options["timeout"])

    def text(self, value: dict[str, Any]) -> str:
        """One line."""
        return f"{value['profile']} is {value['observed']}"
