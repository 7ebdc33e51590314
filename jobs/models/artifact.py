"""Model artifacts: logical GGUF files on a host."""

from pathlib import PurePath

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from controlpanel.lib.text import message_of
from controlpanel.lib.words import translate
from jobs.models.host import Host


class ModelArtifact(models.Model):
    """One logical GGUF (all its shards); a projector (mmproj) is a kind of it."""

    class Kind(models.TextChoices):
        MODEL = "model", _("model")
        MMPROJ = "mmproj", _("vision projector")

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="artifacts")
    name = models.CharField(max_length=200)
    path = models.CharField(max_length=4096)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.MODEL)
    file_size = models.BigIntegerField(default=0)  # bytes
    architecture = models.CharField(max_length=100, blank=True)
    quant = models.CharField(max_length=40, blank=True)
    context_length = models.BigIntegerField(null=True, blank=True)  # tokens
    mtp_heads = models.PositiveIntegerField(default=0)
    projector = models.CharField(max_length=100, blank=True)
    complete = models.BooleanField(default=True)
    problems = models.JSONField(default=list)  # messages as controlpanel.lib.words stores them
    facts = models.JSONField(default=dict)  # what command rules need: fields of llamacpp.facts.ModelFacts
    header = models.JSONField(default=dict)  # facts for people, as read_fields() stores them
    report = models.JSONField(default=dict)  # controlpanel.llamacpp.gguf_report; {} not read yet
    source = models.JSONField(default=dict)  # {"repo", "revision", "path"} or {"url"}; {} found on the host
    sha256 = models.JSONField(default=list)  # of each part, as the hub gave them
    verified_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(fields=["host", "path"], name="one_artifact_per_path"),)

    def __str__(self) -> str:
        return self.name

    @property
    def file_name(self) -> str:
        """The last part of the path."""
        return PurePath(self.path).name

    @property
    def problem_texts(self) -> list[str]:
        """What is wrong with the file, in the reader's language."""
        return [translate(message_of(problem)) for problem in self.problems]
