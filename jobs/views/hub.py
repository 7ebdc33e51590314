"""Pages of the model hub: search it, look at a repository's choices and into their headers, download one."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.text import Worded
from controlpanel.lib.words import translate
from controlpanel.llamacpp.gguf import GgufError
from jobs.adapters import hub
from jobs.domain.hf import BadReference, HubPlace, WebFile, parse
from jobs.domain.hf_files import Choice, catalogue, nothing_to_run
from jobs.forms_models import HubForm
from jobs.models import ModelFolder
from jobs.services.audit import Actor
from jobs.services.downloads import Wanted, request_download
from jobs.services.hosts import local_host
from jobs.views import hub_rows
from jobs.views.hub_rows import Place
from jobs.views.model_facts import shortened

RECENT = "hub_recent"  # in the session: what was looked for, newest first
MOST_RECENT = 6
SUGGESTED = ("Qwen3.6 MTP", "Qwen3.5 35B A3B MTP", "Gemma 4", "GLM 4.5 Air", "gpt-oss")


@require_safe
@role_required("operator")
def find(request: HttpRequest) -> HttpResponse:
    """Search the hub for words; a name, link or command goes to what it means."""
    text = request.GET.get("q", "").strip()
    context: dict[str, Any] = {"section": "models", "topics": "jobs", "q": text, "suggested": SUGGESTED}
    if text:
        try:
            place = parse(text, hub.endpoint())
            if place is not None:
                return redirect(_address_of(place))
            _remember(request, " ".join(text.split())[: hub.MAX_QUERY])
            context["found"] = [
                (item, *item.repo.split("/"), shortened(item.parameters)) for item in hub.search(text)
            ]
        except BadReference as error:
            context["bad"] = translate(error.message)
        except hub.HubError as error:
            context["error"] = hub_rows.error_view(error)
    context["recent"] = request.session.get(RECENT, [])
    return render(request, "jobs/hub_find.html", context)


@require_safe
@role_required("operator")
def hub_repository(request: HttpRequest, owner: str, name: str) -> HttpResponse:
    """Show the choices of a repository; `file` marks one, and what goes along with it is ticked."""
    return _repository(request, f"{owner}/{name}", request.GET)


@require_POST
@role_required("operator")
def hub_peek(request: HttpRequest, owner: str, name: str) -> HttpResponse:
    """Look into the header of the marked choice, before anything is downloaded."""
    place = _place(request, f"{owner}/{name}", request.POST)
    context: dict[str, Any] = {"repo": place.repo}
    try:
        found = place.read()
        picked = _picked(found, request.POST)
        if picked is None:
            return render(request, "jobs/_hub_peek.html", context)
        at = Place(place.repo, found.commit, place.token)
        context |= hub_rows.peek_view(at, picked, _extras(picked, request.POST))
    except (Worded, GgufError) as error:
        context["error"] = hub_rows.error_view(error)
    return render(request, "jobs/_hub_peek.html", context)


@require_POST
@role_required("operator")
def hub_download(request: HttpRequest, owner: str, name: str) -> HttpResponse:
    """Download the marked choice with what is ticked; sizes and hashes are the hub's, not the page's."""
    form = HubForm(Actor.web(request).user, request.POST)
    place = _place(request, f"{owner}/{name}", request.POST)
    if not form.is_valid():
        return _repository(request, place.repo, request.POST, form)
    try:
        found = place.read()
        picked = _picked(found, request.POST)
        if picked is None or not picked.complete:
            raise Refused(_("Choose what to download."))
        download = request_download(Actor.web(request), local_host(), _wanted(request, form, found, picked))
    except Refused as reason:
        form.add_error(reason.field if reason.field in form.fields else None, str(reason))
        return _repository(request, place.repo, request.POST, form)
    except Worded:
        # The page asks again, and says what is wrong.
        return _repository(request, place.repo, request.POST, form)
    return redirect("download-detail", download.pk)


def _repository(request: HttpRequest, repo: str, data: Any, form: HubForm | None = None) -> HttpResponse:
    place = _place(request, repo, data)
    owner, _slash, name = repo.partition("/")
    context: dict[str, Any] = {"section": "models", "topics": "jobs", "owner": owner, "name": name}
    context |= {"repo": repo, "revision": place.revision, "tokens": HubForm(Actor.web(request).user, data)}
    try:
        found = place.read()
    except Worded as error:
        context["error"] = hub_rows.error_view(error)
        return render(request, "jobs/hub_repository.html", context)
    _remember(request, found.repo)
    choices = catalogue(found.files)
    picked = _picked(found, data)
    extras = _extras(picked, data)
    if form is None:
        form = HubForm(Actor.web(request).user, _begun(request, data, found))
        form.is_valid()
    files = hub_rows.wanted_files(picked, extras) if picked else ()
    folder: ModelFolder | None = form.cleaned_data.get("folder")
    nothing = nothing_to_run(choices)
    context |= {
        "found": found,
        "groups": hub_rows.groups(choices, picked, found.repo),
        "nothing": translate(nothing) if nothing else "",
        "picked": picked,
        "extras": extras,
        "forecast": hub_rows.forecast_view(local_host(), files, folder) if picked else None,
        "form": form,
        "left_out": len(choices.others),
    }
    return render(request, "jobs/hub_repository.html", context)


def _place(request: HttpRequest, repo: str, data: Any) -> Place:
    token = hub_rows.token_of(Actor.web(request).user, data.get("token", ""))
    return Place(repo, data.get("revision", "").strip()[:200], token)


def _picked(found: hub.HubRepository, data: Any) -> Choice | None:
    asked = HubPlace(
        found.repo, "", data.get("file", ""), data.get("quant", "")[:40], data.get("folder_path", "")
    )
    return hub_rows.pick(catalogue(found.files), asked)


def _extras(picked: Choice | None, data: Any) -> list[dict[str, Any]]:
    """Return what goes along; ticks count when they were made for this choice."""
    same = picked is not None and data.get("shown") == picked.path
    return hub_rows.extras_of(picked, data.getlist("extra") if same else None)


def _begun(request: HttpRequest, data: Any, found: hub.HubRepository) -> Any:
    """Return the form's values; for gated models an own token is chosen at first."""
    if "token" in data or not found.gated:
        return data
    token = HubForm(Actor.web(request).user).fields["token"].queryset.first()  # type: ignore[attr-defined]
    return {**data.dict(), "token": token.pk if token else ""}


def _wanted(request: HttpRequest, form: HubForm, found: hub.HubRepository, picked: Choice) -> Wanted:
    named = f"{picked.base} {picked.quant}".strip() or found.repo
    return Wanted(
        name=named,
        files=hub_rows.wanted_files(picked, _extras(picked, request.POST)),
        repo=found.repo,
        revision=found.commit,
        token=form.cleaned_data["token"],
        folder=form.cleaned_data["folder"],
        rate=form.bytes_per_second(),
    )


def _address_of(place: HubPlace | WebFile) -> str:
    """Return the panel's page of what somebody pasted."""
    if isinstance(place, WebFile):
        return f"{reverse('model-address')}?{urlencode({'url': place.url})}"
    asked = {
        "revision": place.revision,
        "file": place.file,
        "quant": place.quant,
        "folder_path": place.folder,
    }
    query = urlencode({key: value for key, value in asked.items() if value})
    return reverse("hub-repository", args=place.repo.split("/")) + (f"?{query}" if query else "")


def _remember(request: HttpRequest, text: str) -> None:
    """Keep what was looked for in the session, newest first."""
    recent = [text, *(item for item in request.session.get(RECENT, []) if item != text)][:MOST_RECENT]
    if recent != request.session.get(RECENT):
        request.session[RECENT] = recent
