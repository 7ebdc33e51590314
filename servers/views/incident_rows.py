"""The list of incidents, and what a page shows of each."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.db.models.functions import Coalesce, Lower, Now
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from controlpanel.lib.listing import Choice, Column, Facet, Listing, Table, Wish, table
from jobs.views.build_rows import diagnosis_card
from servers.models import Incident, Instance

Kind = Incident.Kind
# The state whose colour a kind has.
COLOURS = {
    Kind.START: "failed",
    Kind.CRASH: "failed",
    Kind.LOOP: "failed",
    Kind.MEMORY: "failed",
    Kind.HANG: "unresponsive",
    Kind.REQUEST: "unresponsive",
    Kind.QUALITY: "unresponsive",
    Kind.NO_MTP: "unresponsive",
}
GONE = "gone:"  # before the name of a deleted profile, which may be a number
SPANS = (
    ("hour", _("in the last hour"), timedelta(hours=1)),
    ("day", _("in the last 24 hours"), timedelta(days=1)),
    ("week", _("in the last 7 days"), timedelta(days=7)),
    ("month", _("in the last 30 days"), timedelta(days=30)),
)


def _kinds() -> Sequence[Choice]:
    return [Choice(value, word, Q(kind=value)) for value, word in Kind.choices]


def _servers() -> Sequence[Choice]:
    """Return the profiles with incidents, by today's names; those that were deleted have only a name."""
    profiles = Incident.objects.exclude(profile=None).values_list("profile", "profile__name").distinct()
    gone = Incident.objects.filter(profile=None).values_list("server", flat=True).distinct()
    return [
        *(Choice(str(pk), name, Q(profile=pk)) for pk, name in profiles.order_by(Lower("profile__name"))),
        *(
            Choice(f"{GONE}{name}", f"{name} ({gettext('deleted')})", Q(profile=None, server=name))
            for name in gone.order_by(Lower("server"))
        ),
    ]


def _spans() -> Sequence[Choice]:
    return [Choice(value, word, Q(last_at__gte=Now() - span)) for value, word, span in SPANS]


INCIDENTS = Listing(
    "incidents",
    (
        Column("when", _("When"), ("last_at",), falling=True),
        Column("server", _("Server"), (Lower(Coalesce("profile__name", "server")), "last_at")),
        Column("kind", _("Kind"), ("kind", "last_at")),
        Column("what", _("What happened")),
        Column("count", _("How often"), ("count",), "num", falling=True),
        Column("log", _("Log")),
    ),
    default="-when",
    choices=(),
    search=("profile__name", "server", "title", "cause"),
    per_page=50,
    facets=(
        Facet("server", _("Filter by server"), _("every server"), _servers),
        Facet("kind", _("Filter by kind"), _("every kind"), _kinds),
        Facet("when", _("Filter by time"), _("at any time"), _spans),
    ),
)


def incidents_table(wish: Wish) -> Table:
    """One page of incidents."""
    rows = Incident.objects.select_related("run", "profile")
    shown = ("run__log_start", "profile__name", "profile__revision")
    own = [field.attname for field in Incident._meta.concrete_fields if not field.is_relation]
    return table(wish, rows.only(*own, "run", "profile", *shown), incident_rows)


def incidents_of(instance: Instance, limit: int) -> list[dict[str, Any]]:
    """Return the newest incidents of one server, the newest first, as incident_rows() does."""
    rows = Incident.objects.select_related("run", "profile").filter(profile_id=instance.profile_id)
    return incident_rows(rows[:limit])


def incident_rows(found: Iterable[Incident]) -> list[dict[str, Any]]:
    """Return incidents as a page shows each: its colour, place in the log, diagnosis and change."""
    return [incident_row(incident) for incident in found]


def incident_row(incident: Incident) -> dict[str, Any]:
    """Return one incident; `run` and `profile` are to be read with it."""
    profile = incident.profile
    # Once somebody has changed the profile, its form may hold the change, or the cause may be another.
    as_it_was = profile is not None and profile.revision == incident.revision
    return {
        "incident": incident,
        "colour": COLOURS.get(Kind(incident.kind), "stopped"),
        "log": _log(incident),
        "card": _card(incident),
        "can_change": as_it_was,
        "change_href": _change(incident) if as_it_was else "",
    }


def _change(incident: Incident) -> str:
    return f"{reverse('profile-edit', args=[incident.profile_id])}?incident={incident.pk}"


def _log(incident: Incident) -> str:
    """Return the address of the log's lines that show it, "" when they are not kept any more."""
    evidence = incident.diagnosis.get("evidence") or ()
    at = evidence[0]["offset"] if evidence else incident.log_from
    if incident.run is None or at is None or at < incident.run.log_start:
        return ""
    return f"{reverse('run-log', args=[incident.run.pk])}?at={at}"


def _card(incident: Incident) -> dict[str, Any] | None:
    """Return the diagnosis in the reader's language, None without one."""
    if not incident.diagnosis:
        return None
    if incident.run is not None:
        return diagnosis_card({**incident.diagnosis, "run": incident.run.pk})
    card = diagnosis_card({**incident.diagnosis, "run": "gone"})
    return {**card, "evidence": []}
