"""Files of models on their host: checked against their hash, removed, found in folders."""

import os
from collections.abc import Iterator
from pathlib import Path

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish, publish_on_commit
from controlpanel.lib.text import N_, Message, plain
from controlpanel.llamacpp.gguf import shard_paths
from jobs.adapters.transfer_error import TransferError
from jobs.domain.transfer import Progress
from jobs.models import Host, Job, ModelArtifact, ModelFolder
from jobs.registry import Runner, WorkFailed
from jobs.services.artifacts import in_a_folder, register_artifact, users_of
from jobs.services.audit import Actor, record
from jobs.services.jobs import Claimed, create_job

VERIFY = "model.verify"
REMOVE = "model.remove"
SCAN = "model.scan"
DEPTH = 8  # folders below a registered one
MOST_ENTRIES = 200_000  # of a scan

DIFFERS = N_(
    "The file is not what the hub described when it was downloaded: delete it and download it again."
)


def verify(actor: Actor, artifact: ModelArtifact) -> None:
    """Ask for the files to be compared with their hashes; Refused where no hash is known."""
    if not artifact.sha256 or not all(artifact.sha256):
        raise Refused(_("No SHA-256 is known for this file: only files from the hub can be verified."))
    with transaction.atomic():
        if Job.objects.filter(kind=VERIFY, subject_id=str(artifact.pk), state__in=Job.ACTIVE).exists():
            raise Refused(_("This is being done already."))
        record(actor, "model.verify", artifact)
        create_job(actor, VERIFY, artifact.host, "model", artifact.pk, {})


def remove(actor: Actor, artifact: ModelArtifact) -> None:
    """Delete a model with its files; Refused while a profile uses it, and for files outside the folders."""
    if not in_a_folder(Path(artifact.path)):
        raise Refused(
            _("Its files lie outside the panel's folders: remove it from the list, and delete them by hand.")
        )
    users = users_of(artifact)
    if users:
        raise Refused(
            _("Profiles use this model: %(names)s. Change or delete them first.")
            % {"names": ", ".join(users)}
        )
    paths = [str(part) for part in shard_paths(Path(artifact.path))]
    try:
        with transaction.atomic():
            record(actor, "model.remove", artifact, before={"path": artifact.path})
            create_job(actor, REMOVE, artifact.host, "model", artifact.pk, {"paths": paths})
            publish_on_commit("artifact", artifact.pk)
            artifact.delete()
    except ProtectedError as error:
        raise Refused(_("A profile uses this model. Change or delete it first.")) from error


def add_folder(actor: Actor, host: Host, path: str) -> ModelFolder:
    """Allow a folder of the host; Refused when it is none."""
    folder = Path(path.strip())
    if not folder.is_absolute() or "\0" in path or ".." in folder.parts:
        raise Refused(_("Give the absolute path of a folder on this host."), "path")
    if len(folder.parts) < 2 or not folder.is_dir():
        raise Refused(_("There is no such folder on this host."), "path")
    try:
        with transaction.atomic():
            row = ModelFolder.objects.create(host=host, path=str(folder), created_by=actor.user)
            record(actor, "folder.add", row, after={"path": str(folder)})
            create_job(actor, SCAN, host, "folder", row.pk, {})
            publish_on_commit("folder", row.pk)
    except IntegrityError as error:
        raise Refused(_("This folder is registered already."), "path") from error
    return row


def delete_folder(actor: Actor, folder: ModelFolder) -> None:
    """Forget a folder; its files and registered models stay."""
    with transaction.atomic():
        record(actor, "folder.delete", folder, before={"path": folder.path})
        publish_on_commit("folder", folder.pk)
        folder.delete()


def scan(actor: Actor, folder: ModelFolder) -> None:
    """Ask for the models in a folder to be registered."""
    with transaction.atomic():
        if Job.objects.filter(kind=SCAN, subject_id=str(folder.pk), state__in=Job.ACTIVE).exists():
            raise Refused(_("This folder is being scanned already."))
        record(actor, "folder.scan", folder)
        create_job(actor, SCAN, folder.host, "folder", folder.pk, {})


class VerifyRunner(Runner):
    """Compares the files of a model with their hashes."""

    def run(self, job: Claimed) -> None:
        """Read each part once; a part that differs is a problem of the model from then on."""
        from jobs.adapters import transfer  # brings the HTTP client along

        artifact = ModelArtifact.objects.filter(pk=job.row.subject_id).first()
        if artifact is None:
            return
        job.step("verify")
        for part, sha256 in zip(shard_paths(Path(artifact.path)), artifact.sha256, strict=False):

            def tell(progress: Progress, name: str = part.name) -> None:
                job.progress(progress.done, progress.total, name, speed=progress.speed, eta=progress.eta)

            try:
                transfer.verify(part, sha256, tell, job.stop_reason)
            except TransferError as error:
                job.check()
                if error.code == "checksum":
                    problems = [*artifact.problems, plain(Message(DIFFERS))]
                    ModelArtifact.objects.filter(pk=artifact.pk).update(
                        verified_at=None, complete=False, problems=problems
                    )
                    publish("artifact", artifact.pk)
                    raise WorkFailed(DIFFERS) from error
                raise WorkFailed.of(error.message) from error
        ModelArtifact.objects.filter(pk=artifact.pk).update(verified_at=timezone.now())
        publish("artifact", artifact.pk)


class RemoveRunner(Runner):
    """Removes the files of a model whose row is gone."""

    keeps = N_("The model is deleted already; only its files are left to remove.")

    def run(self, job: Claimed) -> None:
        """Remove its parts so far as no other model has them."""
        job.step("remove")
        for path in map(Path, job.params["paths"]):
            if ModelArtifact.objects.filter(path=str(path)).exists() or not in_a_folder(path):
                continue
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise WorkFailed(
                    N_("%(path)s could not be removed: %(why)s"), path=path, why=error
                ) from error


class ScanRunner(Runner):
    """Registers the models that lie in a folder."""

    def run(self, job: Claimed) -> None:
        """Register each .gguf that is not registered yet; files that are none are passed over."""
        folder = ModelFolder.objects.select_related("host").filter(pk=job.row.subject_id).first()
        if folder is None:
            return
        job.step("scan")
        known = set(ModelArtifact.objects.filter(host=folder.host).values_list("path", flat=True))
        found = 0
        for number, path in enumerate(models_in(Path(folder.path))):
            if number % 20 == 0:
                job.check()
            if str(path) in known or path != shard_paths(path)[0]:
                continue
            try:
                register_artifact(Actor.agent(), folder.host, str(path))
                found += 1
            except Refused:
                continue
        ModelFolder.objects.filter(pk=folder.pk).update(scanned_at=timezone.now(), found=found)
        publish("folder", folder.pk)


def models_in(folder: Path) -> Iterator[Path]:
    """Yield the .gguf files below a folder, bounded in depth and number; no link to a folder is followed."""
    seen = 0
    depth = len(folder.parts)
    for place, folders, files in os.walk(folder):
        if len(Path(place).parts) - depth >= DEPTH:
            folders.clear()
        folders.sort()
        for name in sorted(files):
            seen += 1
            if seen > MOST_ENTRIES:
                return
            if name.endswith(".gguf"):
                yield Path(place) / name
