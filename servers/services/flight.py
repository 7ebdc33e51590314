"""How many requests a server is answering at this moment."""

import json
from http import HTTPStatus

from jobs.adapters.hostlink import link
from jobs.adapters.loopback import ServerUnreachable
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
    try:
        reply = await link(endpoint.host).ask_server(endpoint, "/slots", SECONDS)
        return busy_slots(json.loads(reply.body)) if reply.status == HTTPStatus.OK else None
    except (ServerUnreachable, ValueError):
        return None
