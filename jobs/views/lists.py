"""The lists of the jobs app: which columns, how they are sorted, filtered and searched."""

from typing import Any

from django.db.models import Case, Count, IntegerField, Model, OuterRef, Q, Subquery, Value, When
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce, Lower
from django.utils.translation import gettext_lazy as _

from controlpanel.lib.listing import Choice, Column, Listing, Table, Wish, table
from controlpanel.llamacpp.capabilities import Capabilities
from jobs.models import Build, Job, ModelArtifact
from jobs.registry import subjects_of
from jobs.views.rows import model_row
from jobs.views.work import FAILED, active_jobs, job_row, waits


def rank(field: str, *values: str) -> Case:
    """Order rows by the place of their state in `values`; others come last."""
    places = [When(**{field: value}, then=Value(place)) for place, value in enumerate(values)]
    return Case(*places, default=Value(len(values)), output_field=IntegerField())


BUILDS = Listing(
    "builds",
    (
        Column("state", _("State"), (rank("state", "failed", "probing", "ready"), Lower("name"))),
        Column("name", _("Name"), (Lower("name"),)),
        Column("version", _("Version"), (Lower("version"), Lower("name"))),
        Column("can", _("Can do")),
        Column("path", _("Path"), (Lower("path"),)),
        Column("used", _("Used by"), ("users", Lower("name")), falling=True),
        Column("probed", _("Probed"), ("probed_at",), falling=True),
    ),
    default="name",
    choices=tuple(Choice(value, word, Q(state=value)) for value, word in Build.State.choices),
    search=("name", "version", "commit", "path"),
)

MODELS = Listing(
    "models",
    (
        Column("state", _("State"), ("complete", Lower("name"))),
        Column("name", _("Name"), (Lower("name"),)),
        Column("kind", _("Kind"), ("kind", Lower("name"))),
        Column("architecture", _("Architecture"), (Lower("architecture"), Lower("name"))),
        Column("quant", _("Quant"), ("quant", Lower("name"))),
        Column("size", _("Size"), ("file_size",), "num", falling=True),
        Column("context", _("Native context"), ("context_length",), "num", falling=True),
        Column("mtp", _("MTP heads"), ("mtp_heads", Lower("name")), "num", falling=True),
        Column("used", _("Used by"), ("users", Lower("name")), falling=True),
    ),
    default="name",
    choices=(
        Choice("complete", _("complete"), Q(complete=True)),
        Choice("incomplete", _("incomplete"), Q(complete=False)),
    ),
    search=("name", "path", "architecture", "quant", "projector"),
)

JOBS = Listing(
    "activity",
    (
        Column("state", _("State"), (rank("state", "queued", "running", "canceling", *FAILED), "pk")),
        Column("kind", _("What"), ("kind",)),
        Column("subject", _("Object")),
        Column("who", _("Who"), (Lower("actor__username"),)),
        Column("when", _("When"), ("created_at",), falling=True),
        Column("duration", _("Duration"), (), "num"),
        Column("error", _("Error")),
    ),
    default="-when",
    choices=(
        Choice("active", _("active (all)"), Q(state__in=Job.ACTIVE)),
        Choice("unsuccessful", _("failed (all)"), Q(state__in=FAILED)),
        *(Choice(value, word, Q(state=value)) for value, word in Job.State.choices),
    ),
    search=("kind", "error", "actor__username"),
    per_page=50,
)


def builds_table(wish: Wish) -> Table:
    """One page of builds with what they can do and who uses them.

    Their capabilities are read in part: all flags of a hundred builds are megabytes.
    """
    parts = {f"part_{key}": KeyTransform(key, "capabilities") for key in _PARTS}
    rows = Build.objects.defer("capabilities").prefetch_related("profiles")
    return table(wish, rows.annotate(users=_users(Build, "profiles"), **parts), _build_rows)


_PARTS = ("spec_types", "mtp_value", "cache_types", "devices")


def _build_rows(builds: list[Any]) -> list[dict[str, Any]]:
    return [
        {"build": build, "capabilities": _in_brief(build), "profiles": list(build.profiles.all())}
        for build in builds
    ]


def _in_brief(build: Any) -> Capabilities | None:
    values = {key: getattr(build, f"part_{key}") for key in _PARTS}
    return None if values["spec_types"] is None else Capabilities.from_dict(values)


def models_table(wish: Wish) -> Table:
    """One page of model artifacts with who uses them."""
    users = _users(ModelArtifact, "profiles") + _users(ModelArtifact, "vision_profiles")
    rows = ModelArtifact.objects.defer("header", "facts").prefetch_related("profiles", "vision_profiles")
    return table(wish, rows.annotate(users=users), lambda found: [model_row(item) for item in found])


def _users(model: type[Model], relation: str) -> Coalesce:
    """Count the rows that refer to each row by this relation, without a join that multiplies others."""
    back: Any = model._meta.get_field(relation)
    key = back.field.name
    counted = back.related_model.objects.filter(**{key: OuterRef("pk")}).order_by().values(key)
    return Coalesce(Subquery(counted.annotate(number=Count("pk")).values("number")), Value(0))


def jobs_table(wish: Wish) -> Table:
    """One page of jobs with what they are about and why they wait."""

    def show(jobs: list[Job]) -> list[dict[str, Any]]:
        subjects, waiting = subjects_of(jobs), waits(active_jobs())
        return [job_row(job, subjects, waiting.get(job.pk)) for job in jobs]

    return table(wish, Job.objects.select_related("host", "actor").defer("params"), show)
