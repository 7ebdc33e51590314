"""Downloads: files of a model on their way to a host."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from jobs.models.host import Host
from jobs.models.stated import Stated
from jobs.models.token import HubToken


class Download(Stated, models.Model):
    """One choice of files: a model with all its parts, and what was taken along (projector, MTP file).

    `files` are {"path", "name", "size", "sha256", "done"}: path in the repository, or the whole address; name
    below `folder`; size and sha256 null while not known.
    """

    class State(models.TextChoices):
        QUEUED = "queued", _("queued")
        LOADING = "loading", _("downloading")
        PAUSED = "paused", _("paused")
        COMPLETE = "complete", _("finished")
        FAILED = "failed", _("failed")
        CANCELED = "canceled", _("canceled")

    WORKING = (State.QUEUED, State.LOADING)
    KEPT = (State.PAUSED, State.FAILED)  # what has arrived is kept, to go on from there

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="downloads")
    name = models.CharField(max_length=200)
    repo = models.CharField(max_length=100, blank=True)  # owner/name on the hub; "" for another address
    revision = models.CharField(max_length=64, blank=True)  # the commit that was looked at
    token = models.ForeignKey(
        HubToken, null=True, blank=True, on_delete=models.SET_NULL, related_name="downloads"
    )
    folder = models.CharField(max_length=4096)
    files = models.JSONField(default=list)
    rate = models.PositiveBigIntegerField(null=True, blank=True)  # bytes per second at most
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    error = models.TextField(blank=True)
    received = models.BigIntegerField(default=0)  # bytes, of all files
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return self.name

    @property
    def total(self) -> int | None:
        """Bytes of all files, None while one of them is not known."""
        sizes = [file["size"] for file in self.files]
        return None if None in sizes else sum(sizes)
