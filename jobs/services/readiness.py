"""Whether this host is ready to serve models: what it tells, its toolchain and its cards, judged."""

import time
from dataclasses import replace

from django.conf import settings
from django.db import DatabaseError

from jobs.adapters.hostlink import link
from jobs.domain.gpu import marked
from jobs.domain.readiness import Facts, Finding, grouped
from jobs.services import gpus
from jobs.services.hosts import local_host
from jobs.services.toolchains import toolchain_of


def readiness() -> dict[str, list[Finding]]:
    """Return the findings on this host by group (see jobs.domain.readiness.GROUPS)."""
    return grouped(_facts())


def _facts() -> Facts:
    found = link(settings.PANEL_HOST).readiness_facts()
    try:
        found = replace(found, toolchain=toolchain_of(local_host()))
        sample = gpus.sample_here()
    except DatabaseError:  # not made yet, or not there: the host can be looked at all the same
        return found
    if sample is None:
        return found
    # Runs may have begun or ended since the agent marked the programs on the cards.
    current = marked(sample.gpus, gpus.own_pids(settings.PANEL_HOST))
    return replace(found, gpus=current, stale=sample.stale_since(time.time()) is not None)
