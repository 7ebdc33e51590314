"""Audit rows: written by services in the transaction of the change itself."""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Model
from django.http import HttpRequest

from jobs.models import AuditEntry

MAX_REASON = 1000  # characters of what a person gives as the reason of a change


@dataclass(frozen=True)
class Actor:
    """Who changes something, and from where; user None is the panel itself."""

    user: User | None
    source: str

    @classmethod
    def web(cls, request: HttpRequest) -> "Actor":
        """The signed-in user of a page."""
        user = request.user
        return cls(None if isinstance(user, AnonymousUser) else user, AuditEntry.Source.WEB)

    @classmethod
    def cli(cls) -> "Actor":
        """Whoever runs manage.py on the host."""
        return cls(None, AuditEntry.Source.CLI)

    @classmethod
    def agent(cls) -> "Actor":
        """The host agent."""
        return cls(None, AuditEntry.Source.AGENT)


def record(
    actor: Actor,
    action: str,
    row: Model,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> AuditEntry:
    """Write one audit row for a change of `row`; before and after hold the changed fields only."""
    return AuditEntry.objects.create(
        actor=actor.user,
        actor_name=actor.user.get_username() if actor.user else "",
        source=actor.source,
        action=action,
        object_kind=row._meta.model_name or "",
        object_id=str(row.pk),
        object_label=str(row)[:200],
        before=before,
        after=after,
    )
