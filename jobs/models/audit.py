"""Audit: who changed what, from where."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class AuditEntry(models.Model):
    """One change, written in the same transaction as the change itself."""

    class Source(models.TextChoices):
        WEB = "web", _("web")
        CLI = "cli", _("command line")
        API = "api", _("API")
        AGENT = "agent", _("agent")

    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    actor_name = models.CharField(max_length=150, blank=True)
    source = models.CharField(max_length=10, choices=Source.choices)
    action = models.CharField(max_length=60)
    object_kind = models.CharField(max_length=40)
    object_id = models.CharField(max_length=64)
    object_label = models.CharField(max_length=200)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.action} {self.object_label}"
