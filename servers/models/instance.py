"""Server instances: what should run and what does."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from controlpanel.lib.words import shown
from jobs.models import Run
from servers.models.profile import ServerProfile


class Instance(models.Model):
    """The one server of a profile: its desired and its observed state, and facts read back from it."""

    class Desired(models.TextChoices):
        RUNNING = "running", _("running")
        STOPPED = "stopped", _("stopped")

    class Observed(models.TextChoices):
        STOPPED = "stopped", _("stopped")
        STARTING = "starting", _("starting")
        LOADING = "loading", _("loading")
        READY = "ready", _("ready")
        STOPPING = "stopping", _("stopping")
        UNRESPONSIVE = "unresponsive", _("unresponsive")
        EXITED = "exited", _("exited")
        BACKOFF = "backoff", _("waiting to start again")
        FAILED = "failed", _("failed")

    RESTING = (Observed.STOPPED, Observed.EXITED, Observed.BACKOFF, Observed.FAILED)  # without a process
    ALIVE = (Observed.STARTING, Observed.LOADING, Observed.READY, Observed.UNRESPONSIVE)
    POLLED = ALIVE

    profile = models.OneToOneField(ServerProfile, on_delete=models.CASCADE, related_name="instance")
    desired = models.CharField(max_length=10, choices=Desired.choices, default=Desired.STOPPED)
    observed = models.CharField(max_length=12, choices=Observed.choices, default=Observed.STOPPED)
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    port = models.PositiveIntegerField(null=True, blank=True)
    revision = models.PositiveIntegerField(default=0)
    facts = models.JSONField(default=dict)  # {"mtp": bool, "vision": bool, "n_ctx": tokens, ...}
    steps = models.JSONField(default=list)  # [{"key", "at"}], seconds since 1970
    error = models.TextField(blank=True)
    checks = models.JSONField(
        default=list
    )  # what the last start's preflight found (servers.domain.preflight)
    anyway = models.BooleanField(default=False)  # somebody wants it started although preflight warns
    attempts = models.PositiveIntegerField(default=0)  # starts by the panel itself since it was last stable
    retry_at = models.DateTimeField(null=True, blank=True)
    first_failure = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )  # the first of the failures that `attempts` followed; the latest is `run`
    ready_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)  # when it was last seen to answer a request
    held = models.BooleanField(default=False)  # stopped by a person: no request starts it
    pinned = models.BooleanField(default=False)  # stays loaded although nobody uses it
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("profile__name",)

    def __str__(self) -> str:
        return f"{self.profile.name}: {self.observed}"

    @property
    def word(self) -> str:
        """The state in words; get_observed_display() would translate all states to find one."""
        return str(self.Observed(self.observed).label)

    @property
    def error_text(self) -> str:
        """The error in the reader's language."""
        return shown(self.error)
