"""Why a server ended: the rules over its log, with what the panel knows of how it was started."""

from typing import Any

from controlpanel.lib.errors import Refused
from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.memory_flags import dialect_of
from controlpanel.llamacpp.rule_types import Diagnosis
from jobs.models import Run
from jobs.services.builds import capabilities_of
from jobs.services.diagnosing import diagnose_run
from servers.models import Incident, Instance
from servers.services import incidents
from servers.services.revisions import data_as_started

STARTING = ("launch", "gpu", "host", "container")
WITHOUT_MTP = Message(N_("The server is ready, but it drafts no tokens by MTP."))
RUNNING = ("runtime", "gpu", "host", "container")


def why_it_failed(instance: Instance, run: Run) -> list[Diagnosis]:
    """Return the causes of a server's end, the best first, after they were kept on its run."""
    ready = any(step["key"] == "ready" for step in instance.steps)
    step = "running" if ready else str(instance.steps[-1]["key"]) if instance.steps else ""
    return diagnose_run(run, RUNNING if ready else STARTING, run.exit_code, facts_of(instance, run), step)


def note_missing_mtp(instance: Instance) -> None:
    """Keep once why a server that was to draft tokens by MTP is ready without it, as far as its log says."""
    run, kind = instance.run, Incident.Kind.NO_MTP
    if run is None or Incident.objects.filter(run=run, kind=kind).exists():
        return
    found = diagnose_run(run, ("mtp",), None, facts_of(instance, run), "mtp")
    title = found[0].title if found else WITHOUT_MTP
    incidents.note(instance, kind, title, diagnoses=found)


def facts_of(instance: Instance, run: Run) -> dict[str, Any]:
    """Return what the rules may know; what is not known any more is left out."""
    found: dict[str, Any] = {
        "port": instance.port,
        "n_ctx": instance.facts.get("n_ctx"),
        "stop_requested": run.stop_requested,
        "over_memory_limit_mib": run.over_memory.get("limit_mib"),
        "over_memory_used_mib": run.over_memory.get("used_mib"),
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
