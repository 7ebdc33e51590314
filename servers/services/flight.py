"""How many requests a server is answering at this moment."""

import asyncio

import httpx

from jobs.adapters.hostlink import link, server_client
from servers.domain.facts import busy_slots
from servers.models import Instance
from servers.services.instances import Observed, endpoint_of

SECONDS = 1.0
ANSWERS = (Observed.READY, Observed.UNRESPONSIVE)


async def in_flight(instance: Instance) -> int | None:
    """Return the number of requests in flight as the server says within a second; None when it does not."""
    endpoint = endpoint_of(instance)
    if instance.observed not in ANSWERS:
        return 0
    if endpoint is None:
        return None
    server = link(endpoint.host).open_server(endpoint)
    try:
        async with asyncio.timeout(SECONDS):
            answer = await server_client().get(f"{server.base_url}/slots", headers=server.headers)
            return busy_slots(answer.json()) if answer.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, TimeoutError, ValueError):
        return None
