"""What the pages of the jobs app keep current."""

from typing import Any

from django.template.loader import render_to_string

from controlpanel.lib.access import has_role, role_of
from jobs.live import Topic, register_topic
from jobs.models import Build
from jobs.views import rows


def may_see(user: Any, _arg: str) -> bool:
    """Everybody with a role may see every page."""
    return has_role(user, "viewer")


def live(template: str, user: Any, context: dict[str, Any]) -> str:
    """Render a partial as it replaces the one on the page."""
    role = role_of(user)
    flags = {"role": role, "is_operator": role in {"operator", "admin"}, "is_admin": role == "admin"}
    return render_to_string(template, {**context, **flags, "oob": True})


def _builds(user: Any, _arg: str) -> str:
    return live("jobs/_builds.html", user, rows.builds_context())


def _build(user: Any, pk: str) -> str:
    build = Build.objects.select_related("host").filter(pk=int(pk)).first()
    return live("jobs/_build.html", user, rows.build_context(build)) if build else ""


def _models(user: Any, _arg: str) -> str:
    return live("jobs/_models.html", user, rows.models_context())


def _strip(user: Any, _arg: str) -> str:
    return live("jobs/_strip.html", user, rows.strip_context())


def register() -> None:
    """Called once from the app's registrations."""
    register_topic(Topic("builds", frozenset({"build", "instance"}), may_see, _builds))
    register_topic(Topic("build", frozenset({"build", "job"}), may_see, _build))
    register_topic(Topic("models", frozenset({"artifact", "instance"}), may_see, _models))
    register_topic(Topic("jobs", frozenset({"job"}), may_see, _strip))
