"""Build configs: what to build, and how."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from jobs.domain.buildspec import BuildInputs
from jobs.models.host import Host
from jobs.models.repository import Repository


class BuildConfig(models.Model):
    """The inputs of builds on one host; each attempt is a Build that keeps a copy of them."""

    class Backend(models.TextChoices):
        CUDA = "cuda", _("CUDA (NVIDIA)")
        CPU = "cpu", _("CPU only")
        VULKAN = "vulkan", _("Vulkan")
        HIP = "hip", _("HIP (AMD)")

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="configs")
    name = models.CharField(max_length=80, unique=True)
    repository = models.ForeignKey(Repository, on_delete=models.PROTECT, related_name="configs")
    ref = models.CharField(max_length=200, blank=True)  # branch, tag or commit; "" the default branch
    backend = models.CharField(max_length=10, choices=Backend.choices, default=Backend.CPU)
    architectures = models.JSONField(default=list)  # of CUDA: ["86"]; [] the host's own
    nvcc = models.CharField(max_length=4096, blank=True)
    host_compiler = models.CharField(max_length=4096, blank=True)
    jobs = models.PositiveIntegerField(null=True, blank=True)  # null: by memory and cores
    targets = models.JSONField(default=list)
    fa_quants = models.CharField(max_length=300, blank=True)  # "" the tree's default, "all", or a list
    native = models.BooleanField(default=True)
    ccache = models.BooleanField(default=True)
    definitions = models.JSONField(default=list)  # [["GGML_CUDA_FORCE_MMQ", "ON"]]
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def inputs(self) -> BuildInputs:
        """Return what a build of now would be made from."""
        return BuildInputs(
            repository=self.repository.url,
            local=self.repository.local,
            ref=self.ref,
            backend=self.backend,
            architectures=tuple(self.architectures),
            nvcc=self.nvcc,
            host_compiler=self.host_compiler,
            jobs=self.jobs or 0,
            targets=tuple(self.targets),
            fa_quants=self.fa_quants,
            native=self.native,
            ccache=self.ccache,
            definitions=tuple((key, value) for key, value in self.definitions),
        )
