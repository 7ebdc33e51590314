"""What the pages of the jobs app keep current."""

from collections.abc import Callable
from typing import Any

from django.template.loader import render_to_string

from controlpanel.lib.access import has_role, role_of
from controlpanel.lib.listing import Listing, Table, Wish
from jobs.live import Topic, register_topic
from jobs.models import Build, ModelArtifact
from jobs.views import lists, rows, work

STRIP_EVERY = 4.0  # seconds: no event says that a job waits by now


def may_see(user: Any, _arg: str) -> bool:
    """Everybody with a role may see every page."""
    return has_role(user, "viewer")


def live(template: str, user: Any, context: dict[str, Any]) -> str:
    """Render a partial as it replaces the one on the page."""
    role = role_of(user)
    flags = {"role": role, "is_operator": role in {"operator", "admin"}, "is_admin": role == "admin"}
    return render_to_string(template, {**context, **flags, "oob": True})


def may_see_list(listing: Listing) -> Callable[[Any, str], bool]:
    """Everybody with a role may see a list, sorted and filtered in a way that the list knows."""
    return lambda user, arg: has_role(user, "viewer") and listing.is_arg(arg)


def list_topic(
    listing: Listing, events: frozenset[str], template: str, shown: Callable[[Wish], Table]
) -> Topic:
    """Return the topic that keeps a list current as its page shows it: its argument is the wish."""

    def render(user: Any, arg: str) -> str:
        return live(template, user, {"table": shown(listing.parse(arg))})

    return Topic(listing.name, events, may_see_list(listing), render)


def _build(user: Any, pk: str) -> str:
    build = Build.objects.select_related("host").filter(pk=int(pk)).first()
    return live("jobs/_build.html", user, rows.build_context(build)) if build else ""


def _model(user: Any, pk: str) -> str:
    artifact = ModelArtifact.objects.select_related("host").filter(pk=int(pk)).first()
    return live("jobs/_model.html", user, rows.model_context(artifact)) if artifact else ""


def _strip(user: Any, _arg: str) -> str:
    return live("jobs/_strip.html", user, work.strip_context())


def register() -> None:
    """Called once from the app's registrations."""
    users = frozenset({"instance"})
    builds, models = frozenset({"build"}) | users, frozenset({"artifact"}) | users
    register_topic(list_topic(lists.BUILDS, builds, "jobs/_builds.html", lists.builds_table))
    register_topic(list_topic(lists.MODELS, models, "jobs/_models.html", lists.models_table))
    register_topic(list_topic(lists.JOBS, frozenset({"job"}), "jobs/_activity.html", lists.jobs_table))
    register_topic(Topic("build", frozenset({"build", "job"}) | users, may_see, _build))
    register_topic(Topic("model", models, may_see, _model))
    register_topic(Topic("jobs", frozenset({"job"}), may_see, _strip, every=STRIP_EVERY))
