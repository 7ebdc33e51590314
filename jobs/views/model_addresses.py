"""The page of a file at any address: what its header says, and the download."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.text import Worded
from controlpanel.llamacpp.gguf import GgufError
from jobs.adapters import hub
from jobs.domain.hf import BadReference, WebFile, parse
from jobs.forms_models import AddressForm
from jobs.services.audit import Actor
from jobs.services.downloads import Wanted, WantedFile, request_download
from jobs.services.hosts import local_host
from jobs.views import hub_rows


@require_safe
@role_required("operator")
def model_address(request: HttpRequest) -> HttpResponse:
    """Show what is known of a file by its address; the page asks for its header by itself."""
    url = request.GET.get("url", "")
    try:
        file = _file(url)
    except Worded:
        # The search says what is wrong with it, or leads to the repository that it means.
        return redirect(f"{reverse('model-find')}?{urlencode({'q': url})}" if url else "model-find")
    return _page(request, file, AddressForm({"url": url}))


@require_POST
@role_required("operator")
def address_peek(request: HttpRequest) -> HttpResponse:
    """Look into the header of the file."""
    context: dict[str, Any] = {}
    try:
        file = _file(request.POST.get("url", ""))
        from jobs.adapters.peek import peek_address  # brings the HTTP client along

        found = hub_rows.header_view(peek_address(file.url), file.name)
        files = (WantedFile(file.url, found["file_size"]),)
        context |= {**found, "forecast": hub_rows.forecast_view(local_host(), files)}
    except (Worded, GgufError) as error:
        context["error"] = hub_rows.error_view(error)
    return render(request, "jobs/_hub_peek.html", context)


@require_POST
@role_required("operator")
def address_download(request: HttpRequest) -> HttpResponse:
    """Download the file."""
    form = AddressForm(request.POST)
    try:
        file = _file(request.POST.get("url", ""))
    except Worded:
        return redirect("model-find")
    if form.is_valid():
        wanted = Wanted(
            name=file.name.removesuffix(".gguf"),
            files=(WantedFile(file.url),),
            folder=form.cleaned_data["folder"],
            rate=form.bytes_per_second(),
        )
        try:
            _check_address(file)
            download = request_download(Actor.web(request), local_host(), wanted)
        except Refused as reason:
            form.add_error(reason.field if reason.field in form.fields else None, str(reason))
        except Worded as error:
            form.add_error(None, hub_rows.error_view(error)["text"])
        else:
            return redirect("download-detail", download.pk)
    return _page(request, file, form)


def _file(url: str) -> WebFile:
    """Return the file that an address names; BadReference when it names none, or one of the hub."""
    found = parse(url, hub.endpoint())
    if not isinstance(found, WebFile):
        raise BadReference("This is not the address of a file.")
    return found


def _check_address(file: WebFile) -> None:
    """Raise AddressRefused where the panel does not connect to."""
    from jobs.adapters.addresses import guard  # brings the HTTP client along

    guard().check_url(file.url)


def _page(request: HttpRequest, file: WebFile, form: AddressForm) -> HttpResponse:
    context: dict[str, Any] = {"section": "models", "topics": "jobs", "file": file, "form": form}
    context |= {"host": file.url.partition("://")[2].partition("/")[0], "shown": file.url.partition("?")[0]}
    try:
        _check_address(file)
    except Worded as error:
        context["error"] = hub_rows.error_view(error)
    context["plain"] = not file.name.endswith(".gguf")
    return render(request, "jobs/model_address.html", context)
