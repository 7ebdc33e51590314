"""The page of alerts, and the forms of its rules."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlpanel.lib.access import has_role, role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import leave
from controlpanel.lib.words import translate
from jobs.forms_alerts import RuleForm
from jobs.models import AlertRule
from jobs.services import alert_rules as service
from jobs.services.alert_kinds import AlertKind, alert_kind, alert_kinds
from jobs.services.audit import Actor
from jobs.views.alert_rows import alerts_context, channels_context


@require_safe
@role_required("viewer")
def alerts(request: HttpRequest) -> HttpResponse:
    """Show what fires, what fired, the rules, and to an admin the channels."""
    context = {"section": "alerts", "topics": "alerts,jobs", **alerts_context()}
    if has_role(request.user, "admin"):
        context |= channels_context()
    return render(request, "jobs/alerts.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def rule_new(request: HttpRequest) -> HttpResponse:
    """Choose a kind of rule, then fill in its form."""
    kind = alert_kind(request.GET.get("kind", ""))
    if kind is None:
        context = {"section": "alerts", "topics": "jobs", "kinds": alert_kinds()}
        return render(request, "jobs/alert_kinds.html", context)
    return _rule_form(request, kind, None)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def rule_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a rule."""
    rule = get_object_or_404(AlertRule, pk=pk)
    kind = alert_kind(rule.kind)
    if kind is None:
        messages.error(request, _("This panel does not know rules of this kind; it can only be deleted."))
        return redirect("alerts")
    return _rule_form(request, kind, rule)


@require_POST
@role_required("operator")
def rule_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a rule; what it found stays in the history."""
    rule = get_object_or_404(AlertRule, pk=pk)
    title = translate(service.title_of(rule))
    service.delete_rule(Actor.web(request), rule)
    messages.success(request, _("The rule “%(title)s” was deleted.") % {"title": title})
    return leave(request, "alerts")


def _rule_form(request: HttpRequest, kind: AlertKind, rule: AlertRule | None) -> HttpResponse:
    form = RuleForm(kind, rule, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            if rule is None:
                rule = service.add_rule(Actor.web(request), kind.name, form.rule_data())
            else:
                service.change_rule(Actor.web(request), rule, form.rule_data())
        except Refused as reason:
            form.add_error(reason.field or None, str(reason))
        else:
            messages.success(
                request,
                _("The rule “%(title)s” is kept.") % {"title": translate(service.title_of(rule))},
            )
            return redirect("alerts")
    context = {"section": "alerts", "topics": "jobs", "kind": kind, "rule": rule, "form": form}
    return render(request, "jobs/alert_rule.html", context)
