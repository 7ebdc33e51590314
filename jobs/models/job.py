"""Jobs: the row is the truth; a queue message is only a wake-up."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from jobs.models.host import Host
from jobs.models.stated import Stated


class Job(Stated, models.Model):
    """One piece of background work with its state, step cursor and owner."""

    class State(models.TextChoices):
        QUEUED = "queued", _("queued")
        RUNNING = "running", _("running")
        CANCELING = "canceling", _("canceling")
        SUCCEEDED = "succeeded", _("succeeded")
        FAILED = "failed", _("failed")
        ERRORED = "errored", _("errored")
        CANCELED = "canceled", _("canceled")
        LOST = "lost", _("lost")

    ACTIVE = (State.QUEUED, State.RUNNING, State.CANCELING)
    OWNED = (State.RUNNING, State.CANCELING)
    TERMINAL = (State.SUCCEEDED, State.FAILED, State.ERRORED, State.CANCELED, State.LOST)

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="jobs")
    kind = models.CharField(max_length=40)
    state = models.CharField(max_length=12, choices=State.choices, default=State.QUEUED)
    subject_kind = models.CharField(max_length=40)
    subject_id = models.CharField(max_length=64)
    params = models.JSONField(default=dict)
    step = models.CharField(max_length=40, blank=True)
    steps = models.JSONField(default=list)  # [{"name", "started_at", "ended_at"}], seconds since 1970
    progress = models.JSONField(default=dict)  # {"done", "total", "text"} of the step; {} not known
    error = models.TextField(blank=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    owner_boot = models.CharField(max_length=40, blank=True)
    owner_pid = models.PositiveIntegerField(null=True, blank=True)
    owner_start = models.BigIntegerField(null=True, blank=True)
    enqueued_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-pk",)
        indexes = (
            models.Index(fields=["state", "host"]),
            models.Index(fields=["subject_kind", "subject_id"]),
        )

    def __str__(self) -> str:
        return f"{self.kind} #{self.pk}"

    @property
    def is_active(self) -> bool:
        """True while the job is queued or has an owner."""
        return self.state in self.ACTIVE
