"""What the pages of the servers app keep current."""

from jobs.live import Topic, register_topic
from jobs.topics import list_topic, live, may_see
from servers.services.metering import EVENT
from servers.views import attention, incident_rows, lists, meters, metrics, rows

SILENT_EVERY = 5.0  # seconds


def _overview(role: str, _arg: str) -> str:
    return live("servers/_overview.html", role, attention.overview_context())


def _server(role: str, pk: str) -> str:
    instance = rows.instances().filter(profile_id=int(pk)).first()
    if instance is None:
        return ""
    context = rows.server_context(instance)
    return live("servers/_server.html", role, context) + live("servers/_server_more.html", role, context)


def _metrics(role: str, pk: str) -> str:
    instance = rows.instances().filter(profile_id=int(pk)).first()
    return "" if instance is None else live("servers/_metrics.html", role, metrics.metrics_context(instance))


def _meters(role: str, _arg: str) -> str:
    return live("servers/_meters.html", role, {"meters": meters.live_meters()})


def register() -> None:
    """Called once from the app's registrations."""
    everything = frozenset({"instance", "run", "job", "build", "artifact", "incident"})
    register_topic(Topic("overview", everything | {"alert"}, may_see, _overview))
    serving, kept = everything - {"artifact", "incident"}, frozenset({"instance", "build", "artifact"})
    register_topic(list_topic(lists.SERVERS, serving, "servers/_servers.html", lists.servers_table))
    register_topic(list_topic(lists.PROFILES, kept, "servers/_profiles.html", lists.profiles_table))
    noted = frozenset({"incident", "instance"})
    register_topic(
        list_topic(incident_rows.INCIDENTS, noted, "servers/_incidents.html", incident_rows.incidents_table)
    )
    register_topic(Topic("server", frozenset({"instance", "run", "job", "incident"}), may_see, _server))
    # No event says that an agent is silent.
    register_topic(Topic("metrics", frozenset({EVENT, "instance"}), may_see, _metrics, every=SILENT_EVERY))
    register_topic(Topic("meters", frozenset({EVENT}), may_see, _meters, every=SILENT_EVERY))
