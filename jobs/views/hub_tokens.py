"""The page of tokens for the hub: they go in, and only their names come out."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from controlpanel.lib.access import has_role, role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, say_no
from jobs.domain.hf import PUBLIC_HUB
from jobs.forms_models import TokenForm
from jobs.services import hub_tokens as service
from jobs.services.audit import Actor


@require_safe
@role_required("operator")
def tokens(request: HttpRequest) -> HttpResponse:
    """List the tokens that one may use."""
    return _page(request, TokenForm(admin=has_role(request.user, "admin")))


@require_POST
@role_required("operator")
@sensitive_post_parameters("secret")
def token_add(request: HttpRequest) -> HttpResponse:
    """Keep a token; one for everybody is an admin's."""
    form = TokenForm(request.POST, admin=has_role(request.user, "admin"))
    if form.is_valid():
        clean = form.cleaned_data
        try:
            row = service.add_token(
                Actor.web(request), clean["name"], clean["secret"], shared=clean.get("shared", False)
            )
        except Refused as reason:
            form.add_error(reason.field or None, str(reason))
        else:
            messages.success(request, _("The token %(name)s is kept.") % {"name": row.name})
            return redirect("hub-tokens")
    return _page(request, form)


@require_POST
@role_required("operator")
def token_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Forget a token of one's own; one for everybody is an admin's."""
    token = get_object_or_404(service.usable(Actor.web(request).user), pk=pk)
    name = token.name
    try:
        service.delete_token(Actor.web(request), token)
    except Refused as reason:
        say_no(request, reason)
    else:
        messages.success(request, _("The token %(name)s was deleted.") % {"name": name})
    return back(request, "hub-tokens")


def _page(request: HttpRequest, form: TokenForm) -> HttpResponse:
    rows = service.usable(Actor.web(request).user).select_related("user").order_by("name")
    context = {
        "section": "models",
        "topics": "jobs",
        "rows": rows,
        "form": form,
        "settings_page": f"{PUBLIC_HUB}/settings/tokens",
    }
    return render(request, "jobs/hub_tokens.html", context)
