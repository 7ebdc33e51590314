"""The drawer with the sampling settings of a conversation."""

from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET, require_POST

from controlpanel.lib.access import role_required
from controlpanel.lib.words import translate
from servers.domain.sampling import MAX_SYSTEM, SETTINGS, SYSTEM, read_sampling, server_defaults
from servers.models import Conversation, ServerProfile
from servers.services import conversations as service
from servers.services.answers import server_props
from servers.views.conversations import SignedIn


@require_GET
@role_required("viewer")
async def sampling(request: HttpRequest) -> HttpResponse:
    """Return the fields for `?conversation=` or, with the values typed so far, for a server `?profile=`."""
    number = request.GET.get("conversation", "")
    if number and not number.isdecimal():
        return HttpResponse(status=404)
    row, profile = await sync_to_async(_chosen)(request, number)
    defaults = server_defaults(await server_props(profile)) if profile else {}
    values: dict[str, Any] = row.sampling if row else request.GET.dict()
    return await sync_to_async(_fields)(request, row, values, defaults)


@require_POST
@role_required("viewer")
def conversation_sampling(request: SignedIn, pk: int) -> HttpResponse:
    """Store the settings as they are in the form; all of them or, when one is wrong, none."""
    row = get_object_or_404(service.conversations_of(request.user), pk=pk)
    found, wrong = read_sampling(request.POST.dict())
    if not wrong:
        service.set_sampling(row, found)
    context = {
        "conversation": row,
        "errors": [translate(message) for message in wrong.values()],
        "saved": True,
    }
    return render(request, "servers/_sampling_note.html", context, status=422 if wrong else 200)


def _chosen(request: HttpRequest, number: str) -> tuple[Conversation | None, ServerProfile | None]:
    if number:
        row = get_object_or_404(service.conversations_of(request.user), pk=int(number))  # type: ignore[arg-type]
        return row, row.profile
    return None, ServerProfile.objects.filter(slug=request.GET.get("profile", "")).first()


def _fields(
    request: HttpRequest, row: Conversation | None, values: dict[str, Any], defaults: dict[str, str]
) -> HttpResponse:
    fields = [
        {
            "setting": setting,
            "value": values.get(setting.name, ""),
            "known": setting.name in defaults,
            "default": defaults.get(setting.name, ""),
            "step": "1" if setting.whole else "any",
        }
        for setting in SETTINGS
    ]
    context = {
        "conversation": row,
        "fields": fields,
        "system": values.get(SYSTEM, ""),
        "max_system": MAX_SYSTEM,
        "form": "" if row else "composer",
    }
    return render(request, "servers/_sampling.html", context)
