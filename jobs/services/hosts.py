"""The host this process runs on."""

from django.conf import settings

from jobs.models import Host


def local_host() -> Host:
    """Return the row of this host (PANEL_HOST), made when it is missing."""
    host, _created = Host.objects.get_or_create(
        slug=settings.PANEL_HOST, defaults={"name": settings.PANEL_HOST.replace("-", " ").capitalize()}
    )
    return host
