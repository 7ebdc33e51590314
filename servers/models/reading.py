"""Readings: what a start really took of the memory, beside what was estimated."""

from django.db import models

from jobs.models import Build, Run
from servers.models.profile import ServerProfile


class StartReading(models.Model):
    """The buffers that one started server told in its log, and the estimate made for the same settings.

    `backend` names the kind of device ("CUDA", "CPU", ...). All sizes are in MiB.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="reading")
    profile = models.ForeignKey(ServerProfile, on_delete=models.CASCADE, related_name="readings")
    build = models.ForeignKey(Build, on_delete=models.CASCADE, related_name="readings")
    fingerprint = models.CharField(max_length=64, blank=True)  # of the build, when it was read
    architecture = models.CharField(max_length=60)
    backend = models.CharField(max_length=40)
    settings = models.JSONField(default=dict)
    estimated = models.JSONField(default=dict)
    measured = models.JSONField(default=dict)
    learned = models.JSONField(default=dict)  # what the correction is made from; {} teaches nothing
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-pk",)
        indexes = (models.Index(fields=["build", "architecture", "backend"]),)

    def __str__(self) -> str:
        return f"{self.run_id} · {self.architecture}"
