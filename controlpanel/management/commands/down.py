"""manage.py down: stop all llama-servers of this host, then the panel."""

import signal
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from controlpanel.lib.errors import Refused
from controlpanel.services import FOREGROUND, INSTANCE, instance_mark
from jobs.models import Job
from jobs.runtime.procs import alive, find_by_environ, signal_proc
from jobs.services.audit import Actor
from jobs.services.jobs import execute
from servers.models import Instance
from servers.services.instances import request_stop

SECONDS = 30.0


class Command(BaseCommand):
    """Works with a running panel and without one: stop jobs that no worker takes are done here."""

    help = "Stop all llama-servers and the panel."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """--servers-only leaves the panel running."""
        parser.add_argument("--servers-only", action="store_true", help="leave the panel itself running")

    def handle(self, *args: Any, servers_only: bool, **options: Any) -> None:
        """Stop the servers first, so that the panel's log of it is complete."""
        stopped = 0
        for instance in Instance.objects.select_related("profile__build__host").filter(
            observed__in=(*Instance.ALIVE, Instance.Observed.BACKOFF)
        ):
            try:
                job = request_stop(Actor.cli(), instance.profile, hold=False)
            except Refused:
                continue
            stopped += job is not None and self._finish(job, instance)
        self.stdout.write(f"{stopped} llama-server{'' if stopped == 1 else 's'} stopped.")
        if not servers_only:
            self._stop_panel()

    def _finish(self, job: Job, instance: Instance) -> bool:
        execute(job.pk)
        deadline = time.monotonic() + SECONDS
        while Job.objects.filter(pk=job.pk, state__in=Job.ACTIVE).exists():
            if time.monotonic() > deadline:
                self.stderr.write(f"{instance.profile.name} does not stop.")
                return False
            time.sleep(0.2)
        return True

    def _stop_panel(self) -> None:
        found = find_by_environ(INSTANCE, instance_mark())
        leaders = [proc for proc in find_by_environ("PANEL_ROLE", FOREGROUND) if proc in found]
        # The foreground process ends all others in order; without one (it was killed) all are asked.
        for proc in leaders or found:
            signal_proc(proc, signal.SIGTERM)
        deadline = time.monotonic() + SECONDS
        while any(map(alive, found)) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.stdout.write("The panel is stopped." if found else "No panel was running.")
