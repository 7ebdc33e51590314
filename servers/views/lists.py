"""The lists of the servers app: which columns, how they are sorted, filtered and searched."""

from django.db.models import Case, Q, When
from django.db.models.functions import Coalesce, Lower
from django.utils.translation import gettext_lazy as _

from controlpanel.lib.listing import Choice, Column, Listing, Table, Wish, table
from jobs.views.lists import rank
from servers.models import Instance, ServerProfile
from servers.views.rows import server_rows

# As they ask for attention, then as they come up.
STATES = (
    "failed",
    "backoff",
    "unresponsive",
    "exited",
    "stopping",
    "starting",
    "loading",
    "ready",
    "stopped",
)
RUNS = ~Q(observed__in=Instance.RESTING)

SERVERS = Listing(
    "servers",
    (
        Column("state", _("State"), (rank("observed", *STATES), Lower("profile__name"))),
        Column("name", _("Name"), (Lower("profile__name"),)),
        Column("facts", _("Facts")),
        Column("model", _("Model"), (Lower("profile__model__name"), Lower("profile__name"))),
        Column("build", _("Build"), (Lower("profile__build__name"), Lower("profile__name"))),
        Column("port", _("Port"), (Case(When(RUNS, then="port"), default="profile__port"),), "num"),
        Column("speed", _("Generation"), (), "num"),
        Column("busy", _("At work"), (), "num"),
        Column("since", _("Since"), (Coalesce("run__ended_at", "run__started_at"),), falling=True),
    ),
    default="name",
    choices=(
        Choice("running", _("running (all)"), RUNS),
        *(Choice(value, word, Q(observed=value)) for value, word in Instance.Observed.choices),
    ),
    search=("profile__name", "profile__slug", "profile__model__name", "profile__build__name"),
)

PROFILES = Listing(
    "profiles",
    (
        Column("state", _("Server"), (rank("instance__observed", *STATES), Lower("name"))),
        Column("name", _("Name"), (Lower("name"),)),
        Column("model", _("Model"), (Lower("model__name"), Lower("name"))),
        Column("build", _("Build"), (Lower("build__name"), Lower("name"))),
        Column("port", _("Port"), ("port", Lower("name")), "num"),
        Column("revision", _("Revision"), ("revision", Lower("name")), "num", falling=True),
        Column("changed", _("Changed"), ("updated_at",), falling=True),
    ),
    default="name",
    choices=tuple(
        Choice(value, word, Q(instance__observed=value)) for value, word in Instance.Observed.choices
    ),
    search=("name", "slug", "model__name", "mmproj__name", "build__name"),
)


SHOWN = (
    *("observed", "port", "revision", "facts", "attempts", "retry_at", "held", "pinned"),
    *("run__started_at", "run__ended_at"),
    *("profile__name", "profile__port", "profile__revision", "profile__settings", "profile__policy"),
    *("profile__build__name", "profile__build__state", "profile__model__name"),
)


def servers_table(wish: Wish) -> Table:
    """One page of servers."""
    rows = Instance.objects.select_related("profile__build", "profile__model", "run")
    return table(wish, rows.only(*SHOWN), server_rows)


def profiles_table(wish: Wish) -> Table:
    """One page of profiles with the state of their servers."""
    rows = ServerProfile.objects.select_related("build", "model", "mmproj", "instance")
    shown = ("name", "port", "revision", "updated_at", "instance__observed")
    return table(wish, rows.only(*shown, "build__name", "model__name", "mmproj__name"))
