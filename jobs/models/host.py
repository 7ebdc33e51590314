"""Hosts: machines that run builds, downloads and servers."""

from django.db import models


class Host(models.Model):
    """One machine with a worker and an agent; on a single machine its slug is "local"."""

    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=100)
    toolchain = models.JSONField(default=dict)  # jobs.domain.programs.Toolchain; {} not looked at yet
    toolchain_at = models.DateTimeField(null=True, blank=True)
    agent_seen_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("slug",)

    def __str__(self) -> str:
        return self.name
