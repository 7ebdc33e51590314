"""What pages show of downloads, read from the rows: for first renders and for live updates."""

import json
from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from controlpanel.lib.text import message_of
from jobs.models import Download, Job, ModelArtifact
from jobs.services.downloads import LOAD
from jobs.views.work import waits_by_subject

OPEN = (*Download.WORKING, *Download.KEPT)
MOST_OPEN = 20  # on top of the list of models
HOUR = 3600


def downloads() -> QuerySet[Download]:
    """Return all downloads with what a page shows of them."""
    return Download.objects.select_related("host", "token", "created_by")


def download_rows(found: list[Download]) -> list[dict[str, Any]]:
    """Downloads with how far they are, read once for all of them."""
    queued = any(item.state == Download.State.QUEUED for item in found)
    jobs, waiting = load_jobs(found), waits_by_subject("download") if queued else {}
    return [download_row(item, jobs.get(item.pk), waiting.get(str(item.pk))) for item in found]


def download_row(download: Download, job: Job | None, wait: Any) -> dict[str, Any]:
    """One download as a page shows it; `percent` is None while the size is not known."""
    loading = download.state == Download.State.LOADING and job is not None and job.state in Job.OWNED
    progress = job.progress if job is not None and loading else {}
    done = progress.get("done") or download.received
    total = download.total or progress.get("total")
    speed, eta = progress.get("speed"), progress.get("eta")
    return {
        "download": download,
        "wait": wait if download.state == Download.State.QUEUED else None,
        "loading": loading,
        "file": str(progress.get("text") or ""),
        "done": done,
        "total": total,
        "percent": min(100, 100 * done // total) if total else None,
        "speed": speed if loading else None,
        "eta": duration(eta) if loading and eta is not None else "",
        "still": loading and speed == 0 and total is not None and done < total,
        "can_pause": download.state in Download.WORKING,
        "can_resume": download.state in Download.KEPT,
        "can_cancel": download.state in OPEN,
        "can_forget": download.state not in OPEN and download.state != Download.State.FAILED,
        "colour": "succeeded" if download.state == Download.State.COMPLETE else download.state,
    }


def load_jobs(found: Iterable[Download]) -> dict[int, Job]:
    """Return the newest job of each download, by the download's key."""
    keys = [str(item.pk) for item in found]
    rows = Job.objects.filter(kind=LOAD, subject_kind="download", subject_id__in=keys).order_by("pk")
    return {int(job.subject_id): job for job in rows}


def open_context() -> dict[str, Any]:
    """The downloads that are not over, those under way first."""
    found = sorted(downloads().filter(state__in=OPEN), key=lambda row: OPEN.index(row.state))
    return {"open": download_rows(found[:MOST_OPEN]), "more": max(0, len(found) - MOST_OPEN)}


def download_context(download: Download) -> dict[str, Any]:
    """One download's page."""
    row = download_rows([download])[0]
    keys = {file["artifact"] for file in download.files if file.get("artifact")}
    there = ModelArtifact.objects.only("pk", "name").in_bulk(keys)
    files, before = [], 0
    for file in download.files:
        done = file["size"] if file["done"] else _part(row, file, before)
        before += file["size"] or 0
        files.append({**file, "have": done, "model": there.get(file.get("artifact"))})
    models = dict.fromkeys(file["model"] for file in files if file["model"])
    return {
        **row,
        "self": row,
        "part": f"download-{download.pk}",
        "files": files,
        "models": list(models),
        "error_link": error_link(download.error),
        "owner_name": download.repo.split("/") if download.repo else None,
        "address": "" if download.repo else download.files[0]["path"].partition("?")[0],
    }


def error_link(error: str) -> str:
    """Return the page that an error names as the one to go to, "" for none."""
    try:
        found = message_of(json.loads(error)).params.get("link")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return found if isinstance(found, str) and found.startswith(("https://", "http://")) else ""


def duration(value: float) -> str:
    """Write how long something will take; "" for longer than anybody waits."""
    if value < 60:
        return f"{value:.0f} s"
    if value < HOUR:
        return f"{value // 60:.0f} min {value % 60:.0f} s"
    if value > 1000 * HOUR:
        return ""
    return _("%(hours)d h %(minutes)d min") % {"hours": value // HOUR, "minutes": value % HOUR // 60}


def _part(row: dict[str, Any], file: dict[str, Any], before: int) -> int | None:
    """Return the bytes of a file that is not done, as far as those of the whole download tell."""
    size, rest = file["size"], row["done"] - before
    return max(0, rest if size is None else min(rest, size))
