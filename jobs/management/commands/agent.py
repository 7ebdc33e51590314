"""manage.py agent: the host agent."""

import asyncio
import os
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from controlpanel.lib.redis import async_client
from jobs.runtime.agent import STOP, AlreadyRunning, end_by, hold_lock, run_agent
from jobs.runtime.duties import duties
from jobs.runtime.shipper import LogShipper
from jobs.services.watch import running_ids

KEPT = 60  # seconds


class Command(BaseCommand):
    """Ships logs, watches runs and servers, reconciles; one per host."""

    help = "Run the host agent in the foreground."

    def handle(self, *args: Any, **options: Any) -> None:
        """Hold the lock and run until SIGTERM."""
        try:
            lock = hold_lock(settings.PANEL_DATA / "agent.lock")
        except AlreadyRunning as error:
            raise CommandError(f"another agent runs already (it holds {error})") from error
        try:
            asyncio.run(self._run())
        finally:
            os.close(lock)

    async def _run(self) -> None:
        # Its threads keep their connections: opening one costs more than what a duty asks.
        connection.settings_dict["CONN_MAX_AGE"] = KEPT
        shipper = LogShipper(async_client, settings.PANEL_DATA / "runs")
        stopped = await run_agent(duties(), lambda: asyncio.create_task(shipper.run(running_ids)))
        end_by(stopped + STOP)
