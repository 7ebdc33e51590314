"""manage.py download REPO FILE...: download a model from the hub, or from an address, and wait for it."""

import time
from typing import Any

from django.core.management.base import CommandParser

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from controlpanel.lib.words import translate
from jobs.adapters import hub
from jobs.adapters.hub import HubError
from jobs.domain.hf import BadReference, HubPlace, WebFile, parse
from jobs.domain.hf_files import Choice, catalogue
from jobs.models import Download, HubToken, ModelArtifact, ModelFolder
from jobs.services.audit import Actor
from jobs.services.downloads import State, Wanted, WantedFile, request_download
from jobs.services.hosts import local_host
from jobs.services.hub_tokens import secret_of

MIB = 1024**2


class Command(JsonCommand):
    """Asks for the download; the panel's worker does it."""

    help = "Download a model from the hub, with all its parts, or a .gguf file from an https address."

    def arguments(self, parser: CommandParser) -> None:
        """REPO or an address, which of its files, and where to put them."""
        parser.add_argument(
            "repo", help="owner/name, a link to the hub, or the https address of a .gguf file"
        )
        parser.add_argument("files", nargs="*", help="names of files, or quantisations such as Q4_K_M")
        parser.add_argument("--revision", default="", help="branch, tag or commit (the main branch)")
        parser.add_argument("--token", default="", help="name of a token that everybody may use")
        parser.add_argument("--folder", default="", help="a registered folder (the panel's own)")
        parser.add_argument("--rate", type=float, help="MiB per second at most")
        parser.add_argument("--no-wait", action="store_true", help="return at once")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the download once it has ended; Refused with the reason when it failed."""
        download = request_download(Actor.cli(), local_host(), _wanted(options))
        while not options["no_wait"] and download.state in Download.WORKING:
            time.sleep(0.5)
            download.refresh_from_db()
        if download.state in (State.FAILED, State.CANCELED, State.PAUSED):
            raise Refused(download.error_text or f"the download is {download.state}", code=download.state)
        return _as_json(download)

    def text(self, value: dict[str, Any]) -> str:
        """One line per file."""
        lines = [f"{value['name']}: {value['state']}"]
        return "\n".join([*lines, *(file["path"] for file in value["files"])])


def _wanted(options: dict[str, Any]) -> Wanted:
    try:
        place = parse(options["repo"], hub.endpoint())
    except BadReference as error:
        raise Refused(translate(error.message), code="bad_reference") from error
    more: dict[str, Any] = {
        "token": _named(HubToken, options["token"], name=options["token"], user=None),
        "folder": _named(ModelFolder, options["folder"], path=options["folder"].rstrip("/")),
        "rate": int(options["rate"] * MIB) if options["rate"] else None,
    }
    if isinstance(place, WebFile):
        return Wanted(place.name, (WantedFile(place.url),), **more)
    if not isinstance(place, HubPlace):
        raise Refused("this is neither owner/name nor an address", code="bad_reference")
    try:
        found = hub.repository(
            place.repo, options["revision"] or place.revision, token=secret_of(more["token"])
        )
    except HubError as error:
        raise Refused(translate(error.message), code=error.code) from error
    names = [name for name in (place.file, place.quant, *options["files"]) if name]
    if not names:
        raise Refused("name the files or the quantisation to download", code="no_file")
    choices = catalogue(found.files).choices
    files = [file for name in names for file in _chosen(choices, name).files]
    wanted = tuple(WantedFile(file.path, file.size, file.sha256) for file in dict.fromkeys(files))
    return Wanted(f"{found.repo} {' '.join(names)}", wanted, found.repo, found.commit, **more)


def _chosen(choices: tuple[Choice, ...], name: str) -> Choice:
    """Return the choice that has a file of this name, or this quantisation."""
    for choice in choices:
        if any(name in (file.path, file.name) for file in choice.files):
            return choice
    found = [choice for choice in choices if choice.quant.lower() == name.lower()]
    if not found:
        known = ", ".join(sorted({choice.quant or choice.path for choice in choices})[:20])
        raise Refused(f"the repository has no {name}; it has {known or 'no GGUF files'}", code="no_file")
    return found[0]


def _named(model: Any, given: str, **fields: Any) -> Any:
    if not given:
        return None
    row = model.objects.filter(**fields).first()
    if row is None:
        raise Refused(f"there is no {model._meta.verbose_name} called {given}", code="not_found")
    return row


def _as_json(download: Download) -> dict[str, Any]:
    keys = [file["artifact"] for file in download.files if file.get("artifact")]
    models = ModelArtifact.objects.filter(pk__in=keys).values("name", "path", "kind", "architecture", "quant")
    return {
        "download": download.pk,
        "name": download.name,
        "state": download.state,
        "files": [
            {key: file[key] for key in ("path", "name", "size", "sha256", "done")} for file in download.files
        ],
        "folder": download.folder,
        "models": list(models),
    }
