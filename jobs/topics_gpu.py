"""The live parts about GPUs: `gpus` is the page's table, `gpus:strip` the strip on top of each page."""

from typing import Any

from jobs.live import Topic, register_topic
from jobs.services.gpus import EVENT
from jobs.topics import live, may_see
from jobs.views import gpus


def _render(user: Any, arg: str) -> str:
    if arg == "strip":
        return live("jobs/_gpu_strip.html", user, gpus.strip_context())
    return live("jobs/_gpus.html", user, gpus.gpus_context())


def register() -> None:
    """Called once from the app's registrations."""
    register_topic(Topic("gpus", frozenset({EVENT}), may_see, _render))
