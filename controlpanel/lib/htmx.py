"""Answers to a button or form that work with htmx and without it."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme


def back(request: HttpRequest, default: str, *args: object) -> HttpResponse:
    """Redirect to the page that the button stood on, else to the named one.

    htmx follows the redirect and takes the part of the page that the button asks for.
    """
    came_from = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(came_from, {request.get_host()}, require_https=request.is_secure()):
        return redirect(came_from)
    return redirect(resolve_url(default, *args))


def leave(request: HttpRequest, name: str) -> HttpResponse:
    """Load another page, for example because the row of this one is gone."""
    if request.headers.get("HX-Request"):
        return HttpResponse(status=204, headers={"HX-Redirect": resolve_url(name)})
    return redirect(name)


def say_no(request: HttpRequest, reason: Exception) -> None:
    """Show why a request was refused on the next page."""
    messages.error(request, str(reason))
