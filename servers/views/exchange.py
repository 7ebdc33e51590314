"""Profiles in and out: a pasted command becomes a profile, a profile becomes a file for elsewhere."""

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from controlpanel.lib.access import has_role, role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.words import translate
from controlpanel.llamacpp.exporting import KINDS
from controlpanel.llamacpp.extra_args import MAX_TEXT
from jobs.forms import PanelForm
from servers.forms import BuildChoice, ProfileForm, usable_builds
from servers.models import ServerProfile
from servers.services.exports import export_profile
from servers.services.imports import import_command
from servers.views.profiles import show_form


class ImportForm(PanelForm):
    """A command, and the build that is to run it."""

    command = forms.CharField(
        label=gettext_lazy("Command"),
        max_length=MAX_TEXT,
        widget=forms.Textarea(attrs={"rows": 9, "spellcheck": "false", "class": "form-control mono"}),
        help_text=gettext_lazy(
            "A llama-server command, also over several lines, a docker run command, a systemd unit or its "
            "ExecStart line, with variables in front or not."
        ),
    )
    build = BuildChoice(usable_builds(), label=gettext_lazy("Build that is to run it"), empty_label=None)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def profile_import(request: HttpRequest) -> HttpResponse:
    """Read a pasted command and say what became of each part; `then` = form goes on to the profile's form."""
    first = usable_builds().order_by("-pk").values_list("pk", flat=True).first()
    form = ImportForm(request.POST) if request.method == "POST" else ImportForm(initial={"build": first})
    found = None
    if request.method == "POST" and form.is_valid():
        admin = has_role(request.user, "admin")
        try:
            found = import_command(form.cleaned_data["command"], form.cleaned_data["build"], admin=admin)
        except Refused as reason:
            form.add_error("command", str(reason))
    if found and request.POST.get("then") == "form":
        values = {key: value for key, value in found.values.items() if value is not None}
        return show_form(request, None, ProfileForm(values, user=request.user))
    context = {"section": "profiles", "form": form, "found": found, "usable": first is not None}
    return render(request, "servers/profile_import.html", context)


@require_safe
@role_required("viewer")
def profile_export(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a profile as a file of one kind (`as`); `download` = 1 gives the file itself."""
    rows = ServerProfile.objects.select_related("build__host", "model__host", "mmproj__host")
    profile = get_object_or_404(rows, pk=pk)
    kind = next((key for key in KINDS if key == request.GET.get("as", "shell")), None)
    if kind is None:
        raise Http404
    context = {
        "section": "profiles",
        "profile": profile,
        "kind": kind,
        "kinds": [(key, _(label)) for key, label in KINDS.items()],
    }
    try:
        found = export_profile(profile, kind)
    except Refused as reason:
        return render(request, "servers/profile_export.html", {**context, "refused": str(reason)})
    if request.GET.get("download") == "1":
        headers = {"Content-Disposition": f'attachment; filename="{found.filename}"'}
        return HttpResponse(found.text, content_type="text/plain; charset=utf-8", headers=headers)
    notes = [translate(note) for note in found.notes]
    return render(request, "servers/profile_export.html", {**context, "found": found, "notes": notes})
