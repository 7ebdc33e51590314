"""Roles and permission checks: viewer < operator < admin, as Django groups."""

import functools
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

ROLES = ("viewer", "operator", "admin")

View = Callable[..., Any]


def role_of(user: Any) -> str | None:
    """Return the user's highest role, or None for nobody and for accounts without a role."""
    if user is None or not user.is_authenticated or not user.is_active:
        return None
    if user.is_superuser:
        return "admin"
    cached = getattr(user, "_panel_role", "")
    if cached != "":
        return str(cached) if cached else None
    names = set(user.groups.filter(name__in=ROLES).values_list("name", flat=True))
    role = next((name for name in reversed(ROLES) if name in names), None)
    user._panel_role = role
    return role


def has_role(user: Any, role: str) -> bool:
    """True when the user's role is the given one or a higher one."""
    own = role_of(user)
    return own is not None and ROLES.index(own) >= ROLES.index(role)


def refuse(request: HttpRequest, role: str) -> HttpResponse:
    """Answer a request that may not go on: sign in first, or a 403 page that names the role needed."""
    if not request.user.is_authenticated:
        answer = redirect_to_login(request.get_full_path())
        if request.headers.get("HX-Request"):
            return HttpResponse(status=204, headers={"HX-Redirect": answer["Location"]})
        return answer
    return render(request, "403.html", {"needed": role}, status=403)


def role_required(role: str) -> Callable[[View], View]:
    """Let a function view (sync or async) run only for users with the role or a higher one."""

    def decorate(view: View) -> View:
        if iscoroutinefunction(view):

            @functools.wraps(view)
            async def guarded_async(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
                user = await request.auser()
                request.user = user
                if not await sync_to_async(has_role)(user, role):
                    return await sync_to_async(refuse)(request, role)
                answer: HttpResponseBase = await view(request, *args, **kwargs)
                return answer

            guarded: View = guarded_async
        else:

            @functools.wraps(view)
            def guarded_sync(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
                if not has_role(request.user, role):
                    return refuse(request, role)
                answer: HttpResponseBase = view(request, *args, **kwargs)
                return answer

            guarded = guarded_sync
        guarded.role_needed = role  # type: ignore[attr-defined]
        return guarded

    return decorate
