"""Template context that every page needs."""

from django.http import HttpRequest

from controlpanel.lib.access import role_of


def panel(request: HttpRequest) -> dict[str, object]:
    """Return the signed-in user's role and what it may do."""
    role = role_of(request.user) if hasattr(request, "user") else None
    return {
        "role": role,
        "is_operator": role in {"operator", "admin"},
        "is_admin": role == "admin",
    }
