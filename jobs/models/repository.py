"""Repositories: where the sources of llama.cpp and its forks come from."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class Repository(models.Model):
    """A source that admins allow builds from: a git address, or a folder on the host."""

    class Kind(models.TextChoices):
        GIT = "git", _("git address")
        LOCAL = "local", _("folder on the host")

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.GIT)
    url = models.CharField(max_length=2048, unique=True)  # of the kind LOCAL: an absolute path
    options = models.JSONField(default=list)  # CMake options of the tree that was built last; [] not known
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "repositories"

    def __str__(self) -> str:
        return self.name

    @property
    def local(self) -> bool:
        """True for a folder on the host."""
        return self.kind == self.Kind.LOCAL
