"""Pages of build configs: list, new, edit, build, delete, and the form's preview."""

from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlpanel.lib.access import has_role, role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, leave, say_no
from controlpanel.lib.listing import tidy
from jobs.domain.buildspec import BuildInputs
from jobs.domain.definitions import KNOWN
from jobs.domain.mending import mended
from jobs.forms_builds import ConfigForm, data_of
from jobs.models import Build, BuildConfig, Repository
from jobs.services import building
from jobs.services import configs as service
from jobs.services.audit import Actor
from jobs.services.hosts import local_host
from jobs.services.toolchains import toolchain_of
from jobs.views.build_rows import diagnosis_card
from jobs.views.config_preview import Preview, offers, preview_of
from jobs.views.lists import CONFIGS, configs_table

NAME = 80  # characters of a config's name


@dataclass(frozen=True)
class First:
    """What a form begins with."""

    name: str
    repository: Repository | None
    inputs: BuildInputs

    def shown(self) -> dict[str, Any]:
        """Return the values of the form's fields."""
        return data_of(self.name, self.repository, self.inputs)


@require_safe
@role_required("viewer")
def configs(request: HttpRequest) -> HttpResponse:
    """List all build configs."""
    table = configs_table(CONFIGS.read(request.GET))
    context = {"section": "builds", "topics": f"{table.wish.topic},jobs", "table": table}
    return tidy(request, render(request, "jobs/build_configs.html", context), table)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def config_new(request: HttpRequest) -> HttpResponse:
    """Make a build config; `?change=` begins with the inputs of a failed build, changed as diagnosed."""
    build = _asked_build(request)
    if build is None:
        repository = Repository.objects.order_by("created_at", "pk").first()
        toolchain = toolchain_of(local_host())
        own = toolchain.architectures if toolchain else ()
        inputs = BuildInputs("", backend="cuda" if own else "cpu", architectures=own)
        return _edit(request, None, First(_free_name(repository, inputs.backend), repository, inputs))
    inputs = BuildInputs.from_dict(build.inputs)
    repository = Repository.objects.filter(url=inputs.repository).first()
    return _edit(request, None, First("", repository, inputs), build)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def config_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a build config; builds that were made from it stay as they are."""
    config = get_object_or_404(BuildConfig.objects.select_related("repository", "host"), pk=pk)
    first = First(config.name, config.repository, config.inputs())
    return _edit(request, config, first, _asked_build(request))


@require_POST
@role_required("operator")
def config_preview(request: HttpRequest) -> HttpResponse:
    """Render the consequence of the form as it is typed."""
    form = ConfigForm(request.POST, toolchain_of(local_host()))
    preview = preview_of(form, typing=True, admin=has_role(request.user, "admin"))
    return render(request, "jobs/_config_preview.html", {"preview": preview, "oob": True})


@require_POST
@role_required("operator")
def config_build(request: HttpRequest, pk: int) -> HttpResponse:
    """Start a build of a saved config."""
    config = get_object_or_404(BuildConfig.objects.select_related("repository", "host"), pk=pk)
    try:
        build = building.start_build(Actor.web(request), config)
    except Refused as reason:
        say_no(request, reason)
        return back(request, "build-configs")
    return leave(request, reverse("build-detail", args=[build.pk]))


@require_POST
@role_required("operator")
def config_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a build config; its builds stay."""
    config = get_object_or_404(BuildConfig, pk=pk)
    service.delete_config(Actor.web(request), config)
    messages.success(
        request, _("The build config %(name)s was deleted; its builds stay.") % {"name": config.name}
    )
    if request.POST.get("next"):
        return back(request, "build-configs")
    return leave(request, "build-configs")


def _edit(
    request: HttpRequest, config: BuildConfig | None, first: First, failed: Build | None = None
) -> HttpResponse:
    """Show the form, or save it; a form with errors comes back with all that was typed."""
    host = config.host if config else local_host()
    toolchain = toolchain_of(host)
    card = changed = None
    if request.method == "POST":
        form = ConfigForm(request.POST, toolchain)
        answer = _save(request, config, form)
        if answer is not None:
            return answer
    else:
        if failed is not None:
            card = _asked_card(request, failed)
        shown = first.shown()
        if card is not None:
            wanted = replace(first, inputs=mended(first.inputs, card["change"], toolchain)).shown()
            shown, changed = wanted, changed_fields(shown, wanted)
        form = ConfigForm({key: value for key, value in shown.items() if value is not None}, toolchain)
    admin = has_role(request.user, "admin")
    context = {
        "section": "builds",
        "topics": "jobs",
        "config": config,
        "preview": preview_of(form, typing=request.method != "POST", changed=changed, admin=admin),
        "no_repository": not Repository.objects.exists(),
        "known_definitions": [(key, _(text)) for key, text in KNOWN.items()],
        "failed": failed if card else None,
        "card": card,
        **offers(toolchain),
    }
    return render(request, "jobs/build_config.html", context)


def _save(request: HttpRequest, config: BuildConfig | None, form: ConfigForm) -> HttpResponse | None:
    """Save the form, and build when that was asked for; None when it has to be shown again."""
    preview = preview_of(form)
    builds = request.POST.get("do") == "build"
    if preview.data is None or preview.input_errors or (builds and preview.blocked):
        _say_why(request, preview, builds)
        return None
    host = config.host if config else local_host()
    try:
        saved = service.save_config(Actor.web(request), host, config, preview.data)
    except Refused as reason:
        form.add_error(reason.field if reason.field in form.fields else None, str(reason))
        return None
    if not builds:
        messages.success(request, _("The build config %(name)s is saved.") % {"name": saved.name})
        return redirect("build-configs")
    try:
        build = building.start_build(Actor.web(request), saved)
    except Refused as reason:
        say_no(request, reason)
        return redirect("config-edit", saved.pk)
    return redirect("build-detail", build.pk)


def _free_name(repository: Repository | None, backend: str) -> str:
    """Return a name for a new config, "" when the obvious one is taken."""
    name = f"{repository.name} {backend.upper()}" if repository else ""
    return "" if len(name) > NAME or BuildConfig.objects.filter(name=name).exists() else name


def _say_why(request: HttpRequest, preview: Preview, builds: bool) -> None:
    if builds and preview.blocked and not preview.input_errors:
        words = _("The build was not started, because it cannot work on this host: %(why)s")
        messages.error(request, words % {"why": " ".join(preview.blocked)})
    else:
        messages.error(request, _("Nothing was saved yet: see what is marked below."))


def _asked_build(request: HttpRequest) -> Build | None:
    """Return the build that the address names by `change`, if it was made here."""
    text = request.GET.get("change", "")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        return None
    build = Build.objects.filter(pk=int(text)).first()
    return build if build and build.made_here else None


def _asked_card(request: HttpRequest, build: Build) -> dict[str, Any] | None:
    """Return the diagnosis that the address names by `cause`, else the first that changes something."""
    cards = [diagnosis_card(item) for item in build.diagnosis]
    text = request.GET.get("cause", "")
    asked = cards[int(text) : int(text) + 1] if text.isascii() and text.isdigit() and len(text) < 4 else cards
    return next((card for card in asked if card["change"]), None)


def changed_fields(first: dict[str, Any], wanted: dict[str, Any]) -> dict[str, str]:
    """Return the fields in which two forms differ, each with what it was before in words."""
    return {key: _before(value) for key, value in first.items() if wanted[key] != value}


def _before(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join("=".join(item) if isinstance(item, list) else str(item) for item in value)
    return str(value)
