"""The live parts of the GPU page: `gpus` is its table, `hostload` what it says of the hosts themselves.

`gpus:strip` is the strip on top of each page.
"""

from jobs.live import Topic, register_topic
from jobs.services import gpus as samples
from jobs.services import hostload as loads
from jobs.topics import live, may_see
from jobs.views import gpus, hostload


def _render(role: str, arg: str) -> str:
    if arg == "strip":
        return live("jobs/_gpu_strip.html", role, gpus.strip_context())
    return live("jobs/_gpus.html", role, gpus.gpus_context())


def _render_loads(role: str, _arg: str) -> str:
    return live("jobs/_host_load.html", role, hostload.loads_context())


def register() -> None:
    """Called once from the app's registrations."""
    register_topic(Topic("gpus", frozenset({samples.EVENT}), may_see, _render))
    register_topic(Topic("hostload", frozenset({loads.EVENT}), may_see, _render_loads))
