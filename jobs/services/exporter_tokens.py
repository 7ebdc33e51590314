"""Tokens of the metrics: made from chance, shown once, kept as digests."""

import hashlib
import hmac
import secrets
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from jobs.models import MetricsToken
from jobs.services.audit import Actor, record

MOST = 20  # tokens; each request is compared with all of them
NOTED_EVERY = timedelta(minutes=1)  # a scrape every second is not a write every second
_PREFIX = "panel-metrics-"  # tells a search for leaked secrets what it found


def make_token(actor: Actor, name: str) -> tuple[MetricsToken, str]:
    """Make a token and return it with its text, which nobody can read again; Refused for a bad name."""
    name = " ".join(name.split())
    if not name:
        raise Refused(_("Give the token a name."), "name")
    text = _PREFIX + secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            if MetricsToken.objects.count() >= MOST:
                raise Refused(_("There are %(most)d tokens already. Delete one first.") % {"most": MOST})
            row = MetricsToken.objects.create(name=name[:60], digest=_digest(text), created_by=actor.user)
            record(actor, "metrics_token.add", row, after={"name": row.name})
    except IntegrityError as error:
        raise Refused(_("There is already a token with this name."), "name") from error
    return row, text


def delete_token(actor: Actor, token: MetricsToken) -> None:
    """Forget a token: whoever reads the metrics with it is refused from now on."""
    with transaction.atomic():
        record(actor, "metrics_token.delete", token, before={"name": token.name})
        token.delete()


def opens(header: str) -> bool:
    """Say whether an Authorization header holds one of the tokens, and note the use of that."""
    scheme, _space, text = header.partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        return False
    digest = _digest(text.strip())
    known = MetricsToken.objects.values_list("pk", "digest")
    # All of them, so that the time of the answer tells nothing.
    found = [pk for pk, own in known if hmac.compare_digest(own, digest)]
    if found:
        now = timezone.now()
        unnoted = Q(used_at=None) | Q(used_at__lt=now - NOTED_EVERY)
        MetricsToken.objects.filter(unnoted, pk__in=found).update(used_at=now)
    return bool(found)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
