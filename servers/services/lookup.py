"""Find a profile by what a person types."""

from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from servers.models import ServerProfile


def find_profile(text: str) -> ServerProfile:
    """Return the profile with this name or slug; Refused lists the names there are."""
    rows = ServerProfile.objects.select_related("build__host", "model", "mmproj", "instance")
    profile = rows.filter(slug=text).first() or rows.filter(name=text).first()
    if profile is None:
        names = ", ".join(ServerProfile.objects.values_list("slug", flat=True)[:20]) or "–"
        raise Refused(
            _("There is no profile %(name)s. Profiles: %(names)s.") % {"name": text, "names": names},
            code="no_such_profile",
        )
    return profile
