"""What a host has for building: looked at on the host, kept on its row."""

from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish
from jobs.adapters.toolchain import look
from jobs.domain.programs import Toolchain
from jobs.models import Host, Job
from jobs.registry import Runner
from jobs.services.audit import Actor, record
from jobs.services.hosts import local_host
from jobs.services.jobs import Claimed, create_job
from jobs.services.watch import with_database

LOOK = "host.toolchain"
OLD = timedelta(hours=6)


def toolchain_of(host: Host) -> Toolchain | None:
    """Return what the host had when it was looked at last; None before the first time."""
    return Toolchain.from_dict(host.toolchain) if host.toolchain else None


def request_look(actor: Actor, host: Host) -> None:
    """Ask the host to look again; Refused while it does."""
    with transaction.atomic():
        if Job.objects.filter(kind=LOOK, host=host, state__in=Job.ACTIVE).exists():
            raise Refused(_("The host is being looked at already."))
        record(actor, "host.toolchain", host)
        create_job(actor, LOOK, host, "host", host.pk, {})


def look_now() -> Toolchain:
    """Look at this host and keep what was found; programs come and go, so this is never older than hours."""
    found = look()
    host = local_host()
    Host.objects.filter(pk=host.pk).update(toolchain=found.to_dict(), toolchain_at=timezone.now())
    publish("toolchain", host.pk)
    return found


@with_database
def keep_current() -> None:
    """Look at this host when nobody has done so for hours: the agent's duty."""
    host = local_host()
    old = Q(toolchain_at__isnull=True) | Q(toolchain_at__lt=timezone.now() - OLD)
    if Host.objects.filter(old, pk=host.pk).exists():
        look_now()


class LookRunner(Runner):
    """Looks at the host the job runs on."""

    def run(self, job: Claimed) -> None:
        """Look, and keep what was found."""
        job.step("look")
        look_now()
