"""The page of toolchains: what each host has for building, what it lacks, the button that looks again."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, say_no
from controlpanel.lib.words import translate
from jobs.domain.buildspec import BuildInputs
from jobs.domain.cuda import names
from jobs.domain.programs import PROGRAMS, Toolchain
from jobs.domain.toolchain import warnings
from jobs.models import BuildConfig, Host, Job
from jobs.services.audit import Actor
from jobs.services.hosts import local_host
from jobs.services.toolchains import LOOK, request_look, toolchain_of


@require_safe
@role_required("viewer")
def toolchain(request: HttpRequest) -> HttpResponse:
    """Show what each host has for building."""
    local_host()
    context = {"section": "builds", "topics": "toolchain,jobs", **toolchain_context()}
    return render(request, "jobs/toolchain.html", context)


@require_POST
@role_required("operator")
def toolchain_look(request: HttpRequest) -> HttpResponse:
    """Look at the host again."""
    try:
        request_look(Actor.web(request), local_host())
    except Refused as reason:
        say_no(request, reason)
    return back(request, "toolchain")


def toolchain_context() -> dict[str, Any]:
    """All hosts with their programs, cards and findings."""
    looking = set(Job.objects.filter(kind=LOOK, state__in=Job.ACTIVE).values_list("host_id", flat=True))
    return {"hosts": [_card(host, host.pk in looking) for host in Host.objects.all()]}


def _card(host: Host, looking: bool) -> dict[str, Any]:
    found = toolchain_of(host)
    if found is None:
        return {"host": host, "found": None, "looking": looking}
    return {
        "host": host,
        "found": found,
        "looking": looking,
        "programs": [(name, found.programs.get(name)) for name in PROGRAMS],
        "gpus": [(gpu, names(gpu.arch)) for gpu in found.gpus],
        "memory": found.memory_mib * 1024 * 1024 if found.memory_mib else None,
        "backends": [_backend(found, value, word) for value, word in BuildConfig.Backend.choices],
    }


def _backend(found: Toolchain, backend: str, word: Any) -> dict[str, Any]:
    """Return what keeps builds with a backend from working on a host, or makes them worse."""
    own = found.architectures if backend == BuildConfig.Backend.CUDA else ()
    problems = warnings(found, BuildInputs("", backend=backend, architectures=own))
    errors = sum(1 for problem in problems if problem.level == "error")
    state, said = ("ready", _("works")) if not problems else ("unresponsive", _("works, with remarks"))
    if errors:
        state, said = "failed", _("cannot be built")
    return {
        "word": word,
        "state": state,
        "said": said,
        "problems": [(problem.level, translate(problem.message)) for problem in problems],
    }
