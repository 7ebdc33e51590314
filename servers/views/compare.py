"""The page that compares two builds and tells which profiles the difference touches."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count
from django.db.models.functions import Lower
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.words import translate
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.compare import Comparison, Pair, Values, compare
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.problems import Problem
from jobs.models import Build
from jobs.services.builds import capabilities_of
from servers.services.touched import Touched, touched_profiles

FIELDS = {
    "extra_args": gettext_lazy("Extra arguments"),
    "build": gettext_lazy("Build"),
    "model": gettext_lazy("Model"),
    "mmproj": gettext_lazy("Vision projector"),
    "port": gettext_lazy("Port"),
}
GONE = gettext_lazy("There is no build with this number, or no longer. Choose from the lists.")
LOADING = {"load-mode": ("--load-mode",), "mmap": ("--no-mmap", "--mlock")}


@dataclass(frozen=True)
class Fact:
    """One row of the table of facts; `shared` counts what both builds list, None for a single value."""

    label: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    differs: bool
    shared: int | None = None


@require_safe
@role_required("viewer")
def build_compare(request: HttpRequest) -> HttpResponse:
    """Compare the builds `old` and `new`; without `old` the one that most profiles use."""
    builds = list(_builds())
    notes: list[str] = []
    old = _chosen(request.GET.get("old", ""), builds, notes)
    new = _chosen(request.GET.get("new", ""), builds, notes)
    if new and not request.GET.get("old"):
        old = _most_used(builds, new)
    context: dict[str, Any] = {"section": "builds", "topics": "jobs", "builds": builds}
    if old and new and old.pk != new.pk:
        context |= _compared(old, new)
    elif not notes:
        notes.append(_what_to_choose(old, new))
    context |= {"old": old, "new": new, "notes": notes}
    return render(request, "servers/compare.html", context, status=404 if str(GONE) in notes else 200)


def _builds() -> Any:
    """Return the builds that have told what they can do, without all of that."""
    rows = Build.objects.exclude(capabilities={}).defer("capabilities")
    return rows.annotate(users=Count("profiles")).order_by(Lower("name"))


def _chosen(text: str, builds: list[Build], notes: list[str]) -> Build | None:
    """Return the build with this number, None with a note when there is none to compare."""
    number = whole(text)
    found = next((build for build in builds if build.pk == number), None)
    if found is None and text:
        untold = Build.objects.filter(pk=number).first() if number else None
        note = str(GONE)
        if untold:
            note = _("The build %(name)s has not told yet what it can do: it is %(state)s. Probe it first.")
            note %= {"name": untold.name, "state": untold.word}
        if note not in notes:
            notes.append(note)
    return found


def _most_used(builds: list[Any], new: Build) -> Build | None:
    used = [build for build in builds if build.users and build.pk != new.pk]
    return max(used, key=lambda build: build.users, default=None)


def _what_to_choose(old: Build | None, new: Build | None) -> str:
    if old and new:
        return _("This is the same build twice: choose two different ones.")
    if old or new:
        return _("Choose the build to compare it with.")
    return _("Choose the build that your profiles use now and the one that you think of using.")


def _compared(old: Build, new: Build) -> dict[str, Any]:
    before, after = capabilities_of(old), capabilities_of(new)
    comparison = compare(before, after)
    return {
        "comparison": comparison,
        "facts": _facts(comparison, before, after),
        "touched": [_row(found) for found in touched_profiles(old, new)],
    }


def _row(found: Touched) -> dict[str, Any]:
    return {
        "profile": found.profile,
        "outcome": found.outcome,
        "arguments": found.arguments,
        "broken": found.broken,
        "errors": [_finding(problem) for problem in found.errors],
        "warnings": [_finding(problem) for problem in found.warnings],
    }


def _finding(problem: Problem) -> tuple[str, str]:
    """Return the name of the field and what is to be said of it."""
    meaning = MEANINGS.get(problem.field)
    label = _(meaning.label) if meaning else str(FIELDS.get(problem.field, problem.field))
    return label, translate(problem.message)


def _facts(comparison: Comparison, before: Capabilities, after: Capabilities) -> list[Fact]:
    return [
        _single(_("Version"), comparison.version),
        _single(_("Commit"), comparison.commit),
        _listed(_("Speculation"), comparison.spec_types),
        _single(_("Value that means MTP"), Pair(_mtp(before), _mtp(after))),
        _listed(_("KV cache types"), comparison.cache_types),
        _single(_("TurboQuant"), Pair(_turboquant(before), _turboquant(after))),
        Fact(
            _("Model loading"),
            LOADING.get(comparison.load_mode.old or "", ()),
            LOADING.get(comparison.load_mode.new or "", ()),
            comparison.load_mode.differs,
        ),
        _single(_("Log dialect"), Pair(_dialect(before), _dialect(after))),
        _listed(_("Devices"), comparison.devices),
    ]


def _single(label: str, pair: Pair) -> Fact:
    old, new = ((value,) if value else () for value in (pair.old, pair.new))
    return Fact(label, old, new, pair.differs)


def _listed(label: str, values: Values) -> Fact:
    return Fact(label, values.removed, values.added, values.differs, len(values.shared))


def _mtp(caps: Capabilities) -> str | None:
    """Return the value or that there is none; nothing when the build lists no kinds of speculation."""
    return caps.mtp_value or (_("no MTP") if caps.spec_types else None)


def _turboquant(caps: Capabilities) -> str | None:
    """Return yes or no in words; nothing when the build lists no cache types."""
    if not caps.cache_types:
        return None
    return _("yes") if caps.turboquant else _("no")


def _dialect(caps: Capabilities) -> str:
    return _("newer") if caps.log == "new" else _("older")
