"""What is exported of servers: their state, what is measured of them, and what went wrong."""

from collections import Counter
from collections.abc import Iterable

from django.db.models import Count, Max

from jobs.domain.exported import Families, Labels, truth
from jobs.domain.gpu import MIB, GpuProcess
from jobs.services.exporter import Scrape
from servers.domain.meter import STALE_AFTER, ServerMeter
from servers.models import Incident, Instance
from servers.services.metering import latest_meters

READ = (
    *("desired", "observed", "attempts", "ready_at", "profile__name", "profile__slug"),
    *("profile__build__name", "profile__build__host__slug", "profile__model__name"),
)
MOST_SLOTS = 64  # of a server that are exported one by one
# name of a total: name of the metric, what it counts
TOTALS = {
    "requests": ("requests", "Requests since the server started."),
    "prompt_tokens": ("prompt_tokens", "Prompt tokens read since the server started."),
    "predicted_tokens": ("generated_tokens", "Tokens generated since the server started."),
    "prompt_seconds": ("prompt_seconds", "Time spent on prompts since the server started."),
    "predicted_seconds": ("generation_seconds", "Time spent on generation since the server started."),
    "drafted": ("drafted_tokens", "Tokens drafted (MTP) since the server started."),
    "accepted": ("accepted_tokens", "Drafted tokens accepted since the server started."),
}


def export_servers(scrape: Scrape) -> None:
    """Add every server with its state; what is measured of it only while that is new."""
    meters = latest_meters() or {}
    rows = Instance.objects.select_related("profile__build__host", "profile__model").order_by("pk")
    memory = _memory(scrape)
    for row in rows.only(*READ):
        profile = row.profile
        labels = {"host": profile.build.host.slug, "server": profile.name, "slug": profile.slug}
        told = {**labels, "build": profile.build.name, "model": profile.model.name}
        scrape.families.info("server_info", "What the server's profile says.", told)
        _export_state(scrape.families, labels, row)
        for (gpu, uuid), size in memory.get(f"instance:{row.pk}", {}).items():
            held = "Memory of the card that the server holds."
            where = {**labels, "gpu": gpu, "uuid": uuid}
            scrape.families.gauge("server_gpu_memory_bytes", held, where, size)
        meter = meters.get(profile.pk)
        if meter is None or row.observed in Instance.RESTING:
            continue
        age = max(scrape.now - meter.time, 0.0)
        scrape.families.gauge("server_sample_age_seconds", "Age of the last measurement.", labels, age)
        if age <= STALE_AFTER:
            _export_meter(scrape.families, labels, meter)


def _export_state(families: Families, labels: Labels, row: Instance) -> None:
    for state in Instance.Observed.values:
        is_it = truth(row.observed == state)
        families.gauge("server_state", "1 for the state that it is in.", {**labels, "state": state}, is_it)
    up = truth(row.observed == Instance.Observed.READY)
    families.gauge("server_up", "Whether the server answers requests.", labels, up)
    wanted = truth(row.desired == Instance.Desired.RUNNING)
    families.gauge("server_desired_up", "Whether the server should run.", labels, wanted)
    again = "Starts by the panel itself since it was last stable."
    families.gauge("server_restart_attempts", again, labels, row.attempts)
    if row.ready_at is not None and row.observed in (Instance.Observed.READY, Instance.Observed.UNRESPONSIVE):
        since = row.ready_at.timestamp()
        families.gauge("server_ready_timestamp_seconds", "When it became ready.", labels, since)


def _export_meter(families: Families, labels: Labels, meter: ServerMeter) -> None:
    def gauge(name: str, help: str, value: float | None) -> None:
        families.gauge(f"server_{name}", help, labels, value)

    gauge("generation_tokens_per_second", "Tokens generated, over all slots.", meter.predicted_tps)
    gauge("prompt_tokens_per_second", "Prompt tokens read, over all slots.", meter.prompt_tps)
    gauge("requests_busy", "Requests that are worked on.", meter.busy)
    gauge("requests_waiting", "Requests that wait for a slot.", meter.waiting)
    gauge("context_used_tokens", "Tokens in the context of all slots.", meter.context_used)
    gauge("draft_acceptance_ratio", "Share of drafted tokens accepted of late.", meter.acceptance)
    gauge("draft_step_tokens", "Tokens per step with drafts.", meter.mean_length)
    for slot in meter.slots[:MOST_SLOTS]:
        of_slot = {**labels, "slot": str(slot.id)}
        families.gauge("server_slot_context_used_tokens", "Context used of a slot.", of_slot, slot.used)
        families.gauge("server_slot_context_size_tokens", "Context size of a slot.", of_slot, slot.size)
        families.gauge("server_slot_busy", "Whether the slot works.", of_slot, truth(slot.busy))
    for position, share in enumerate(meter.per_position or (), 1):
        where = {**labels, "position": str(position)}
        accepted = "Share accepted at this position of the draft."
        families.gauge("server_draft_position_acceptance_ratio", accepted, where, share)
    for key, (name, help) in TOTALS.items():
        families.counter(f"server_{name}_total", help, labels, meter.totals.get(key))


def export_incidents(scrape: Scrape) -> None:
    """Add how many incidents are kept by kind, and when the last one was."""
    # Only the newest are kept, so their number may fall: it is no counter.
    rows = Incident.objects.order_by().values_list("kind").annotate(count=Count("pk"), last=Max("last_at"))
    found = {kind: (count, last) for kind, count, last in rows}
    for kind in Incident.Kind.values:
        count, last = found.get(kind, (0, None))
        labels = {"kind": kind}
        scrape.families.gauge("incidents", "Incidents of this kind that are kept.", labels, count)
        moment = None if last is None else last.timestamp()
        seen = "When an incident of this kind was last seen."
        scrape.families.gauge("incident_last_timestamp_seconds", seen, labels, moment)


def _memory(scrape: Scrape) -> dict[str, dict[tuple[str, str], float]]:
    """Return the bytes that each run's subject holds by (index, uuid) of the card."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    for _host, sample in scrape.gpus or ():
        if sample is None or sample.stale_since(scrape.now) is not None:
            continue
        for card in sample.gpus.gpus:
            for subject, size in _held(card.processes or ()).items():
                found.setdefault(subject, {})[str(card.index), card.uuid or ""] = size
    return found


def _held(processes: Iterable[GpuProcess]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for process in processes:
        if process.subject and process.memory_mib is not None:
            sizes[process.subject] += process.memory_mib * MIB
    return sizes
