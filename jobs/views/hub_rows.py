"""What the pages of the hub show: a repository's choices, what goes along with one, and errors in words."""

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.contrib.auth.models import User
from django.core.cache import cache
from django.utils.translation import gettext as _

from controlpanel.lib.text import Worded
from controlpanel.lib.words import stored, translate
from controlpanel.llamacpp.gguf import GgufError, GgufHeader, examine_header
from controlpanel.llamacpp.gguf_report import facts_of_model, partner_of, to_json
from jobs.adapters import hub
from jobs.domain.hf import HubPlace
from jobs.domain.hf_files import Catalogue, Choice, Kind, chosen, suggested
from jobs.domain.hf_quants import bits_of
from jobs.models import Download, Host, HubToken, ModelArtifact, ModelFolder
from jobs.services.downloads import Forecast, WantedFile, forecast
from jobs.services.fits import fit_line
from jobs.services.gguf_reports import report_header
from jobs.services.hub_tokens import secret_of, usable
from jobs.views.download_rows import OPEN
from jobs.views.model_facts import judged, report_view, verdicts_of
from jobs.views.model_rows import partners_among

KEPT = 120  # seconds for which a repository's list of files is not asked for again
WANTS_TOKEN = frozenset({"no_token", "bad_token", "denied", "rate_limit", "not_found_repo"})
PASSES = frozenset({"rate_limit", "hub_down", "bad_answer", "stalled"})


@dataclass(frozen=True)
class Place:
    """What of the hub a page is about, and with which token it asks."""

    repo: str
    revision: str = ""
    token: HubToken | None = None

    def read(self) -> hub.HubRepository:
        """Return the repository, from memory when it was asked for just now; raises HubError, WorkFailed."""
        parts = (hub.endpoint(), self.repo, self.revision, str(self.token.pk if self.token else ""))
        key = "hub-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()
        found: hub.HubRepository | None = cache.get(key)
        if found is None:
            found = hub.repository(self.repo, self.revision, token=secret_of(self.token))
            cache.set(key, found, KEPT)
        return found


def token_of(user: User | None, text: str) -> HubToken | None:
    """Return the token that an address names, None for one that the person may not use."""
    key = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    return usable(user).filter(pk=key).first() if key else None


def error_view(error: Worded | GgufError) -> dict[str, Any]:
    """Return an error in words with what can be done about it."""
    code = getattr(error, "code", "")
    return {
        "text": translate(error.message),
        "code": code,
        "link": getattr(error, "link", ""),
        "wants_token": code in WANTS_TOKEN,
        "passes": code in PASSES or code.startswith("http_5"),
    }


def pick(found: Catalogue, place: HubPlace) -> Choice | None:
    """Return the choice that is marked at first: what was asked for, else the usual one."""
    asked = chosen(found, place) if place.file or place.quant else None
    return asked or suggested(found.models) or next(iter(found.choices), None)


def groups(found: Catalogue, picked: Choice | None, repo: str) -> list[dict[str, Any]]:
    """Return the choices of models by bits, the finest first, then what can be had besides."""
    usual, here = suggested(found.models), on_host(repo)
    several = len({choice.base for choice in found.models}) > 1

    def rows(choices: Iterable[Choice]) -> list[dict[str, Any]]:
        return [
            {
                "choice": choice,
                "picked": picked is not None and choice.path == picked.path,
                "usual": choice == usual,
                "named": several or choice.kind != Kind.MODEL or not choice.quant,
                "here": here.get(choice.path),
            }
            for choice in choices
        ]

    shown = [
        {"title": _("%(number)s bits") % {"number": bits} if bits else _("Other"), "rows": rows(choices)}
        for bits, choices in groupby(found.models, lambda choice: int(bits_of(choice.quant)))
    ]
    for title, choices in (
        (_("Vision projectors"), found.projectors),
        (_("MTP heads without a model"), found.companions),
    ):
        if choices:
            shown.append({"title": title, "rows": rows(choices)})
    return shown


def on_host(repo: str) -> dict[str, dict[str, Any]]:
    """Return which files of a repository are here, or on their way, by their path in it."""
    found: dict[str, dict[str, Any]] = {}
    for download in Download.objects.filter(repo=repo, state__in=OPEN):
        found |= {file["path"]: {"download": download} for file in download.files}
    for artifact in ModelArtifact.objects.only("pk", "source").filter(source__repo=repo):
        found[artifact.source["path"]] = {"model": artifact}
    return found


def extras_of(choice: Choice | None, ticked: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return what goes along with a model; `ticked` are paths, None: the best of each kind."""
    if choice is None:
        return []
    if ticked is None:
        best = (choice.projectors[:1], choice.companions[:1])
        ticked = [other.path for others in best for other in others]
    rows = [(_("vision projector"), other) for other in choice.projectors]
    rows += [(_("MTP heads"), other) for other in choice.companions]
    return [{"choice": other, "word": word, "ticked": other.path in ticked} for word, other in rows]


def wanted_files(choice: Choice, extras: Iterable[dict[str, Any]]) -> tuple[WantedFile, ...]:
    """Return the files of a choice and of what was ticked with it."""
    taken = [choice, *(extra["choice"] for extra in extras if extra["ticked"])]
    return tuple(
        WantedFile(file.path, file.size, file.sha256) for taken_one in taken for file in taken_one.files
    )


def forecast_view(
    host: Host, files: tuple[WantedFile, ...], folder: ModelFolder | None = None
) -> dict[str, Any]:
    """Return what the disk will have left."""
    found: Forecast = forecast(host, files, folder)
    left = None if found.needed is None or found.free is None else found.free - found.needed
    return {"needed": found.needed, "free": found.free, "fits": found.fits, "left": left}


def peek_view(place: Place, choice: Choice, extras: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return what the headers of a choice and of one projector and one companion say, before the download.

    All are read at the same time. Raises HubError, PeekError, AddressRefused, GgufError or WorkFailed for the
    choice itself; what goes wrong with the others is told beside them.
    """
    from jobs.adapters.peek import peek_hub  # brings the HTTP client along

    secret = secret_of(place.token)
    first = {extra["word"]: extra["choice"] for extra in extras if extra["ticked"]}
    others = list(first.values())

    def look(one: Choice) -> GgufHeader:
        return peek_hub(HubPlace(place.repo, place.revision, one.path), token=secret)

    with ThreadPoolExecutor(len(others) + 1) as pool:
        waiting = [pool.submit(look, one) for one in (choice, *others)]
        header = waiting[0].result()
        view = header_view(header, choice.files[0].name)
        for one, answer in zip(others, waiting[1:], strict=True):
            name = one.files[0].name
            try:
                beside = answer.result()
                theirs = facts_of_model(examine_header(beside, name))
            except (Worded, GgufError) as error:
                view["failed"].append((name, translate(error.message)))
                continue
            partner = partner_of(view["facts"], name, theirs)
            if partner is None:
                view["failed"].append(
                    (name, _("By its header it is another kind of file than its name says."))
                )
            else:
                view["beside"].append(judged(name, partner.fit.fits, partner.fit.problems))
                if view["fit_line"] and beside.projector and partner.fit.fits:
                    view["fit_line"] = fit_line(header, beside)
    return view


def header_view(header: GgufHeader, name: str) -> dict[str, Any]:
    """Return what a header that was read from elsewhere says."""
    report = report_header(header, name)
    return {
        "view": report_view(to_json(report, stored)),
        "facts": report.facts,
        "verdicts": verdicts_of(report),
        "partners": partners_among(report.facts, ModelArtifact.objects.all())
        if report.facts.content != "model"
        else [],
        "beside": [],
        "failed": [],
        "file_size": header.file_size,
        "fit_line": fit_line(header) if report.facts.content == "model" else None,
    }
