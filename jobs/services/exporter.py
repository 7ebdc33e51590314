"""Metrics for a monitoring system: what the apps export, gathered at each request, in Prometheus' formats."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from jobs.domain.exported import Families, Family, truth
from jobs.domain.gpu import Sample
from jobs.domain.hostload import LoadSample
from jobs.models import Host
from jobs.services.gpus import latest
from jobs.services.hostload import latest_loads

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger = logging.getLogger(__name__)

DISTRIBUTION = "llamacpp-control-panel"


@dataclass(frozen=True)
class Scrape:
    """What one request has read for all exporters: the samples of all hosts, None when Redis is silent."""

    now: float
    hosts: list[Host]
    gpus: list[tuple[Host, Sample | None]] | None
    loads: list[tuple[Host, LoadSample | None]] | None
    families: Families


Export = Callable[[Scrape], None]

_exporters: list[Export] = []


def register_exporter(export: Export) -> None:
    """Name a function that adds families to a scrape, with a fixed number of queries."""
    _exporters.append(export)


def gather() -> list[Family]:
    """Return what is known now; a part that fails is logged and counted, and keeps no other from its turn."""
    scrape = Scrape(time.time(), list(Host.objects.all()), latest(), latest_loads(), Families())
    export_panel(scrape)
    failed = 0
    for export in _exporters:
        try:
            export(scrape)
        except Exception:
            failed += 1
            logger.exception("%s", export.__name__)
    lacking = "Parts of these metrics that could not be read: the panel's log says why."
    scrape.families.gauge("scrape_failures", lacking, {}, failed)
    return scrape.families.found()


def export_panel(scrape: Scrape) -> None:
    """Add what the panel says of itself."""
    if number := _version():
        scrape.families.info("info", "The version of the panel.", {"version": number})
    answers = scrape.gpus is not None and scrape.loads is not None
    scrape.families.gauge("redis_up", "Whether live samples can be read (Redis).", {}, truth(answers))


def rendered(families: list[Family], accept: str) -> tuple[bytes, str]:
    """Return families as text with its content type; OpenMetrics when the Accept header prefers it."""
    # It costs 150 ms to load, in which no page waits.
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

    class Gathered(Collector):
        def collect(self) -> "Iterator[Metric]":
            return map(_metric, families)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Gathered())
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _metric(family: Family) -> "Metric":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    if family.kind == "info":
        info = InfoMetricFamily(family.name.removesuffix("_info"), family.help)
        for values in family.series:
            info.add_metric([], dict(zip(family.labels, values, strict=True)))
        return info
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for values, value in family.series.items():
        metric.add_metric(values, value)
    return metric


@cache
def _version() -> str | None:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from a folder that was never installed
        return None
