"""What is exported of jobs, downloads and agents: rows, counted by the database."""

from collections import Counter, defaultdict
from datetime import datetime

from django.db.models import Count, Min

from jobs.domain.exported import Families, Labels
from jobs.models import Download, Job
from jobs.registry import kind_of
from jobs.services.downloads import LOAD
from jobs.services.exporter import Scrape


def export_agents(scrape: Scrape) -> None:
    """Add when the agent of each host was last heard of."""
    for host in scrape.hosts:
        seen, labels = host.agent_seen_at, {"host": host.slug}
        age = None if seen is None else max(scrape.now - seen.timestamp(), 0.0)
        heard = "Time since the host's agent was heard of."
        scrape.families.gauge("agent_heartbeat_age_seconds", heard, labels, age)


def export_jobs(scrape: Scrape) -> None:
    """Add how many jobs there are by kind and state, and what waits in the queues."""
    rows = Job.objects.order_by().values_list("host__slug", "kind", "state")
    waiting: Counter[tuple[str, str]] = Counter()
    oldest: dict[tuple[str, str], datetime] = {}
    for host, kind, state, count, first in rows.annotate(count=Count("pk"), first=Min("created_at")):
        labels = {"host": host, "kind": kind, "state": state}
        scrape.families.gauge("jobs", "Jobs of this kind in this state.", labels, count)
        known = kind_of(kind)
        if state == Job.State.QUEUED and known is not None:
            key = (host, known.queue)
            waiting[key] += count
            oldest[key] = min(first, oldest.get(key, first))
    for slug in (host.slug for host in scrape.hosts):
        for queue in ("work", "control"):
            labels, first = {"host": slug, "queue": queue}, oldest.get((slug, queue))
            scrape.families.gauge("queue_jobs", "Jobs that wait.", labels, waiting[slug, queue])
            age = 0.0 if first is None else max(scrape.now - first.timestamp(), 0.0)
            scrape.families.gauge("queue_oldest_age_seconds", "How long the oldest waits.", labels, age)


def export_downloads(scrape: Scrape) -> None:
    """Add how many downloads there are by state, and what those under way have of their files."""
    rows = Download.objects.order_by().values_list("host__slug", "state").annotate(count=Count("pk"))
    for slug, state, count in rows:
        labels = {"host": slug, "state": state}
        scrape.families.gauge("downloads", "Downloads in this state.", labels, count)
    running = Job.objects.filter(kind=LOAD, state=Job.State.RUNNING).order_by()
    moving: dict[str, Counter[str]] = defaultdict(Counter)
    for slug, progress in running.values_list("host__slug", "progress"):
        for key in ("done", "total", "speed"):
            moving[slug][key] += progress.get(key) or 0
    for host in scrape.hosts:
        _export_moving(scrape.families, {"host": host.slug}, moving[host.slug])


def _export_moving(families: Families, labels: Labels, sums: Counter[str]) -> None:
    families.gauge("downloads_received_bytes", "Received of downloads under way.", labels, sums["done"])
    families.gauge("downloads_size_bytes", "Known size of downloads under way.", labels, sums["total"])
    families.gauge("downloads_bytes_per_second", "Speed of downloads under way.", labels, sums["speed"])
