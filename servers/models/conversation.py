"""Conversations of the playground and their turns."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from servers.models.profile import ServerProfile


class Conversation(models.Model):
    """One user's conversation with one server profile."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations")
    profile = models.ForeignKey(
        ServerProfile, null=True, on_delete=models.SET_NULL, related_name="conversations"
    )
    title = models.CharField(max_length=200, blank=True)
    sampling = models.JSONField(default=dict)  # servers.domain.sampling; a value left out is the server's own
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("-updated_at",)

    def __str__(self) -> str:
        return self.title


class Turn(models.Model):
    """One question and its answer; only the GET that claims a pending turn calls the server."""

    class State(models.TextChoices):
        PENDING = "pending", _("waiting")
        STREAMING = "streaming", _("answering")
        DONE = "done", _("done")
        STOPPED = "stopped", _("stopped")
        FAILED = "failed", _("failed")

    UNFINISHED = (State.PENDING, State.STREAMING)
    ENDED = (State.DONE, State.STOPPED, State.FAILED)

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="turns")
    position = models.PositiveIntegerField()
    prompt = models.TextField(max_length=400_000)
    answer = models.TextField(blank=True)
    reasoning = models.TextField(blank=True)
    # The answer as servers.services.markdown makes it, written at its end; 0 = not made.
    answer_html = models.TextField(blank=True)
    html_version = models.PositiveSmallIntegerField(default=0)
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    attempt = models.PositiveIntegerField(default=0)  # counts the claims; a claimant writes for its own only
    stop_requested = models.BooleanField(default=False)
    error = models.TextField(blank=True)
    timings = models.JSONField(default=dict)  # servers.services.answers.numbers
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)  # while streaming also the claimant's heartbeat

    class Meta:
        ordering = ("conversation", "position")
        constraints = (
            models.UniqueConstraint(fields=["conversation", "position"], name="one_turn_per_place"),
            models.UniqueConstraint(
                fields=["conversation"],
                condition=models.Q(state__in=["pending", "streaming"]),
                name="one_unfinished_turn",
            ),
        )

    def __str__(self) -> str:
        return f"turn {self.position}"

    @property
    def has_ended(self) -> bool:
        """True when nothing more will be added to the answer unless somebody asks for it."""
        return self.state in self.ENDED
