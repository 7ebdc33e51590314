"""Incidents: what went wrong with a server, kept after the server itself was started again or deleted."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from controlpanel.lib.words import shown
from jobs.models import Run
from servers.models.profile import ServerProfile


class Incident(models.Model):
    """One thing that went wrong in one run; what is seen again there only raises `count` and `last_at`.

    `log_from` and `log_to` are the bytes of the run's log around which it shows, null when nothing does.
    """

    class Kind(models.TextChoices):
        START = "start", _("start failed")
        CRASH = "crash", _("ended by itself")
        LOOP = "loop", _("given up")
        HANG = "hang", _("did not answer")
        MEMORY = "memory", _("memory limit")
        REBOOT = "reboot", _("host restarted")
        REQUEST = "request", _("requests failed")
        QUALITY = "quality", _("answers suffer")
        NO_MTP = "no_mtp", _("without MTP")

    profile = models.ForeignKey(
        ServerProfile, null=True, blank=True, on_delete=models.SET_NULL, related_name="incidents"
    )
    server = models.CharField(max_length=60)  # the profile's name then
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="incidents")
    revision = models.PositiveIntegerField(default=0)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    cause = models.CharField(max_length=60, blank=True)  # cause_key of a diagnosis
    title = models.TextField()  # a message as controlpanel.lib.words stores it
    diagnosis = models.JSONField(default=dict)  # Diagnosis.to_json(), {} without one
    log_from = models.BigIntegerField(null=True, blank=True)
    log_to = models.BigIntegerField(null=True, blank=True)
    looked_to = models.BigIntegerField(default=0)  # byte up to which its log was searched
    count = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        ordering = ("-last_at", "-pk")
        indexes = (models.Index(fields=["-last_at"]),)
        constraints = (models.UniqueConstraint(fields=("run", "kind", "cause"), name="incident_once"),)

    def __str__(self) -> str:
        return f"{self.server}: {self.kind}"

    @property
    def title_text(self) -> str:
        """What happened, in the reader's language."""
        return shown(self.title)
