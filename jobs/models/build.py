"""Builds: llama-server binaries, made here or registered by path, and what each of them can do."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from jobs.models.config import BuildConfig
from jobs.models.host import Host
from jobs.models.stated import Stated


class Build(Stated, models.Model):
    """One binary on one host; what it accepts is probed from it, never assumed.

    Made here, it is one attempt at a build config and keeps a copy of the inputs. Its path is empty until the
    binary is installed, and its capabilities are until that binary was probed.
    """

    class State(models.TextChoices):
        QUEUED = "queued", _("queued")
        BUILDING = "building", _("building")
        PROBING = "probing", _("probing")
        READY = "ready", _("ready")
        FAILED = "failed", _("failed")
        CANCELED = "canceled", _("canceled")

    WORKING = (State.QUEUED, State.BUILDING, State.PROBING)

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="builds")
    name = models.CharField(max_length=100, unique=True)
    path = models.CharField(max_length=4096, blank=True)
    bundled = models.BooleanField(default=False)
    state = models.CharField(max_length=10, choices=State.choices, default=State.PROBING)
    error = models.TextField(blank=True)
    fingerprint = models.CharField(max_length=64, blank=True)
    version = models.CharField(max_length=100, blank=True)
    commit = models.CharField(max_length=64, blank=True)
    config = models.ForeignKey(
        BuildConfig, null=True, blank=True, on_delete=models.SET_NULL, related_name="builds"
    )
    inputs = models.JSONField(default=dict)  # BuildInputs; {} for a binary registered by its path
    source_commit = models.CharField(max_length=64, blank=True)  # what was checked out; "" without git
    behind = models.PositiveIntegerField(null=True, blank=True)  # commits, when they were last counted
    behind_at = models.DateTimeField(null=True, blank=True)
    size = models.BigIntegerField(null=True, blank=True)  # bytes of the installed folder
    diagnosis = models.JSONField(default=list)  # controlpanel.llamacpp.rules, best first
    capabilities = models.JSONField(default=dict)
    probed_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def made_here(self) -> bool:
        """True for a build that the panel makes or made."""
        return bool(self.inputs)
