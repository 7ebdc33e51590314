"""GPU samples: the agent's duty that takes and publishes them, and what the pages read."""

import time
from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone
from redis.exceptions import RedisError

from controlpanel.lib.redis import sync_client
from controlpanel.lib.streams import publish, publish_last
from jobs.adapters import nvml
from jobs.domain.gpu import STALE_AFTER, WITHOUT_GPU, Gpus, GpuSample, Sample, from_json, marked, to_json
from jobs.domain.series import FIELDS
from jobs.models import Host, Run
from jobs.runtime.gpus import GpuSampler
from jobs.services import history
from jobs.services.watch import with_database

EVENT = "gpus"
PAUSE = 3.0  # seconds without a further try after a failure, so that a page waits for the broker once
SOON = 1.5  # seconds after a sample in which the next one is to be expected
QUIET = 2.5  # seconds until a host without a GPU is looked at again; a sample is old after 5

_sampler = GpuSampler(nvml.read)
_shown: tuple[Gpus, float | None] | None = None  # what pages were told to show
_next_try = 0.0
_next_sample = 0.0
_waiting: set[tuple[str, str]] = set()  # what pages are told together with the next sample
_sampled_at = float("-inf")


def stream_of(host_slug: str) -> str:
    """Return the name of a host's stream; its one entry has `time` and the sample as JSON in `data`."""
    return f"gpu:{host_slug}"


def own_pids(host_slug: str) -> dict[int, str] | None:
    """Return the pids of a host's active runs with what each is about; None without the database's answer."""
    runs = Run.objects.filter(host__slug=host_slug, state__in=Run.ACTIVE, pid__isnull=False)
    try:
        found = runs.values_list("pid", "subject_kind", "subject_id")
        return {pid: f"{kind}:{key}" for pid, kind, key in found if pid is not None}
    except DatabaseError:
        return None


def ended_pids(host_slug: str) -> set[int]:
    """Return the pids of a host's runs that ended just now: its last sample may still name them."""
    since = timezone.now() - timedelta(seconds=2 * STALE_AFTER)
    ended = Run.objects.filter(host__slug=host_slug, ended_at__gte=since)
    # The number of one may have passed to another run.
    active = Run.objects.filter(host__slug=host_slug, state__in=Run.ACTIVE, pid__isnull=False)
    pids = ended.exclude(pid__in=active.values("pid")).values_list("pid", flat=True)
    return {pid for pid in pids if pid is not None}


def tell_with_samples(kind: str, key: str) -> None:
    """Publish an event with the next sample, so that a page hears once a second; at once when none comes."""
    if time.monotonic() - _sampled_at < SOON:
        _waiting.add((kind, key))
    else:
        publish(kind, key)


@with_database
def sample_gpus() -> None:
    """Read this host's GPUs and publish what they say, and what waits for that."""
    global _sampled_at
    _sample_now()
    while _waiting:
        publish(*_waiting.pop())
    _sampled_at = time.monotonic()


def _sample_now() -> None:
    """Read this host's GPUs and publish what they say; less often where there is none."""
    global _next_sample
    if time.monotonic() < _next_sample:
        return
    taken = _sampler.sample()
    if taken.gpus.problem in WITHOUT_GPU:
        _next_sample = time.monotonic() + QUIET
    record_cards(taken)
    own = own_pids(settings.PANEL_HOST) if taken.gpus.gpus else None
    publish_sample(settings.PANEL_HOST, Sample(taken.time, marked(taken.gpus, own), taken.since))


def record_cards(sample: Sample) -> None:
    """Add a sample to the history; what a driver said before it fell silent is no reading of now."""
    if sample.since is None:
        for card in sample.gpus.gpus:
            history.record(
                subject_of(card), sample.time, {name: getattr(card, name) for name in FIELDS["gpu"]}
            )


def subject_of(card: GpuSample) -> str:
    """Return the name that a card has in the history."""
    return f"gpu:{card.uuid or card.index}"


def publish_sample(host_slug: str, sample: Sample) -> None:
    """Make it the host's sample; pages are told only when it shows something new."""
    global _shown
    if not publish_last(stream_of(host_slug), sample.time, to_json(sample)):
        _shown = None
        return
    shown = (sample.gpus, sample.since)
    if shown != _shown:
        _shown = shown
        publish(EVENT, host_slug)


def sample_here() -> Sample | None:
    """Return the last sample of this host's cards; None without one, and when Redis does not answer."""
    return next((sample for host, sample in latest() or () if host.slug == settings.PANEL_HOST), None)


def latest() -> list[tuple[Host, Sample | None]] | None:
    """Return each host with its last sample, if it has any; None when Redis does not answer."""
    found = newest(stream_of)
    return None if found is None else [(host, _sample(data)) for host, data in found]


def newest(stream_of: Callable[[str], str]) -> list[tuple[Host, bytes | None]] | None:
    """Return each host with the `data` of the last entry of its stream; None when Redis does not answer."""
    global _next_try
    if time.monotonic() < _next_try:
        return None
    hosts = list(Host.objects.all())
    try:
        with sync_client().pipeline(transaction=False) as pipe:
            for host in hosts:
                pipe.xrevrange(stream_of(host.slug), count=1)
            found = pipe.execute()
    except (RedisError, OSError):
        _next_try = time.monotonic() + PAUSE
        return None
    return [
        (host, entries[0][1].get(b"data") if entries else None)
        for host, entries in zip(hosts, found, strict=True)
    ]


def _sample(data: bytes | None) -> Sample | None:
    try:
        return None if data is None else from_json(data)
    except ValueError:  # written by something else
        return None
