"""Revisions of server profiles: what was saved, by whom and why."""

from django.conf import settings as django_settings
from django.db import models

from jobs.models import Build
from servers.models.profile import ServerProfile


class ProfileRevision(models.Model):
    """One saved state of a profile; it is never changed, but for the mark known-good.

    `values` holds name, build, model, mmproj (keys of their rows), port, settings, extra_args, environment;
    `names` what build, model and mmproj were called. The build of a known-good one cannot be deleted.
    """

    profile = models.ForeignKey(ServerProfile, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    values = models.JSONField()
    names = models.JSONField(default=dict)
    reason = models.TextField(blank=True)
    author = models.ForeignKey(
        django_settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    kept_build = models.ForeignKey(
        Build, null=True, blank=True, on_delete=models.PROTECT, related_name="known_good_revisions"
    )

    class Meta:
        ordering = ("-number",)
        constraints = (models.UniqueConstraint(fields=["profile", "number"], name="one_revision_per_number"),)

    def __str__(self) -> str:
        return f"{self.profile.name} · {self.number}"

    @property
    def known_good(self) -> bool:
        """True for a revision that somebody vouched for."""
        return self.kept_build_id is not None
