"""A log shipper alone: `python -m tests.e2e.ship REDIS_URL RUNS_FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from redis.asyncio import Redis

from jobs.runtime.shipper import LogShipper


async def main(url: str, runs: Path) -> None:
    """Ship the logs of all runs without a file `ended` until killed."""
    client = Redis.from_url(url, socket_timeout=15, socket_connect_timeout=1)

    def active() -> set[str]:
        return {log.parent.name for log in runs.glob("*/log") if not (log.parent / "ended").exists()}

    await LogShipper(lambda: client, runs).run(active)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
