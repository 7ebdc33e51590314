"""Downloads: wanted, paused, resumed, canceled. The bytes come in jobs.services.download_runner."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish_on_commit
from jobs.adapters.hostlink import link
from jobs.domain.hf import check_path, check_repo
from jobs.models import Download, Host, HubToken, Job, ModelArtifact, ModelFolder
from jobs.services.artifacts import models_folder
from jobs.services.audit import Actor, record
from jobs.services.hub_tokens import usable
from jobs.services.jobs import create_job, request_cancel

LOAD = "model.download"
CLEAR = "model.clear"
SPARE = 1024**3  # bytes of disk that stay free
MOST_FILES = 512
LEAST_RATE = 100 * 1024  # bytes per second

State = Download.State


@dataclass(frozen=True)
class WantedFile:
    """A file: its path in the repository, or its whole address; size in bytes."""

    path: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What a page or a command asks for; `rate` in bytes per second, None as fast as it comes."""

    name: str
    files: tuple[WantedFile, ...]
    repo: str = ""
    revision: str = ""
    token: HubToken | None = None
    folder: ModelFolder | None = None
    rate: int | None = None


@dataclass(frozen=True)
class Forecast:
    """Bytes that are needed and free; None while not known."""

    needed: int | None
    free: int | None

    @property
    def fits(self) -> bool | None:
        """Whether the files fit on the disk, with some space left."""
        return None if self.needed is None or self.free is None else self.needed + SPARE <= self.free


def forecast(host: Host, files: tuple[WantedFile, ...], folder: ModelFolder | None = None) -> Forecast:
    """Return whether files fit into a folder of the host."""
    disk = link(host.slug).disk(Path(folder.path) if folder else models_folder())
    sizes = [file.size for file in files]
    return Forecast(None if None in sizes else sum(filter(None, sizes)), disk.free if disk else None)


def request_download(actor: Actor, host: Host, wanted: Wanted) -> Download:
    """Queue a download; Refused when it cannot be done, or is done or under way already."""
    _check(actor, wanted)
    place = folder_of(wanted)
    files = [
        {"path": file.path, "name": name_of(wanted.repo, file.path), "size": file.size, "sha256": file.sha256}
        for file in wanted.files
    ]
    expected = forecast(host, wanted.files, wanted.folder)
    if expected.fits is False:
        raise Refused(
            _("The files do not fit on the disk. Delete something, or choose another folder."), "folder"
        )
    with transaction.atomic():
        Host.objects.select_for_update().get(pk=host.pk)
        _check_free(host, place, files)
        download = Download.objects.create(
            host=host,
            name=wanted.name[:200],
            repo=wanted.repo,
            revision=wanted.revision,
            token=wanted.token,
            folder=str(place),
            files=[{**file, "done": False} for file in files],
            rate=wanted.rate,
            created_by=actor.user,
        )
        record(
            actor,
            "download.start",
            download,
            after={"repo": wanted.repo, "files": [f["path"] for f in files]},
        )
        create_job(actor, LOAD, host, "download", download.pk, {})
        publish_on_commit("download", download.pk)
    return download


def pause(actor: Actor, download: Download) -> None:
    """Stop loading; what has arrived is kept."""
    with transaction.atomic():
        if not move(download, *Download.WORKING, to=State.PAUSED):
            raise Refused(_("This download is not under way."))
        record(actor, "download.pause", download)
        _end_job(download)


def resume(actor: Actor, download: Download, *, anew: bool = False) -> None:
    """Go on with what has arrived, also after a failure; `anew` throws that away first."""
    with transaction.atomic():
        if not move(download, *Download.KEPT, to=State.QUEUED):
            raise Refused(_("This download is not paused."))
        record(actor, "download.anew" if anew else "download.resume", download)
        create_job(actor, LOAD, download.host, "download", download.pk, {"anew": anew})


def cancel(actor: Actor, download: Download) -> None:
    """Give a download up and remove what has arrived."""
    with transaction.atomic():
        if not move(download, *Download.WORKING, *Download.KEPT, to=State.CANCELED):
            raise Refused(_("This download has ended already."))
        record(actor, "download.cancel", download)
        _end_job(download)
        create_job(actor, CLEAR, download.host, "download", download.pk, {})


def forget(actor: Actor, download: Download) -> None:
    """Remove an ended download from the list; its files stay."""
    with transaction.atomic():
        gone, _rows = Download.objects.filter(
            pk=download.pk, state__in=(State.COMPLETE, State.CANCELED)
        ).delete()
        if not gone:
            raise Refused(_("Cancel the download first."))
        record(actor, "download.forget", download, before={"name": download.name})
        publish_on_commit("download", download.pk)


def move(download: Download, *allowed: str, to: str, error: str = "") -> bool:
    """Move a download on from one of the allowed states; False when it is in another one."""
    ended = timezone.now() if to in (State.COMPLETE, State.FAILED, State.CANCELED) else None
    won = Download.objects.filter(pk=download.pk, state__in=allowed).update(
        state=to, error=error, ended_at=ended
    )
    if won:
        download.state = to
        publish_on_commit("download", download.pk)
    return bool(won)


def folder_of(wanted: Wanted) -> Path:
    """Return the folder below which the files are to lie."""
    base = Path(wanted.folder.path) if wanted.folder else models_folder()
    if wanted.repo:
        return base.joinpath(*wanted.repo.split("/"))
    return base / (urlsplit(wanted.files[0].path).hostname or "unknown")


def name_of(repo: str, path: str) -> str:
    """Return the name that a file gets below its folder."""
    return path if repo else Path(urlsplit(path).path).name


def _check(actor: Actor, wanted: Wanted) -> None:
    if not 0 < len(wanted.files) <= MOST_FILES:
        raise Refused(_("Choose what to download."), "files")
    if wanted.repo:
        wrong = not check_repo(wanted.repo) or not all(check_path(file.path) for file in wanted.files)
    else:
        wrong = not all(_is_address(file.path) for file in wanted.files)
    if wrong or not all(name_of(wanted.repo, file.path).endswith(".gguf") for file in wanted.files):
        raise Refused(_("Only .gguf files can be downloaded."), "files")
    if wanted.token is not None and not usable(actor.user).filter(pk=wanted.token.pk).exists():
        raise Refused(_("This token is not yours."), "token")
    if wanted.rate is not None and wanted.rate < LEAST_RATE:
        raise Refused(_("The bandwidth limit is too low to ever get there."), "rate")


def _is_address(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and check_path(name_of("", url))


def _check_free(host: Host, place: Path, files: list[dict[str, Any]]) -> None:
    """Refuse files that another download writes, or that are registered as they are."""
    wanted = {str(place / file["name"]) for file in files}
    open_states = (*Download.WORKING, *Download.KEPT)
    for other in Download.objects.filter(host=host, state__in=open_states):
        if wanted & {f"{other.folder}/{file['name']}" for file in other.files}:
            raise Refused(_("The download %(name)s gets one of these files already.") % {"name": other.name})
    if ModelArtifact.objects.filter(host=host, path__in=wanted, complete=True).count() >= len(wanted):
        raise Refused(_("These files are on the host already: look at the models."))


def _end_job(download: Download) -> None:
    for job in Job.objects.filter(
        subject_kind="download", subject_id=str(download.pk), kind=LOAD, state__in=Job.ACTIVE
    ):
        request_cancel(job)
