"""Tokens of the model hub, encrypted."""

from django.conf import settings
from django.db import models


class HubToken(models.Model):
    """A token with which files of the hub are read; `user` null: everybody may download with it."""

    name = models.CharField(max_length=60)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="hub_tokens"
    )
    secret = models.TextField()  # jobs.services.hub_tokens encrypts it
    created_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=["user", "name"], name="one_token_per_name"),
            models.UniqueConstraint(
                fields=["name"], condition=models.Q(user__isnull=True), name="one_shared_token_per_name"
            ),
        )

    def __str__(self) -> str:
        return self.name
