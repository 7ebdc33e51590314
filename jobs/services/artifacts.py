"""Model artifacts: register a local GGUF by its header, read it again, forget it."""

import logging
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.access import has_role
from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish, publish_on_commit
from controlpanel.lib.text import plain
from controlpanel.lib.words import stored, translate
from controlpanel.llamacpp.facts import facts_of
from controlpanel.llamacpp.gguf import GgufError, examine, shard_paths
from controlpanel.llamacpp.gguf_report import Report, facts_of_model, to_json
from jobs.models import AuditEntry, Download, Host, ModelArtifact, ModelFolder
from jobs.services.audit import Actor, record
from jobs.services.watch import with_database

logger = logging.getLogger(__name__)
NEWEST_FACT = "state_size"  # the last that was added to what ModelFacts holds


def models_folder() -> Path:
    """Return the folder under the data folder in which operators may register files."""
    folder: Path = settings.PANEL_DATA / "models"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def register_artifact(actor: Actor, host: Host, path: str, name: str = "") -> ModelArtifact:
    """Read the header of a local .gguf and register it; Refused says what is wrong with the file."""
    file = Path(path.strip())
    if not file.is_absolute():
        raise Refused(_("Give the absolute path of a .gguf file on this host."), "path")
    _check_place(actor, file)
    fields = read_fields(file)
    name = re.sub(r"\s+", " ", name).strip() or file.stem
    try:
        with transaction.atomic():
            artifact = ModelArtifact.objects.create(
                host=host, path=str(file), name=name[:200], created_by=actor.user, **fields
            )
            record(actor, "model.register", artifact, after={"path": str(file)})
            publish_on_commit("artifact", artifact.pk)
    except IntegrityError as error:
        raise Refused(_("This file is registered already."), "path") from error
    return artifact


def register_download(download: Download) -> None:
    """Register the models of a finished download; one that is registered already is read again."""
    files = {Path(download.folder) / file["name"]: file for file in download.files}
    for path in files:
        parts = shard_paths(path)
        if path != parts[0]:
            continue
        known = [files[part] for part in parts if part in files]
        hashed = len(known) == len(parts) and all(file["hashed"] for file in known)
        fields = read_fields(path) | {
            "source": _source(download, files[path]["path"]),
            "sha256": [file["sha256"] for file in known],
            "verified_at": timezone.now() if hashed else None,
        }
        with transaction.atomic():
            artifact, made = ModelArtifact.objects.update_or_create(
                host=download.host,
                path=str(path),
                defaults=fields,
                create_defaults={**fields, "name": _name(download, path), "created_by": download.created_by},
            )
            record(Actor(download.created_by, AuditEntry.Source.AGENT), "model.download", artifact)
            publish_on_commit("artifact", artifact.pk)
        for file in known:
            file["artifact"] = artifact.pk
    Download.objects.filter(pk=download.pk).update(files=download.files)


def _name(download: Download, path: Path) -> str:
    """Return the file's name; a projector's says nothing of its model, so the repository's comes first."""
    if not download.repo or not path.stem.lower().startswith(("mmproj", "mtp")):
        return path.stem[:200]
    return f"{download.repo.split('/')[1].removesuffix('-GGUF')} {path.stem}"[:200]


def _source(download: Download, path: str) -> dict[str, str]:
    if download.repo:
        return {"repo": download.repo, "revision": download.revision, "path": path}
    return {"url": urlsplit(path)._replace(query="", fragment="").geturl()}


def refresh_artifact(actor: Actor, artifact: ModelArtifact) -> None:
    """Read the file's header again and store what it says now."""
    fields = read_fields(Path(artifact.path))
    with transaction.atomic():
        ModelArtifact.objects.filter(pk=artifact.pk).update(**fields)
        record(actor, "model.refresh", artifact)
        publish_on_commit("artifact", artifact.pk)


@with_database
def renew_facts() -> None:
    """Read the headers of this host's models again whose facts an older version of the panel stored."""
    rows = ModelArtifact.objects.filter(host__slug=settings.PANEL_HOST).exclude(facts__has_key=NEWEST_FACT)
    for artifact in rows.only("pk", "path"):
        try:
            ModelArtifact.objects.filter(pk=artifact.pk).update(**read_fields(Path(artifact.path)))
            publish("artifact", artifact.pk)
        except Refused:
            # A file that is gone is told where somebody wants to use it.
            continue
        except Exception:
            logger.exception("the facts of %s", artifact.path)


def delete_artifact(actor: Actor, artifact: ModelArtifact) -> None:
    """Forget an artifact (the file stays); Refused while a profile uses it."""
    try:
        with transaction.atomic():
            record(actor, "model.delete", artifact, before={"path": artifact.path})
            pk = artifact.pk
            artifact.delete()
            publish_on_commit("artifact", pk)
    except ProtectedError as error:
        raise Refused(
            _("Profiles use this model: %(names)s. Change or delete them first.")
            % {"names": ", ".join(users_of(artifact))}
        ) from error


def read_fields(file: Path) -> dict[str, Any]:
    """Return the columns of a ModelArtifact as the file's header gives them; Refused for a foreign file."""
    try:
        model = examine(file)
    except GgufError as error:
        raise Refused(translate(error.message), "path", error.code) from error
    header = model.header
    facts = facts_of(model)
    return {
        "kind": ModelArtifact.Kind.MMPROJ if facts.is_projector else ModelArtifact.Kind.MODEL,
        "file_size": model.size,
        "architecture": header.architecture or "",
        "quant": header.quant or "",
        "context_length": header.context_length,
        "mtp_heads": model.mtp_heads,
        "projector": facts.projector or "",
        "complete": model.complete,
        "problems": [plain(problem) for problem in model.problems],
        "facts": asdict(facts),
        "report": to_json(Report(model, facts_of_model(model)), stored),
        "header": {
            "name": header.name,
            "parameters": header.parameters,
            "block_count": header.block_count,
            "embedding_length": header.embedding_length,
            "head_count": header.head_count,
            "head_count_kv": header.head_count_kv,
            "key_length": header.key_length,
            "value_length": header.value_length,
            "vocabulary": header.vocabulary,
            "tensor_count": len(header.tensors),
            "shards": len(model.shards),
        },
    }


def in_a_folder(file: Path) -> bool:
    """Tell whether a file really lies below the panel's models folder or a registered one."""
    folders = [models_folder(), *map(Path, ModelFolder.objects.values_list("path", flat=True))]
    return any(file.resolve().is_relative_to(folder.resolve()) for folder in folders)


def users_of(artifact: ModelArtifact) -> list[str]:
    """Return the names of the profiles that use a model."""
    users = {*artifact.profiles.values_list("name", flat=True)}
    return sorted(users | {*artifact.vision_profiles.values_list("name", flat=True)})


def _check_place(actor: Actor, file: Path) -> None:
    """Operators register below the panel's folders; other paths are an admin's (or the host's own shell)."""
    if in_a_folder(file) or actor.source == AuditEntry.Source.CLI or has_role(actor.user, "admin"):
        return
    raise Refused(
        _("Operators can register files below %(folder)s and below registered folders. Ask an admin.")
        % {"folder": models_folder()},
        "path",
    )
