"""Why a server ended: the rules over its log, with what the panel knows of how it was started."""

from typing import Any

from controlpanel.lib.errors import Refused
from controlpanel.llamacpp.memory_flags import dialect_of
from controlpanel.llamacpp.rule_types import Diagnosis
from jobs.models import Run
from jobs.services.builds import capabilities_of
from jobs.services.diagnosing import diagnose_run
from servers.models import Instance
from servers.services.revisions import data_as_started

STARTING = ("launch", "gpu", "host", "container")
RUNNING = ("runtime", "gpu", "host", "container")


def why_it_failed(instance: Instance, run: Run) -> list[Diagnosis]:
    """Return the causes of a server's end, the best first, after they were kept on its run."""
    ready = any(step["key"] == "ready" for step in instance.steps)
    step = "running" if ready else str(instance.steps[-1]["key"]) if instance.steps else ""
    return diagnose_run(run, RUNNING if ready else STARTING, run.exit_code, _facts(instance, run), step)


def _facts(instance: Instance, run: Run) -> dict[str, Any]:
    """Return what the rules may know; what is not known any more is left out."""
    found: dict[str, Any] = {
        "port": instance.port,
        "n_ctx": instance.facts.get("n_ctx"),
        "stop_requested": run.stop_requested,
    }
    try:
        data = data_as_started(instance)
    except Refused:
        data = None
    if data is not None:
        caps = capabilities_of(data.build)
        found |= {
            "settings": data.settings,
            "dialect": dialect_of(caps),
            "mtp_value": caps.mtp_value,
            "port_fixed": data.port is not None,
            "mmproj": data.mmproj is not None,
            "gpus": len(caps.devices) or None,
            "model_mtp_heads": data.model.mtp_heads,
        }
    return {key: value for key, value in found.items() if value is not None}
