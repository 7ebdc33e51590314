"""Tokens with which a monitoring system reads the panel's metrics."""

from django.conf import settings
from django.db import models


class MetricsToken(models.Model):
    """A token that opens the metrics and nothing else; only its digest is kept."""

    name = models.CharField(max_length=60, unique=True)
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 of the token, hexadecimal
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
