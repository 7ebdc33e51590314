"""What the pages of the servers app keep current."""

from typing import Any

from jobs.live import Topic, register_topic
from jobs.topics import live, may_see
from servers.views import rows


def _overview(user: Any, _arg: str) -> str:
    return live("servers/_overview.html", user, rows.overview_context())


def _servers(user: Any, _arg: str) -> str:
    return live("servers/_servers.html", user, rows.servers_context())


def _server(user: Any, pk: str) -> str:
    instance = rows.instances().filter(profile_id=int(pk)).first()
    if instance is None:
        return ""
    context = rows.server_context(instance)
    return live("servers/_server.html", user, context) + live("servers/_server_more.html", user, context)


def register() -> None:
    """Called once from the app's registrations."""
    everything = frozenset({"instance", "run", "job", "build", "artifact"})
    register_topic(Topic("overview", everything, may_see, _overview))
    register_topic(Topic("servers", everything - {"artifact"}, may_see, _servers))
    register_topic(Topic("server", frozenset({"instance", "run", "job"}), may_see, _server))
