"""What the GPU page shows of the hosts themselves: processor, main memory, swap, disk and load."""

import time
from typing import Any

from django.utils.translation import gettext as _

from jobs.domain.hostload import HostLoad, LoadSample
from jobs.models import Host
from jobs.services.hostload import latest_loads
from jobs.views.measures import UNKNOWN, bar, gib, moment, pair, unit


def loads_context() -> dict[str, Any]:
    """All hosts with their load; `loads_known` is False when Redis does not answer."""
    found = latest_loads()
    now = time.time()
    loads = [_shown(host, sample, now) for host, sample in found or ()]
    return {"loads_known": found is not None, "loads": loads}


def _shown(host: Host, sample: LoadSample | None, now: float) -> dict[str, Any]:
    load = HostLoad() if sample is None else sample.load.rounded()
    since = None if sample is None else sample.stale_since(now)
    used, total = load.memory_used_mib, load.memory_total_mib
    return {
        "host": host,
        "sampled": sample is not None,
        "stale": None if since is None else moment(since),
        "cpu": unit(load.cpu, "%"),
        "memory": pair(gib(used), gib(total), "GiB"),
        "bar": bar(used, total),
        "swap": _swap(load),
        "disk": pair(gib(load.disk_free_mib), gib(load.disk_total_mib), "GiB"),
        "load": _averages(load),
        "cores": UNKNOWN if load.cores is None else str(load.cores),
    }


def _swap(load: HostLoad) -> str:
    if load.swap_total_mib == 0:
        return _("none")
    return pair(gib(load.swap_used_mib), gib(load.swap_total_mib), "GiB")


def _averages(load: HostLoad) -> str:
    averages = (load.load_1m, load.load_5m, load.load_15m)
    if all(average is None for average in averages):
        return UNKNOWN
    return " / ".join(UNKNOWN if average is None else f"{average:.2f}" for average in averages)
