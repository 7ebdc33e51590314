"""The runners of downloads: fetch each file, register what it is; and clear away what was given up."""

import time
from functools import partial
from pathlib import Path
from typing import Any

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish
from controlpanel.lib.text import Message, Worded
from controlpanel.lib.words import stored
from jobs.adapters import hub
from jobs.adapters.transfer_error import TransferError
from jobs.domain.transfer import Limits, Place, Progress, Resolved, Source
from jobs.models import Download, Job
from jobs.registry import Canceled, Interrupted, Runner, WorkFailed
from jobs.services.artifacts import register_download
from jobs.services.downloads import State, move
from jobs.services.hub_tokens import secret_of
from jobs.services.jobs import Claimed

BUSY_SECONDS = 15.0
RETRY_EVERY = 0.5  # seconds
TELL_EVERY = 1.0  # seconds between two notes for the pages


class DownloadRunner(Runner):
    """Fetches the files of one download."""

    def run(self, job: Claimed) -> None:
        """Go on with the first file that is not done; what has arrived of it is used."""
        download = _download(job.row)
        if download is None or download.state not in Download.WORKING:
            return
        move(download, State.QUEUED, to=State.LOADING)
        try:
            Loading(job, download).all_files()
        except (Interrupted, Canceled):
            raise
        except Refused as error:
            _fail(download, Message(str(error)))
            raise WorkFailed.of(Message(str(error))) from error
        except Worded as error:
            _fail(download, error.message)
            raise WorkFailed.of(error.message) from error
        except Exception as error:
            _fail(download, Message(repr(error)))
            raise
        move(download, State.LOADING, to=State.COMPLETE)

    def cancel(self, job: Claimed) -> None:
        """Nothing runs any more; a pause keeps what has arrived, and a cancel has a job that clears it."""


class ClearRunner(Runner):
    """Removes what has arrived of a download that was given up."""

    def run(self, job: Claimed) -> None:
        """Remove partial files and complete ones that belong to no registered model."""
        download = _download(job.row)
        if download is None or download.state != State.CANCELED:
            return
        job.step("clear")
        for file in download.files:
            target = Path(download.folder) / file["name"]
            # The thread that loads it may need a moment to notice that it is to end.
            job.wait(partial(_discarded, target), 30)
            if file["done"] and not file.get("artifact"):
                target.unlink(missing_ok=True)
        Download.objects.filter(pk=download.pk).update(received=0)
        publish("download", download.pk)


class Loading:
    """One download while it runs."""

    def __init__(self, job: Claimed, download: Download) -> None:
        self.job = job
        self.download = download
        self.folder = Path(download.folder)
        self._token = secret_of(download.token)
        self.limits = Limits(rate=float(download.rate) if download.rate else None)
        self._before = 0  # bytes of the files that are done
        self._told = 0.0

    def all_files(self) -> None:
        """Fetch what is not done, then register everything."""
        from jobs.adapters.transfer import discard  # brings the HTTP client along

        self.job.step("download")
        if self.job.params.get("anew") and not self.job.params.get("cleared"):
            for file in self.download.files:
                if not file["done"]:
                    discard(self.folder / file["name"])
            self.job.remember(cleared=True)
        for number, file in enumerate(self.download.files):
            if not file["done"]:
                self._fetch(number, file)
            self._before += file["size"] or 0
        self.job.step("register")
        register_download(self.download)

    def _fetch(self, number: int, file: dict[str, Any]) -> None:
        from jobs.adapters.transfer import fetch

        target = self.folder / file["name"]
        target.parent.mkdir(parents=True, exist_ok=True)
        source = Source(file["path"], partial(self._resolve, file), size=file["size"], sha256=file["sha256"])
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                done = fetch(
                    source,
                    target,
                    self.limits,
                    on_progress=partial(self._tell, file),
                    stop=self.job.stop_reason,
                )
                break
            except TransferError as error:
                self.job.check()
                # A download that was paused and resumed at once meets its own end.
                if error.code != "busy" or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_EVERY)
        file.update(
            size=done.size, sha256=file["sha256"] or done.sha256, hashed=bool(file["sha256"]), done=True
        )
        Download.objects.filter(pk=self.download.pk).update(
            files=self.download.files, received=self._before + done.size
        )
        publish("download", self.download.pk)

    def _resolve(self, file: dict[str, Any]) -> Resolved:
        """Ask the hub where the bytes are now; called in threads of the engine."""
        if not self.download.repo:
            return Place(file["path"])
        return hub.resolve(self.download.repo, self.download.revision, file["path"], token=self._token)

    def _tell(self, file: dict[str, Any], progress: Progress) -> None:
        now = time.monotonic()
        if now - self._told < TELL_EVERY and progress.done < progress.total:
            return
        self._told = now
        total = self.download.total or self._before + progress.total
        done = min(self._before + progress.done, total)
        eta = (total - done) / progress.speed if progress.speed else None
        self.job.progress(done, total, file["name"], speed=progress.speed, eta=eta)
        Download.objects.filter(pk=self.download.pk).update(received=done)


def _download(job: Job) -> Download | None:
    return Download.objects.select_related("host", "token", "created_by").filter(pk=job.subject_id).first()


def _fail(download: Download, why: Message) -> None:
    move(download, *Download.WORKING, to=State.FAILED, error=stored(why))


def _discarded(target: Path) -> bool:
    from jobs.adapters.transfer import discard

    try:
        discard(target)
    except TransferError as error:
        if error.code != "busy":
            raise
        return False
    return True
