"""What the pages of models show, read from the rows: for first renders and for live updates."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.db.models.fields.json import KeyTransform
from django.utils.translation import gettext as _

from controlpanel.llamacpp.gguf_facts import GgufFacts
from controlpanel.llamacpp.gguf_report import partner_of
from controlpanel.llamacpp.projectors import made_for
from jobs.adapters.hostlink import link
from jobs.models import Job, ModelArtifact, ModelFolder
from jobs.services.artifacts import models_folder
from jobs.services.model_files import VERIFY
from jobs.views.model_facts import MTP_HEADS, Judged, best_first, facts_of_report, judged, report_view
from jobs.views.work import FAILED

# What the list needs of the large JSON columns; whole ones of a hundred models are megabytes.
PARTS = {
    "content": KeyTransform("content", KeyTransform("facts", "report")),
    "width": KeyTransform("embedding_length", "facts"),
    "projector_width": KeyTransform("projector_width", "facts"),
}
MOST_PARTNERS = 20


@dataclass(frozen=True)
class Piece:
    """A file as far as it matters for what it goes with: a model, a projector, or heads without a model."""

    pk: int
    name: str
    kind: str
    architecture: str
    width: int | None
    projector: str

    def goes_with(self, model: "Piece") -> bool:
        """Tell whether a projector or heads fit a model, by widths and names of architectures."""
        if self.width is None or self.width != model.width:
            return False
        if self.kind == MTP_HEADS:
            return self.architecture == model.architecture
        return made_for(self.projector, model.architecture) is not False


def models() -> QuerySet[ModelArtifact]:
    """Return all models with what a page shows of them."""
    return ModelArtifact.objects.select_related("host", "created_by").prefetch_related(
        "profiles", "vision_profiles"
    )


def pieces() -> list[Piece]:
    """Return all files of the library, read once for a whole page."""
    columns = ("pk", "name", "kind", "architecture", "projector", "content", "width", "projector_width")
    rows = ModelArtifact.objects.annotate(**PARTS).order_by("name").values_list(*columns)
    return [
        Piece(
            pk,
            name,
            MTP_HEADS if content == MTP_HEADS else kind,
            architecture,
            projector_width if kind == ModelArtifact.Kind.MMPROJ else width,
            projector,
        )
        for pk, name, kind, architecture, projector, content, width, projector_width in rows
    ]


def model_rows(found: list[ModelArtifact]) -> list[dict[str, Any]]:
    """Models with what they go with, their checks and who uses them, read once for all of them."""
    checks, folders, library = verify_jobs(found), own_folders(), pieces()
    by_key = {piece.pk: piece for piece in library}
    by_width: dict[int | None, list[Piece]] = {}
    for piece in library:
        by_width.setdefault(piece.width, []).append(piece)
    return [
        model_row(artifact, checks.get(artifact.pk), folders)
        | company(own, by_width[own.width] if own.width else [], artifact.mtp_heads)
        for artifact in found
        if (own := by_key.get(artifact.pk))
    ]


def model_row(artifact: ModelArtifact, check: Job | None, folders: list[Path]) -> dict[str, Any]:
    """One model with what its row and its page have in common."""
    profiles = [*artifact.profiles.all(), *artifact.vision_profiles.all()]
    return {
        "artifact": artifact,
        "profiles": profiles,
        "source": source_of(artifact),
        "hash": hash_state(artifact, check),
        "removable": lies_in(artifact.path, folders),
        "keeps": why_kept(profiles),
    }


def company(own: Piece, near: list[Piece], heads: int) -> dict[str, Any]:
    """Return what goes with a file, of those of its width: heads, projectors, or the models it is for."""
    if own.kind == ModelArtifact.Kind.MODEL:
        beside = [other for other in near if other.kind != own.kind and other.goes_with(own)]
        companions = [other for other in beside if other.kind == MTP_HEADS]
        return {
            "role": "model",
            "mtp": "heads" if heads else "companion" if companions else "no",
            "companions": companions,
            "projectors": [other for other in beside if other.kind != MTP_HEADS],
        }
    fits = [other for other in near if other.kind == ModelArtifact.Kind.MODEL and own.goes_with(other)]
    return {"role": "heads" if own.kind == MTP_HEADS else "projector", "mtp": "", "fits": fits}


def source_of(artifact: ModelArtifact) -> dict[str, str]:
    """Return where a file came from: a repository of the hub, another host, or {} for a file found here."""
    known = artifact.source
    if "repo" in known:
        owner, _slash, name = known["repo"].partition("/")
        return {**known, "owner": owner, "name": name}
    if "url" in known:
        return {"url": known["url"], "host": known["url"].partition("://")[2].partition("/")[0]}
    return {}


def verify_jobs(found: Iterable[ModelArtifact]) -> dict[int, Job]:
    """Return the newest check of each model that has a hash, by the model's key."""
    keys = [str(artifact.pk) for artifact in found if artifact.sha256]
    rows = Job.objects.filter(kind=VERIFY, subject_kind="model", subject_id__in=keys).order_by("pk")
    return {int(job.subject_id): job for job in rows}


def hash_state(artifact: ModelArtifact, check: Job | None) -> dict[str, Any]:
    """Return what is known of a file's hash; `keeps` says why it cannot be verified now, "" when it can."""
    known = bool(artifact.sha256) and all(artifact.sha256)
    state: dict[str, Any] = {"known": known, "at": artifact.verified_at, "keeps": "", "error": ""}
    if check is not None and check.is_active:
        done, total = check.progress.get("done") or 0, check.progress.get("total") or 0
        words = {"keeps": _("The file is being verified already."), "done": done, "total": total}
        return {**state, **words, "word": "checking", "percent": 100 * done // total if total else None}
    if not known:
        keeps = _("No SHA-256 is known for this file: only files from the hub can be verified.")
        return {**state, "word": "unknown", "keeps": keeps}
    if artifact.verified_at:
        return {**state, "word": "verified"}
    if check is not None and check.state in FAILED:
        return {**state, "word": "failed", "error": check.error_text}
    return {**state, "word": "unverified"}


def own_folders() -> list[Path]:
    """Return the folders in which the panel may delete files."""
    return [models_folder(), *map(Path, ModelFolder.objects.values_list("path", flat=True))]


def lies_in(path: str, folders: list[Path]) -> bool:
    """Tell whether a path is written as one below one of the folders."""
    return any(Path(path).is_relative_to(folder) for folder in folders)


def why_kept(profiles: list[Any]) -> str:
    """Return why a model cannot be deleted now, "" when it can."""
    if not profiles:
        return ""
    names = ", ".join(dict.fromkeys(profile.name for profile in profiles))
    return _("Profiles use this model: %(names)s.") % {"names": names}


def model_context(artifact: ModelArtifact) -> dict[str, Any]:
    """One model's page, without what its builds say of it."""
    check = verify_jobs([artifact]).get(artifact.pk)
    row = model_row(artifact, check, own_folders())
    return {
        **row,
        "self": row,
        "part": f"model-{artifact.pk}",
        "view": report_view(artifact.report) if artifact.report else None,
        "partners": partners_of(artifact),
    }


def partners_of(artifact: ModelArtifact) -> list[Judged]:
    """Return which other files of the library can be used with one of them, those that fit first."""
    facts = facts_of_report(artifact.report)
    others = ModelArtifact.objects.filter(host_id=artifact.host_id).exclude(pk=artifact.pk)
    return partners_among(facts, others) if facts else []


def partners_among(facts: GgufFacts, others: QuerySet[ModelArtifact]) -> list[Judged]:
    """Return which files can be used with one of these facts, those that fit first."""
    found = []
    for other in others.only("pk", "name", "report").order_by("name"):
        theirs = facts_of_report(other.report)
        partner = partner_of(facts, other.name, theirs) if theirs else None
        if partner is not None:
            found.append(judged(partner.name, partner.fit.fits, partner.fit.problems, other.pk))
    return best_first(found)[:MOST_PARTNERS]


def disk_context() -> dict[str, Any]:
    """The disk on which the panel's own folder of models lies, in bytes."""
    return {"disk": link(settings.PANEL_HOST).disk(models_folder())}
