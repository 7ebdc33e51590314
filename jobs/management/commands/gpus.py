"""manage.py gpus: the NVIDIA cards of this host as they are now."""

from dataclasses import asdict
from typing import Any

from django.conf import settings

from controlpanel.lib.cli import JsonCommand
from jobs.adapters import nvml
from jobs.domain.gpu import marked
from jobs.runtime.gpus import GpuSampler
from jobs.services.gpus import own_pids

SECONDS = 10.0


class Command(JsonCommand):
    """Asks the driver itself, without the agent; gives up after 10 s."""

    help = "Show the NVIDIA cards of this host."

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return {driver, cuda, gpus, error, remedy}; a value that is not known is null."""
        found = GpuSampler(nvml.read, SECONDS).sample().gpus
        cards = marked(found, own_pids(settings.PANEL_HOST)).gpus if found.gpus else ()
        return {
            "driver": found.driver,
            "cuda": found.cuda,
            "gpus": [asdict(card) for card in cards],
            "error": str(found.error) if found.error else None,
            "remedy": str(found.remedy) if found.remedy else None,
        }

    def text(self, value: dict[str, Any]) -> str:
        """One line per card and process."""
        lines = [f"driver {_known(value['driver'])}, CUDA {_known(value['cuda'])}"] if value["gpus"] else []
        for card in value["gpus"]:
            lines.append(
                f"{card['index']}  {_known(card['name'])}  "
                f"{_known(card['memory_used_mib'])} / {_known(card['memory_total_mib'])} MiB  "
                f"{_known(card['utilization'])} %  {_known(card['temperature'])} °C  "
                f"{_known(card['power_w'])} / {_known(card['power_limit_w'])} W"
                + (f"  {card['error']}" if card["error"] else "")
            )
            lines += [
                f"   pid {process['pid']}  {_known(process['name'])}  {_known(process['memory_mib'])} MiB"
                + ("  (this panel)" if process["ours"] else "")
                for process in card["processes"] or ()
            ]
        lines += [value[key] for key in ("error", "remedy") if value[key]]
        return "\n".join(lines)


def _known(value: object) -> object:
    return "–" if value is None else value
