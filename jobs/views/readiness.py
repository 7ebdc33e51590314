"""The page of a host's readiness: what was found, why it matters, and the commands a person may run."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.words import translate
from jobs.domain.readiness import GROUPS, STATE_WORDS, Finding, State
from jobs.services.hosts import local_host
from jobs.services.readiness import readiness

COLOURS: dict[State, str] = {"good": "ready", "look": "incomplete", "bad": "failed", "unknown": "unknown"}


@require_safe
@role_required("viewer")
def host_readiness(request: HttpRequest) -> HttpResponse:
    """Show whether this host is ready to serve models; it is read anew each time."""
    found = readiness()
    states = [finding.state for findings in found.values() for finding in findings]
    context = {
        "section": "gpus",
        "host": local_host(),
        "groups": [_group(key, findings) for key, findings in found.items()],
        "counts": [
            (COLOURS[state], _(STATE_WORDS[state]), states.count(state))
            for state in STATE_WORDS
            if states.count(state)
        ],
    }
    return render(request, "jobs/readiness.html", context)


def _group(key: str, findings: list[Finding]) -> dict[str, Any]:
    name, _judges, empty = GROUPS[key]
    return {
        "key": key,
        "name": translate(name),
        "empty": translate(empty),
        "rows": [_row(finding) for finding in findings],
    }


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "key": finding.key,
        "state": COLOURS[finding.state],
        "word": _(STATE_WORDS[finding.state]),
        "title": translate(finding.title),
        "value": [translate(line) for line in finding.value],
        "why": translate(finding.why),
        "commands": finding.commands,
        "folded": finding.state == "good",
    }
