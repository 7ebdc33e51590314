"""How busy hosts are: the agent's duty that reads and publishes it, and what the page reads."""

import time
from dataclasses import asdict
from functools import cache
from pathlib import Path

from django.conf import settings

from controlpanel.lib.streams import publish_last
from jobs.adapters.hostload import HostReader
from jobs.domain.hostload import HostLoad, LoadSample, from_json, to_json
from jobs.models import Host
from jobs.services import history
from jobs.services.gpus import newest, tell_with_samples

EVENT = "hostload"
SUBJECT = "host"  # in the history

_shown: HostLoad | None = None  # what pages were told to show


def stream_of(host_slug: str) -> str:
    """Return the name of a host's stream; its one entry has `time` and the sample as JSON in `data`."""
    return f"hostload:{host_slug}"


@cache
def _reader() -> HostReader:
    return HostReader(Path(settings.PANEL_DATA))


def sample_host() -> None:
    """Read how busy this host is, note it in its history and publish it."""
    sample = LoadSample(time.time(), _reader().read())
    history.record(SUBJECT, sample.time, asdict(sample.load))
    publish_load(settings.PANEL_HOST, sample)


def publish_load(host_slug: str, sample: LoadSample) -> None:
    """Make it the host's sample; pages are told only when it shows something new."""
    global _shown
    if not publish_last(stream_of(host_slug), sample.time, to_json(sample)):
        _shown = None
        return
    shown = sample.load.rounded()
    if shown != _shown:
        _shown = shown
        tell_with_samples(EVENT, host_slug)


def latest_loads() -> list[tuple[Host, LoadSample | None]] | None:
    """Return each host with its last sample, if it has any; None when Redis does not answer."""
    found = newest(stream_of)
    return None if found is None else [(host, _sample(data)) for host, data in found]


def _sample(data: bytes | None) -> LoadSample | None:
    try:
        return None if data is None else from_json(data)
    except ValueError:  # written by something else
        return None
