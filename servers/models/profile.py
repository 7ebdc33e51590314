"""Server profiles: what a team wants to run, stored as meanings."""

from django.conf import settings as django_settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from jobs.models import Build, ModelArtifact


class ServerProfile(models.Model):
    """A named set of settings; the command line is rendered from it for the chosen build."""

    name = models.CharField(max_length=60, unique=True)
    slug = models.SlugField(max_length=60, unique=True)
    build = models.ForeignKey(Build, on_delete=models.PROTECT, related_name="profiles")
    model = models.ForeignKey(ModelArtifact, on_delete=models.PROTECT, related_name="profiles")
    mmproj = models.ForeignKey(
        ModelArtifact, null=True, blank=True, on_delete=models.PROTECT, related_name="vision_profiles"
    )
    port = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1024), MaxValueValidator(65535)]
    )
    settings = models.JSONField(default=dict)  # meanings that were touched; absent = the build's default
    extra_args = models.TextField(blank=True)
    environment = models.JSONField(default=dict)  # variables of the server's process, name -> value
    policy = models.JSONField(default=dict)  # what servers.domain.policy stores: values that are no default
    revision = models.PositiveIntegerField(default=1)
    created_by = models.ForeignKey(
        django_settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
