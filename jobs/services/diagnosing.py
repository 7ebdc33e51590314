"""What the log of a run that failed shows, found by rules and kept on its row."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controlpanel.llamacpp.rule_types import Diagnosis, Evidence
from jobs.adapters.runlog import log_end
from jobs.models import Run

LOOKED_AT = 16 * 1024**2  # bytes of a log's end


def diagnose_run(
    run: Run, areas: Sequence[str], exit_code: int | None, facts: Mapping[str, object], step: str = ""
) -> list[Diagnosis]:
    """Return the causes that the end of the run's log shows, the best first, and keep them on the row.

    What is kept of each is Diagnosis.to_json() with the keys `run` and `step`.
    """
    from controlpanel.llamacpp.rules import diagnose  # its tables stay out of processes that need none

    start, text = log_end(run.pk, LOOKED_AT)
    found = [
        replace(diagnosis, evidence=_moved(diagnosis.evidence, start))
        for diagnosis in diagnose(text, areas, exit_code, facts)
    ]
    run.diagnosis = [{"run": run.pk, "step": step, **diagnosis.to_json()} for diagnosis in found]
    Run.objects.filter(pk=run.pk).update(diagnosis=run.diagnosis)
    return found


def _moved(evidence: tuple[Evidence, ...], start: int) -> tuple[Evidence, ...]:
    """Return lines of a log's end with their places in the whole log."""
    return tuple(replace(line, offset=line.offset + start) for line in evidence)
