"""What the pages of the jobs app keep current."""

from collections.abc import Callable
from typing import Any

from django.template.loader import render_to_string

from controlpanel.lib.access import has_role
from controlpanel.lib.listing import Listing, Table, Wish
from jobs.live import Topic, register_topic
from jobs.views import build_rows, download_rows, lists, model_folders, model_rows, toolchain, work

STRIP_EVERY = 4.0  # seconds: no event says that a job waits by now


def may_see(user: Any, _arg: str) -> bool:
    """Everybody with a role may see every page."""
    return has_role(user, "viewer")


def live(template: str, role: str, context: dict[str, Any]) -> str:
    """Render a partial as it replaces the one on the page, for readers of a role."""
    flags = {"role": role, "is_operator": role in {"operator", "admin"}, "is_admin": role == "admin"}
    return render_to_string(template, {**context, **flags, "oob": True})


def may_see_list(listing: Listing) -> Callable[[Any, str], bool]:
    """Everybody with a role may see a list, sorted and filtered in a way that the list knows."""
    return lambda user, arg: has_role(user, "viewer") and listing.is_arg(arg)


def list_topic(
    listing: Listing,
    events: frozenset[str],
    template: str,
    shown: Callable[[Wish], Table],
    beside: Callable[[], dict[str, Any]] = dict,
) -> Topic:
    """Return the topic that keeps a list current as its page shows it: its argument is the wish.

    `beside` gives what the template shows besides the rows.
    """

    def render(role: str, arg: str) -> str:
        return live(template, role, {"table": shown(listing.parse(arg)), **beside()})

    return Topic(listing.name, events, may_see_list(listing), render)


def _build(role: str, arg: str) -> str:
    build, step = build_rows.build_of_topic(arg)
    if build is None:
        return ""
    context = build_rows.build_context(build, step)
    parts = ("jobs/_build.html", "jobs/_build_more.html", "jobs/_build_end.html")
    return "".join(live(part, role, context) for part in parts)


def _toolchain(role: str, _arg: str) -> str:
    return live("jobs/_toolchain.html", role, toolchain.toolchain_context())


def _model(role: str, pk: str) -> str:
    artifact = model_rows.models().filter(pk=int(pk)).first()
    if artifact is None:
        return ""
    context = model_rows.model_context(artifact)
    parts = ("jobs/_model.html", "jobs/_model_facts.html", "jobs/_model_end.html")
    return "".join(live(part, role, context) for part in parts)


def _download(role: str, pk: str) -> str:
    download = download_rows.downloads().filter(pk=int(pk)).first()
    return live("jobs/_download.html", role, download_rows.download_context(download)) if download else ""


def _open_downloads(role: str, _arg: str) -> str:
    return live("jobs/_downloads_open.html", role, download_rows.open_context())


def _folders(role: str, _arg: str) -> str:
    return live("jobs/_model_folders.html", role, model_folders.folders_context())


def _strip(role: str, _arg: str) -> str:
    return live("jobs/_strip.html", role, work.strip_context())


def register() -> None:
    """Called once from the app's registrations."""
    users = frozenset({"instance"})
    builds, models = frozenset({"build", "job"}) | users, frozenset({"artifact", "folder", "job"}) | users
    loads = frozenset({"download", "job"})
    configs = frozenset({"build", "config", "repository"})
    register_topic(
        list_topic(lists.BUILDS, builds, "jobs/_builds.html", lists.builds_table, build_rows.disk_context)
    )
    register_topic(list_topic(lists.CONFIGS, configs, "jobs/_build_configs.html", lists.configs_table))
    register_topic(
        list_topic(lists.MODELS, models, "jobs/_models.html", lists.models_table, model_rows.disk_context)
    )
    register_topic(list_topic(lists.DOWNLOADS, loads, "jobs/_downloads.html", lists.downloads_table))
    register_topic(list_topic(lists.JOBS, frozenset({"job"}), "jobs/_activity.html", lists.jobs_table))
    register_topic(Topic("build", builds | {"config", "run"}, may_see, _build))
    register_topic(Topic("toolchain", frozenset({"toolchain", "job"}), may_see, _toolchain))
    register_topic(Topic("model", models, may_see, _model))
    register_topic(Topic("download", loads | {"artifact"}, may_see, _download))
    register_topic(Topic("open-downloads", loads, may_see, _open_downloads))
    register_topic(Topic("model-folders", frozenset({"folder", "job"}), may_see, _folders))
    register_topic(Topic("jobs", frozenset({"job"}), may_see, _strip, every=STRIP_EVERY))
