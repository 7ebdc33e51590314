"""Pages of profiles: list, new, edit, duplicate, delete, and the form's preview."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlpanel.lib.access import has_role, role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import leave, say_no
from controlpanel.lib.listing import tidy
from controlpanel.llamacpp.environment import KNOWN
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.rule_types import Diagnosis
from jobs.models import ModelArtifact, Run
from jobs.services.audit import Actor
from jobs.services.fits import STATES
from jobs.services.gpus import sample_here
from servers.form_changes import change_of
from servers.form_policy import memory_findings
from servers.form_preview import Preview, preview_of, with_warnings
from servers.form_templates import chosen_in, filled, rows_for, template_named
from servers.forms import ProfileForm, initial_of, usable_builds
from servers.models import Instance, ServerProfile
from servers.services import profiles as service
from servers.services.estimates import pid_of, prepare
from servers.services.fit import fit_of
from servers.services.instances import request_restart
from servers.services.mending import mended
from servers.services.profiles import ProfileData, data_of
from servers.services.revisions import changes_between
from servers.services.suggestions import suggestions_of
from servers.views.lists import PROFILES, profiles_table
from servers.views.review import wait_of


def _profiles() -> Any:
    return ServerProfile.objects.select_related("build", "model", "mmproj", "instance")


@require_safe
@role_required("viewer")
def profiles(request: HttpRequest) -> HttpResponse:
    """List all profiles."""
    table = profiles_table(PROFILES.read(request.GET))
    context = {"section": "profiles", "topics": f"{table.wish.topic},jobs", "table": table}
    return tidy(request, render(request, "servers/profiles.html", context), table)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def profile_new(request: HttpRequest) -> HttpResponse:
    """Make a profile; `template` fills the form, and build, model and so on may be given too."""
    first = chosen_in(request.GET)
    template = template_named(request.GET.get("template"))
    more: dict[str, Any] = {"templates": rows_for(first)} if request.method != "POST" else {}
    if template and request.method != "POST":
        first = filled(first, template)
        more["template"] = next(row for row in more["templates"] if row.key == template.key)
    return _edit(request, None, first, more)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def profile_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a profile; `change` (a run, `cause`: which one) or `incident` begin with a diagnosis' change."""
    profile = get_object_or_404(_profiles(), pk=pk)
    now = data_of(profile)
    wanted = _mended(request, profile, now)
    more = {"mended": changes_between(now, wanted)} if wanted is not None else {}
    return _edit(request, profile, initial_of(wanted or now), more)


def _mended(request: HttpRequest, profile: ServerProfile, now: ProfileData) -> ProfileData | None:
    """Return the profile as a diagnosis of its server wants it, None when the address names none."""
    number = whole(request.GET.get("cause", "0"))
    known = _diagnoses(request, profile)
    if number is None or not 0 <= number < len(known):
        return None
    return mended(now, Diagnosis.from_json(known[number]).change, pid_of(profile.pk))


def _diagnoses(request: HttpRequest, profile: ServerProfile) -> list[dict[str, Any]]:
    """Return the stored diagnoses of the incident or the run that the address names."""
    if "incident" in request.GET:
        incident = profile.incidents.filter(pk=whole(request.GET["incident"]) or 0).first()
        return [incident.diagnosis] if incident and incident.diagnosis else []
    subject = {"subject_kind": "instance", "subject_id": str(profile.instance.pk)}
    run = Run.objects.filter(pk=request.GET.get("change", "")[:64], **subject).first()
    return run.diagnosis if run else []


@require_safe
@role_required("operator")
def profile_duplicate(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the form for a new profile with the values of another one."""
    profile = get_object_or_404(_profiles(), pk=pk)
    first = {
        **initial_of(data_of(profile)),
        "name": _("%(name)s copy") % {"name": profile.name[:50]},
        "port": None,
    }
    if profile.environment and not has_role(request.user, "admin"):
        messages.info(request, _("The variables are not taken over: only an admin may set them."))
    return _edit(request, None, first)


@require_POST
@role_required("operator")
def profile_preview(request: HttpRequest) -> HttpResponse:
    """Render the consequence of the form as it is typed; its fields too once another build was chosen."""
    pk = whole(request.POST.get("profile"))
    profile = ServerProfile.objects.filter(pk=pk).first() if pk else None
    preview = preview_of(ProfileForm(request.POST, user=request.user, profile=profile), typing=True)
    fit = _fit(preview, pk, "suggest" in request.POST)
    preview = with_warnings(preview, memory_findings(preview.data, fit["fit"]))
    with_fields = request.POST.get("shown_build") != request.POST.get("build")
    context = {
        "preview": preview,
        **fit,
        "change": change_of(preview.data, _old_build(request)),
        "with_fields": with_fields,
        # A field that its group only names has no control and sends nothing.
        "noted": [
            view
            for key, view in preview.fields.items()
            if not view.flag or (not with_fields and (key in request.POST or not view.folded))
        ],
    }
    return render(request, "servers/_profile_preview.html", {**context, "oob": True})


@require_POST
@role_required("operator")
def profile_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a profile and its stopped server."""
    profile = get_object_or_404(_profiles(), pk=pk)
    try:
        service.delete_profile(Actor.web(request), profile)
    except Refused as reason:
        say_no(request, reason)
        return redirect("profile-edit", pk)
    messages.success(request, _("The profile %(name)s was deleted.") % {"name": profile.name})
    return leave(request, "profiles")


def _edit(
    request: HttpRequest,
    profile: ServerProfile | None,
    first: dict[str, Any],
    more: dict[str, Any] | None = None,
) -> HttpResponse:
    """Show the form, or save it; a form with errors comes back with them at their fields."""
    data = request.POST if request.method == "POST" else _as_data(first)
    form = ProfileForm(data, user=request.user, profile=profile)
    if request.method == "POST":
        saved = _save(request, profile, form)
        if saved is not None:
            return redirect("server-detail", saved.pk)
    return show_form(request, profile, form, more)


def show_form(
    request: HttpRequest,
    profile: ServerProfile | None,
    form: ProfileForm,
    more: dict[str, Any] | None = None,
) -> HttpResponse:
    """Render the page of a profile's form; a form that was posted to it shows what is missing."""
    preview = preview_of(form, typing=request.method != "POST")
    fit = _fit(preview, profile.pk if profile else None)
    preview = with_warnings(preview, memory_findings(preview.data, fit["fit"]))
    posted = request.POST.get("based_on", "")
    newer = profile is not None and form.has_error(NON_FIELD_ERRORS, "newer_revision")
    if profile is not None and newer:
        profile.refresh_from_db(fields=["revision"])
    context = {
        "section": "profiles",
        "topics": "jobs",
        "profile": profile,
        # Who has been told of a newer revision saves knowingly the next time.
        "based_on": posted if posted.isdigit() and not newer else profile.revision if profile else "",
        "newer_than": posted if newer and posted.isdigit() else "",
        "reason": request.POST.get("reason", ""),
        "posted": request.method == "POST",
        "running": profile is not None and profile.instance.observed not in Instance.RESTING,
        "preview": preview,
        **fit,
        "change": change_of(preview.data, _old_build(request)),
        "cards": _cards(),
        "variables": [(variable.name, _(variable.help)) for variable in KNOWN.values()],
        "missing": [] if preview.data else _missing(),
    }
    return render(request, "servers/profile_form.html", {**context, **(more or {})})


def _old_build(request: HttpRequest) -> int | None:
    """Return the build that the form had before the one it has now, as far as the page knows."""
    shown = request.POST.get("shown_build")
    return whole(shown if shown != request.POST.get("build") else request.POST.get("old_build"))


def _save(request: HttpRequest, profile: ServerProfile | None, form: ProfileForm) -> ServerProfile | None:
    """Save the form, and restart the server when that is asked for too; None when the form has errors."""
    data = form.profile_data() if form.is_valid() else None
    if data is None or preview_of(form).error_count:
        return None
    actor, reason = Actor.web(request), request.POST.get("reason", "").strip()
    before = profile.revision if profile else 0
    try:
        saved = service.save_profile(actor, profile, data, reason, whole(request.POST.get("based_on")))
    except Refused as refusal:
        error = ValidationError(str(refusal), code=refusal.code)
        form.add_error(refusal.field if refusal.field in form.fields else None, error)
        return None
    if profile is not None and saved.revision == before:
        messages.info(request, _("Nothing was changed."))
    else:
        messages.success(request, _("The profile %(name)s is saved.") % {"name": saved.name})
    if request.POST.get("then") == "restart":
        try:
            request_restart(actor, saved, wait_of(request), reason)
        except Refused as refusal:
            say_no(request, refusal)
    return saved


def _fit(preview: Preview, profile_pk: int | None, suggest: bool = False) -> dict[str, Any]:
    """Return what the form's server takes, and what to change when that is too much or somebody asks."""
    data = preview.data
    if data is None:
        return {"fit": None}
    prepared = prepare(data, pid_of(profile_pk) if profile_pk else None)
    fit = fit_of(prepared)
    wanted = suggest or fit.state in (STATES["tight"], STATES["does not fit"])
    return {"fit": fit, "suggestions": suggestions_of(prepared) if wanted and fit.cards else None}


def _cards() -> list[tuple[str, str]]:
    """Return the NVIDIA cards of this host: (number and name, UUID)."""
    sample = sample_here()
    cards = sample.gpus.gpus if sample else ()
    return [(f"{card.index} · {card.name or 'GPU'}", card.uuid) for card in cards if card.uuid]


def _as_data(first: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in first.items() if value is not None}


def _missing() -> list[str]:
    """Return what has to be there before a profile can be made."""
    found = []
    if not usable_builds().exists():
        found.append("build")
    if not ModelArtifact.objects.filter(kind=ModelArtifact.Kind.MODEL).exists():
        found.append("model")
    return found
