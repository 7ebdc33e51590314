"""How many requests a server is answering at this moment."""

import json
from http import HTTPStatus

from jobs.adapters.hostlink import Endpoint, link
from jobs.adapters.loopback import ServerUnreachable
from servers.domain.facts import busy_slots
from servers.models import Instance, ServerProfile, Turn
from servers.services.instances import Observed, endpoint_of

SECONDS = 1.0
ASKERS = 20
ANSWERS = (Observed.READY, Observed.UNRESPONSIVE)


async def in_flight(instance: Instance) -> int | None:
    """Return the number of requests in flight as the server says within a second; None when it does not."""
    endpoint = endpoint_of(instance)
    if instance.observed not in ANSWERS:
        return 0
    return None if endpoint is None else await requests_at(endpoint)


async def requests_at(endpoint: Endpoint, seconds: float = SECONDS) -> int | None:
    """Return how many requests the server there works on, None when it does not say so in that time."""
    try:
        reply = await link(endpoint.host).ask_server(endpoint, "/slots", seconds)
        return busy_slots(json.loads(reply.body)) if reply.status == HTTPStatus.OK else None
    except (ServerUnreachable, ValueError):
        return None


def asked_by(profile: ServerProfile) -> list[str]:
    """Return who waits for an answer of the playground, at most ASKERS; what they ask is their own."""
    rows = Turn.objects.filter(conversation__profile=profile, state=Turn.State.STREAMING)
    name = "conversation__user__username"
    return list(rows.order_by(name).values_list(name, flat=True).distinct()[:ASKERS])
