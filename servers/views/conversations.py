"""The list of a user's conversations: find, rename, delete."""

from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from controlpanel.lib.access import role_required
from controlpanel.lib.errors import Refused
from servers.models import Conversation
from servers.services import conversations as service


class SignedIn(HttpRequest):
    """A request as these views get it, after middleware and the role check."""

    user: User
    htmx: HtmxDetails


def listed(request: SignedIn) -> dict[str, Any]:
    """Return the context of the list: the page `?page=` of what `?q=` finds, the latest first."""
    words = request.GET.get("q", "")[:200]
    rows = service.search_conversations(request.user, words)
    page = Paginator(rows, service.LISTED).get_page(request.GET.get("page"))
    return {"mine": page, "q": words, "current_path": _current_path(request)}


@require_GET
@role_required("viewer")
def conversation_list(request: SignedIn) -> HttpResponse:
    """Return a page of the list as the search field and "Show more" ask for it."""
    return render(request, "servers/_conversations.html", listed(request))


@require_http_methods(["GET", "POST"])
@role_required("viewer")
def conversation_rename(request: SignedIn, pk: int) -> HttpResponse:
    """Show a row of the list as a form (`?keep` shows it as a row again), and store the new title."""
    row = _own(request, pk)
    context: dict[str, Any] = {"row": row, "current_path": _current_path(request)}
    if request.method == "GET":
        name = "_conversation" if "keep" in request.GET else "_conversation_rename"
        return render(request, f"servers/{name}.html", context)
    title = request.POST.get("title", "")
    try:
        service.rename_conversation(row, title)
    except Refused as error:
        context |= {"error": str(error), "title": title}
        return render(request, "servers/_conversation_rename.html", context, status=422)
    if not request.htmx:
        return redirect(_address(row))
    context["renamed"] = True
    return render(request, "servers/_conversation.html", context)


@require_POST
@role_required("viewer")
def conversation_delete(request: SignedIn, pk: int) -> HttpResponse:
    """Delete a conversation; a stream that answers in it ends by itself."""
    row = _own(request, pk)
    address = _address(row)
    service.delete_conversation(row)
    if not request.htmx:
        return redirect("playground")
    if _current_path(request) == address:
        return HttpResponseClientRedirect(reverse("playground"))
    return HttpResponse()


def _own(request: SignedIn, pk: int) -> Conversation:
    return get_object_or_404(service.conversations_of(request.user), pk=pk)


def _current_path(request: SignedIn) -> str:
    """Return the path of the page on which the list stands."""
    return urlsplit(request.htmx.current_url_abs_path or "").path if request.htmx else request.path


def _address(row: Conversation) -> str:
    return reverse("playground-conversation", args=[row.pk])
