"""Alerts: where they are sent, what they watch for, what they found, and the notices that tell of it."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from controlpanel.lib.words import shown
from jobs.models.stated import Stated


class AlertChannel(models.Model):
    """Where notices go; what could be misused by a reader is sealed, and only `host` and `tail` are shown."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook", _("Webhook")
        SLACK = "slack", _("Slack")
        DISCORD = "discord", _("Discord")
        TELEGRAM = "telegram", _("Telegram")
        EMAIL = "email", _("E-mail")

    name = models.CharField(max_length=60, unique=True)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    secret = models.TextField(blank=True)  # jobs.services.alert_channels seals it; an address, or a token
    host = models.CharField(max_length=255, blank=True)
    tail = models.CharField(max_length=4, blank=True)  # the last characters of the secret
    target = models.CharField(max_length=1000, blank=True)  # chat of Telegram, addresses of e-mail
    language = models.CharField(max_length=10, default="en")
    enabled = models.BooleanField(default=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class AlertRule(models.Model):
    """What is watched: a kind of jobs.services.alert_kinds with its limit, and who is told."""

    kind = models.CharField(max_length=40)
    threshold = models.FloatField(null=True, blank=True)
    only = models.CharField(max_length=100, blank=True)  # part of a subject's label; "" for all
    hold_s = models.PositiveIntegerField(default=0)  # for how long a condition must be met
    cooldown_min = models.PositiveIntegerField(default=30)  # between two announcements of one subject
    channels = models.ManyToManyField(AlertChannel, blank=True, related_name="rules")
    enabled = models.BooleanField(default=True)
    armed_at = models.DateTimeField()  # when it was made or switched on: what happened before is not told
    seen_to = models.DateTimeField()  # events up to this moment were looked at
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("kind", "pk")

    def __str__(self) -> str:
        limit = "" if self.threshold is None else f" {self.threshold:g}"
        return f"{self.kind}{limit}"


class Alert(models.Model):
    """One time that a rule's condition was met by one subject, or one event; kept when its rule is gone."""

    class State(models.TextChoices):
        FIRING = "firing", _("firing")
        RESOLVED = "resolved", _("resolved")
        EVENT = "event", _("happened")

    rule = models.ForeignKey(
        AlertRule, null=True, blank=True, on_delete=models.SET_NULL, related_name="alerts"
    )
    kind = models.CharField(max_length=40)
    title = models.TextField()  # what the rule said then; as controlpanel.lib.words stores it
    subject = models.CharField(max_length=120)
    label = models.CharField(max_length=200)
    state = models.CharField(max_length=10, choices=State.choices)
    value = models.TextField()  # stored words
    end_value = models.TextField(blank=True)  # stored words; "" also when the subject is gone
    since = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True, blank=True)
    told_at = models.DateTimeField(null=True, blank=True)  # when it was announced; null: it was not

    class Meta:
        ordering = ("-since", "-pk")
        indexes = (models.Index(fields=["-since"]), models.Index(fields=["rule", "subject"]))
        constraints = (
            models.UniqueConstraint(
                fields=["rule", "subject"], condition=~Q(state="resolved"), name="one_open_alert"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind}: {self.label}"

    @property
    def word(self) -> str:
        """The state in words."""
        return str(self.State(self.state).label)

    @property
    def title_text(self) -> str:
        """What the rule said, in the reader's language."""
        return shown(self.title)

    @property
    def value_text(self) -> str:
        """What was found, in the reader's language."""
        return shown(self.value)

    @property
    def end_text(self) -> str:
        """What was found at its end, in the reader's language."""
        return shown(self.end_value) if self.end_value else ""


class Notice(Stated, models.Model):
    """One message to one channel; it stays here until it was sent, or was tried often enough."""

    class Kind(models.TextChoices):
        FIRING = "firing", _("firing")
        RESOLVED = "resolved", _("resolved")
        EVENT = "event", _("happened")
        TEST = "test", _("test")

    class State(models.TextChoices):
        PENDING = "pending", _("to be sent")
        SENT = "sent", _("sent")
        FAILED = "failed", _("not sent")

    alert = models.ForeignKey(Alert, null=True, blank=True, on_delete=models.CASCADE, related_name="notices")
    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, related_name="notices")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True)  # stored words; of the last try
    due_at = models.DateTimeField()  # while it is being sent, when that is given up as lost
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-pk",)
        indexes = (models.Index(fields=["state", "due_at"]),)

    def __str__(self) -> str:
        return f"{self.kind} #{self.pk}"
