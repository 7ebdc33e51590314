"""The lists of the jobs app: which columns, how they are sorted, filtered and searched."""

from typing import Any

from django.db.models import Case, Count, IntegerField, Model, OuterRef, Q, Subquery, Value, When
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce, Lower
from django.utils.translation import gettext_lazy as _

from controlpanel.lib.listing import Choice, Column, Listing, Table, Wish, table
from controlpanel.llamacpp.capabilities import Capabilities
from jobs.models import Build, BuildConfig, Download, Job, ModelArtifact
from jobs.registry import subjects_of
from jobs.views.build_rows import build_rows, builds, config_rows
from jobs.views.download_rows import OPEN, download_rows, downloads
from jobs.views.model_rows import model_rows, models
from jobs.views.work import FAILED, active_jobs, job_row, waits


def rank(field: str, *values: str) -> Case:
    """Order rows by the place of their state in `values`; others come last."""
    places = [When(**{field: value}, then=Value(place)) for place, value in enumerate(values)]
    return Case(*places, default=Value(len(values)), output_field=IntegerField())


BUILD_STATES = ("failed", "building", "probing", "queued", "canceled", "ready")

BUILDS = Listing(
    "builds",
    (
        Column("state", _("State"), (rank("state", *BUILD_STATES), Lower("name"))),
        Column("name", _("Name"), (Lower("name"),)),
        Column("source", _("Source"), (Lower("config__repository__name"), Lower("version"), Lower("name"))),
        Column("options", _("Options")),
        Column("used", _("Used by"), ("users", Lower("name")), falling=True),
        Column("behind", _("Behind"), ("behind",), falling=True),
        Column("who", _("Who"), (Lower("created_by__username"), Lower("name"))),
        Column("when", _("When"), ("created_at",), falling=True),
        Column("duration", _("Duration"), (), "num"),
    ),
    default="-when",
    choices=(
        Choice("working", _("at work (all)"), Q(state__in=Build.WORKING)),
        *(Choice(value, word, Q(state=value)) for value, word in Build.State.choices),
    ),
    search=("name", "version", "commit", "source_commit", "path", "config__repository__name", "config__ref"),
    per_page=50,
)

CONFIGS = Listing(
    "build-configs",
    (
        Column("state", _("Last build"), (rank("last_state", *BUILD_STATES), Lower("name"))),
        Column("name", _("Name"), (Lower("name"),)),
        Column("source", _("Source"), (Lower("repository__name"), "ref", Lower("name"))),
        Column("options", _("Options"), ("backend", Lower("name"))),
        Column("builds", _("Builds"), ("made", Lower("name")), "num", falling=True),
        Column("changed", _("Changed"), ("updated_at",), falling=True),
    ),
    default="name",
    choices=tuple(Choice(value, word, Q(last_state=value)) for value, word in Build.State.choices),
    search=("name", "repository__name", "ref"),
    per_page=50,
)

MODELS = Listing(
    "models",
    (
        Column("state", _("State"), ("complete", Lower("name"))),
        Column("name", _("Name"), (Lower("name"),)),
        Column("architecture", _("Architecture"), (Lower("architecture"), Lower("name"))),
        Column("quant", _("Quant"), ("quant", Lower("name"))),
        Column("size", _("Size"), ("file_size",), "num", falling=True),
        Column("context", _("Context"), ("context_length",), "num", falling=True),
        Column("mtp", _("MTP"), ("mtp_heads", Lower("name")), falling=True),
        Column("vision", _("Vision"), ("kind", Lower("name"))),
        Column("hash", _("SHA-256"), ("verified_at",), falling=True),
        Column("used", _("Used by"), ("users", Lower("name")), falling=True),
    ),
    default="name",
    choices=(
        Choice("complete", _("complete"), Q(complete=True)),
        Choice("incomplete", _("incomplete"), Q(complete=False)),
        Choice("mtp", _("with MTP heads"), Q(mtp_heads__gt=0)),
        Choice("projector", _("vision projectors"), Q(kind=ModelArtifact.Kind.MMPROJ)),
        Choice("unverified", _("not verified"), Q(verified_at=None)),
    ),
    search=("name", "path", "architecture", "quant", "projector", "source__repo"),
    per_page=50,
)

DOWNLOADS = Listing(
    "downloads",
    (
        Column("state", _("State"), (rank("state", "failed", "loading", "queued", "paused"), "pk")),
        Column("name", _("Name"), (Lower("name"),)),
        Column("progress", _("Progress"), ("received",), falling=True),
        Column("source", _("Source"), (Lower("repo"), Lower("name"))),
        Column("who", _("Who"), (Lower("created_by__username"), "pk")),
        Column("when", _("When"), ("created_at",), falling=True),
    ),
    default="-when",
    choices=(
        Choice("open", _("not over (all)"), Q(state__in=OPEN)),
        *(Choice(value, word, Q(state=value)) for value, word in Download.State.choices),
    ),
    search=("name", "repo", "folder"),
    per_page=50,
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
    rows = builds().defer("capabilities")
    return table(wish, rows.annotate(users=_users(Build, "profiles"), **parts), _build_rows)


_PARTS = ("spec_types", "mtp_value", "cache_types", "devices")


def _build_rows(found: list[Any]) -> list[dict[str, Any]]:
    return build_rows(found, {build.pk: _in_brief(build) for build in found})


def _in_brief(build: Any) -> Capabilities | None:
    values = {key: getattr(build, f"part_{key}") for key in _PARTS}
    return None if values["spec_types"] is None else Capabilities.from_dict(values)


def configs_table(wish: Wish) -> Table:
    """One page of build configs with the last build of each."""
    newest = Build.objects.filter(config=OuterRef("pk")).order_by("-pk")
    rows = BuildConfig.objects.select_related("repository").annotate(
        made=_users(BuildConfig, "builds"),
        last_pk=Subquery(newest.values("pk")[:1]),
        last_state=Subquery(newest.values("state")[:1]),
    )
    return table(wish, rows, config_rows)


def models_table(wish: Wish) -> Table:
    """One page of model artifacts with what they go with and who uses them."""
    users = _users(ModelArtifact, "profiles") + _users(ModelArtifact, "vision_profiles")
    return table(wish, models().defer("header", "facts", "report").annotate(users=users), model_rows)


def downloads_table(wish: Wish) -> Table:
    """One page of downloads with how far they are."""
    return table(wish, downloads(), download_rows)


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
