"""Runs: one process under a shim, with its folder and its log."""

import secrets
import time

from django.db import models
from django.utils.translation import gettext_lazy as _

from controlpanel.lib.words import shown
from jobs.models.host import Host


def new_run_id() -> str:
    """Return a name for a run folder that sorts by time: 20261130-121500-1a2b3c4d."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(4)


class Run(models.Model):
    """One child process: a llama-server or a build step. Its folder is <data>/runs/<id>/."""

    class State(models.TextChoices):
        CREATED = "created", _("created")
        RUNNING = "running", _("running")
        EXITED = "exited", _("exited")
        LOST = "lost", _("lost")

    ACTIVE = (State.CREATED, State.RUNNING)

    id = models.CharField(primary_key=True, max_length=64, default=new_run_id)
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="runs")
    kind = models.CharField(max_length=40)
    subject_kind = models.CharField(max_length=40)
    subject_id = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=State.choices, default=State.CREATED)
    argv = models.JSONField(default=list)
    pid = models.PositiveIntegerField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)  # negative: ended by that signal; null: unknown
    stop_requested = models.BooleanField(default=False)
    memory_mib = models.PositiveIntegerField(null=True, blank=True)  # of main memory it may take; null: any
    over_memory = models.JSONField(default=dict)  # {"limit_mib", "used_mib"} when it was ended for that
    note = models.TextField(blank=True)
    log_start = models.BigIntegerField(default=0)
    log_tail = models.TextField(blank=True)
    diagnosis = models.JSONField(default=list)  # controlpanel.llamacpp.rules, best first
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)
        indexes = (models.Index(fields=["state", "host"]),)

    def __str__(self) -> str:
        return self.id

    @property
    def note_text(self) -> str:
        """The note in the reader's language."""
        return shown(self.note)
