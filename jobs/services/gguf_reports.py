"""Reports about model files: of a path on this host or of an address, against the builds that are here."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db import DatabaseError

from controlpanel.llamacpp.gguf import GgufError, Model, examine, examine_header, shard_paths
from controlpanel.llamacpp.gguf_builds import BuildFacts, Verdict, judge, wanted_words
from controlpanel.llamacpp.gguf_errors import one_line
from controlpanel.llamacpp.gguf_facts import GgufFacts
from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.gguf_report import Partner, Report, facts_of_model, partner_of
from jobs.adapters.buildwords import words_in_build
from jobs.models import Build
from jobs.services.builds import capabilities_of

MAX_NEIGHBOURS = 16
_PROJECTOR_OR_HEADS = ("mmproj", "mtp")


def report_file(path: Path) -> Report:
    """Return the report of a file and the parts beside it; GgufError when its header cannot be read."""
    model = examine(path)
    facts = facts_of_model(model)
    return Report(model, facts, tuple(_partners(model, facts)), _verdicts(facts))


def report_header(header: GgufHeader, name: str) -> Report:
    """Return the report of a header that was read from elsewhere."""
    model = examine_header(header, name)
    facts = facts_of_model(model)
    return Report(model, facts, (), _verdicts(facts))


def _verdicts(facts: GgufFacts) -> tuple[Verdict, ...] | None:
    """Return what each ready build of this host makes of the file; None without a database."""
    try:
        builds = list(Build.objects.filter(state=Build.State.READY, host__slug=settings.PANEL_HOST))
    except DatabaseError:
        return None
    wanted = wanted_words(facts)
    return tuple(
        judge(facts, BuildFacts(build.name, capabilities_of(build), words_in_build(Path(build.path), wanted)))
        for build in builds
    )


def _partners(model: Model, facts: GgufFacts) -> list[Partner]:
    """Return how the files of the same folder go with this one; a bounded number of them is read."""
    own = set(model.shards)
    found: list[Partner] = []
    for path in _neighbours(model.path, facts):
        if path in own:
            continue
        try:
            other = facts_of_model(examine(path))
        except GgufError:
            continue
        partner = partner_of(facts, one_line(path.name.encode("utf-8", "replace")), other)
        if partner is not None:
            found.append(partner)
    return found


def _neighbours(path: Path, facts: GgufFacts) -> list[Path]:
    """Return the files beside `path` that may belong to it, first parts only, told by their names."""
    if facts.content not in ("model", "projector", "mtp heads"):
        return []
    try:
        names = sorted(other for other in path.parent.glob("*.gguf") if other != path)
    except OSError:
        return []
    small = facts.content == "model"
    chosen = [
        other
        for other in names
        if any(word in other.name.lower() for word in _PROJECTOR_OR_HEADS) is small or not small
        if shard_paths(other)[0] == other
    ]
    return chosen[:MAX_NEIGHBOURS]
