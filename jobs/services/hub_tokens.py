"""Tokens of the model hub: kept encrypted, given to nobody but the code that asks the hub."""

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.access import has_role
from controlpanel.lib.errors import Refused
from controlpanel.lib.sealed import plausible, seal, unseal
from controlpanel.lib.text import N_
from jobs.models import HubToken
from jobs.registry import WorkFailed
from jobs.services.audit import Actor, record

LONGEST = 500  # characters
PURPOSE = b"llamacpp-panel hub token"


def add_token(actor: Actor, name: str, secret: str, *, shared: bool) -> HubToken:
    """Keep a token for oneself, or for everybody (admins); Refused with words that do not repeat it."""
    name, secret = " ".join(name.split()), secret.strip()
    if not name:
        raise Refused(_("Give the token a name."), "name")
    if not plausible(secret, LONGEST):
        raise Refused(_("This is no token: copy it from the settings of your account on the hub."), "secret")
    if shared and not has_role(actor.user, "admin"):
        raise Refused(_("Only an admin can add a token that everybody uses."), "shared")
    try:
        with transaction.atomic():
            row = HubToken.objects.create(
                name=name[:60],
                user=None if shared else actor.user,
                secret=seal(PURPOSE, secret),
            )
            record(actor, "token.add", row, after={"name": name, "shared": shared})
    except IntegrityError as error:
        raise Refused(_("There is already a token with this name."), "name") from error
    return row


def delete_token(actor: Actor, token: HubToken) -> None:
    """Forget a token; Refused for another person's."""
    if token not in usable(actor.user) or (token.user is None and not has_role(actor.user, "admin")):
        raise Refused(_("This token is not yours."))
    with transaction.atomic():
        record(actor, "token.delete", token, before={"name": token.name, "shared": token.user is None})
        token.delete()


def usable(user: User | None) -> QuerySet[HubToken]:
    """Return the tokens that a person may download with: their own, and those for everybody."""
    mine = Q(user=user) if user is not None else Q(pk__in=())
    return HubToken.objects.filter(Q(user__isnull=True) | mine)


def secret_of(token: HubToken | None) -> str | None:
    """Return the token itself, for a request to the hub; None without one."""
    if token is None:
        return None
    secret = unseal(PURPOSE, token.secret)
    if secret is None:
        raise WorkFailed(
            N_("The token %(name)s cannot be read: the panel's secret key was changed. Enter it anew."),
            name=token.name,
        )
    HubToken.objects.filter(pk=token.pk).update(used_at=timezone.now())
    return secret
