"""Folders of a host in which models lie."""

from django.conf import settings
from django.db import models

from jobs.models.host import Host


class ModelFolder(models.Model):
    """A folder that an admin allows: operators register the .gguf files below it, and download into it."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="folders")
    path = models.CharField(max_length=4096)
    scanned_at = models.DateTimeField(null=True, blank=True)
    found = models.PositiveIntegerField(default=0)  # files that the last scan registered
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("path",)
        constraints = (models.UniqueConstraint(fields=["host", "path"], name="one_folder_per_path"),)

    def __str__(self) -> str:
        return self.path
