"""Measuring by llama-fit-params, where a build has it, what a server of some settings would take."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.text import N_, Message, Worded
from controlpanel.lib.words import shown, stored, translate
from controlpanel.llamacpp.capabilities import capabilities_from
from controlpanel.llamacpp.command import Line
from controlpanel.llamacpp.fitparams import TOOL, measure_args, parse_measured
from controlpanel.llamacpp.problems import errors
from controlpanel.llamacpp.serverlog import last_errors
from jobs.adapters.probe import ask_binary
from jobs.models import Build, Job
from jobs.registry import Runner
from jobs.services.audit import Actor
from jobs.services.fits import total_of
from jobs.services.jobs import Claimed, create_job
from servers.services.estimates import prepare
from servers.services.profiles import ProfileData, render_data

MEASURE = "profile.measure"
SECONDS = 60.0  # the tool reads the header only, but a slow disk or driver takes its time
NO_TOOL = N_(
    "There is no llama-fit-params beside this build's llama-server. Build it too: tick it among the "
    "programs of the build config."
)


def request_measure(actor: Actor, data: ProfileData) -> Job:
    """Ask the build's host to measure; Refused while the settings have errors. Nothing is stored with it."""
    rendered = render_data(data)
    wrong = errors(rendered.problems)
    if wrong:
        raise Refused(translate(wrong[0].message), wrong[0].field)
    lines = [[line.flag, line.value, line.source] for line in rendered.lines]
    mine = Job.objects.filter(kind=MEASURE, actor=actor.user, state__in=Job.ACTIVE)
    if mine.exists():
        raise Refused(_("Your last measurement is not ready yet."))
    params = {"lines": lines, "environment": data.environment, "estimated": _estimated(data)}
    return create_job(actor, MEASURE, data.build.host, "build", data.build.pk, params)


class MeasureRunner(Runner):
    """Runs the tool and keeps in the job's params what it printed: {"rows", "left"}, or why it did not."""

    def run(self, job: Claimed) -> None:
        """Measure what the job's lines say, for the job's build; a tool that says no is an answer too."""
        build = Build.objects.filter(pk=job.row.subject_id).first()
        if build is None:
            return
        job.step("measure")
        try:
            job.remember(**_measure(Path(build.path).parent / TOOL, job.params))
        except Worded as error:
            job.remember(refused=stored(error.message))


def _measure(tool: Path, params: Mapping[str, Any]) -> dict[str, Any]:
    if not tool.is_file():
        raise Worded(NO_TOOL)
    known = capabilities_from(ask_binary([str(tool), "--help"]).stdout)
    args, left = measure_args([Line(*line) for line in params["lines"]], known)
    answer = ask_binary([str(tool), *args], SECONDS, params["environment"])
    rows = parse_measured(answer.stdout) if answer.code == 0 else []
    if not rows:
        said = last_errors(answer.stderr, 2) or [str(answer.code)]
        raise Worded(N_("llama-fit-params did not measure: %(why)s"), why="\n".join(said))
    return {"rows": [vars(row) for row in rows], "left": left}


def measured(job: Job) -> dict[str, Any] | None:
    """Return {"rows", "left"} of a measurement that has ended well, None before; Refused when it did not.

    A row is {name, model, context, compute} in MiB, with `estimate`: the same three as they were estimated.
    """
    if "refused" in job.params:
        raise Refused(shown(job.params["refused"]))
    if "rows" not in job.params:
        if job.state in Job.TERMINAL:
            raise Refused(job.error_text or _("The measurement was %(state)s.") % {"state": job.word})
        return None
    estimated, rows = job.params["estimated"], job.params["rows"]
    cards = iter(estimated["cards"] if len(estimated["cards"]) == len(rows) - 1 else ())
    for row in rows:
        row["estimate"] = estimated["host"] if row["name"] == "Host" else next(cards, None)
    return {"rows": rows, "left": job.params["left"]}


def _estimated(data: ProfileData) -> dict[str, Any]:
    """Return the estimate in the tool's words: {"cards": [sizes], "host": sizes}, both empty without one."""
    prepared = prepare(data)
    found = prepared if isinstance(prepared, Message) else prepared.estimate()
    if isinstance(found, Message):
        return {"cards": [], "host": None}
    return {"cards": [_sizes(fit.terms) for fit in found.devices], "host": _sizes(found.host)}


def _sizes(terms: Mapping[str, float | None]) -> dict[str, int | None]:
    """Return the terms that the tool measures in bytes, None where one is not known."""
    groups = {"model": ("weights",), "context": ("kv", "recurrent"), "compute": ("compute",)}
    return {key: total_of([terms.get(name, 0.0) for name in names]) for key, names in groups.items()}
