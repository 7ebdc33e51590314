"""Meters of running servers: what the agent publishes of them, and what pages and alerts read."""

from jobs.services.gpus import newest
from servers.domain.meter import ServerMeter, loaded

EVENT = "meter"  # its key is the host's slug: something shown of its servers changed


def stream_of(host_slug: str) -> str:
    """Return the name of a host's stream; its one entry has the meters of its servers in `data`."""
    return f"meter:{host_slug}"


def latest_meters() -> dict[int, ServerMeter] | None:
    """Return the last meter of each running server by key of its profile; None without Redis.

    A meter may be old: compare its time with STALE_AFTER.
    """
    found = newest(stream_of)
    if found is None:
        return None
    meters: dict[int, ServerMeter] = {}
    for _host, data in found:
        try:
            meters.update(loaded(data) if data else {})
        except (TypeError, ValueError):  # written by something else
            continue
    return meters
