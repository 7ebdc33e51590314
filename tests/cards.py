"""Graphics cards of this host as the agent tells of them."""

from __future__ import annotations

import time

from django.conf import settings

from jobs.domain.gpu import Gpus, GpuSample, Sample
from jobs.services import gpus


def publish_cards(*cards: GpuSample, age: float = 0.0) -> None:
    """Publish a sample of these cards that is `age` seconds old."""
    sample = Sample(time.time() - age, Gpus("580.95.05", "13.0", cards))
    gpus.publish_sample(settings.PANEL_HOST, sample)
