"""The forms of alert channels, which are an admin's: what goes in never comes out."""

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from controlpanel.lib.htmx import back, leave
from jobs.forms_alerts import ChannelForm
from jobs.models import AlertChannel, Notice
from jobs.services import alert_channels as service
from jobs.services.alert_notices import send_test
from jobs.services.audit import Actor

Kind = AlertChannel.Kind
ABOUT = {
    Kind.WEBHOOK: "webhook",
    Kind.SLACK: "brand-slack",
    Kind.DISCORD: "brand-discord",
    Kind.TELEGRAM: "brand-telegram",
    Kind.EMAIL: "mail",
}


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
@sensitive_post_parameters("secret")
def channel_new(request: HttpRequest) -> HttpResponse:
    """Choose a kind of channel, then fill in its form."""
    kind = request.GET.get("kind", "")
    if kind not in Kind.values:
        kinds = [{"value": one.value, "word": one.label, "icon": ABOUT[one]} for one in Kind]
        context = {"section": "alerts", "topics": "jobs", "kinds": kinds}
        return render(request, "jobs/alert_channel_kinds.html", context)
    return _channel_form(request, kind, None)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
@sensitive_post_parameters("secret")
def channel_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a channel."""
    channel = get_object_or_404(AlertChannel, pk=pk)
    return _channel_form(request, channel.kind, channel)


@require_POST
@role_required("admin")
def channel_test(request: HttpRequest, pk: int) -> HttpResponse:
    """Send a test message now and say how that went."""
    channel = get_object_or_404(AlertChannel, pk=pk)
    notice = send_test(Actor.web(request), channel)
    if notice.state == Notice.State.SENT:
        messages.success(request, _("The test to %(name)s was sent.") % {"name": channel.name})
    else:
        words = {"name": channel.name, "why": notice.error_text}
        messages.error(request, _("The test to %(name)s was not sent: %(why)s") % words)
    return back(request, "alerts")


@require_POST
@role_required("admin")
def channel_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Forget a channel with its address."""
    channel = get_object_or_404(AlertChannel, pk=pk)
    name = channel.name
    service.delete_channel(Actor.web(request), channel)
    messages.success(request, _("The channel %(name)s was deleted.") % {"name": name})
    return leave(request, "alerts")


def _channel_form(request: HttpRequest, kind: str, channel: AlertChannel | None) -> HttpResponse:
    data = request.POST if request.method == "POST" else None
    name = channel.name if channel else ""  # a save that is refused leaves its values on the row
    form = ChannelForm(kind, channel, data, get_language() or "en")
    if form.is_valid():
        try:
            if channel is None:
                channel = service.add_channel(Actor.web(request), kind, form.channel_data())
            else:
                service.change_channel(Actor.web(request), channel, form.channel_data())
        except Refused as reason:
            form.add_error(reason.field or None, str(reason))
        else:
            messages.success(request, _("The channel %(name)s is kept.") % {"name": channel.name})
            return redirect("alerts")
    context = {
        "section": "alerts",
        "topics": "jobs",
        "kind": Kind(kind),
        "channel": channel,
        "name": name,
        "form": form,
        "without_mail": kind == Kind.EMAIL and not settings.EMAIL_HOST,
    }
    return render(request, "jobs/alert_channel.html", context)
