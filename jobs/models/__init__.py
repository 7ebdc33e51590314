"""Rows of the jobs app."""

from jobs.models.artifact import ModelArtifact
from jobs.models.audit import AuditEntry
from jobs.models.build import Build
from jobs.models.host import Host
from jobs.models.job import Job
from jobs.models.run import Run

__all__ = ["AuditEntry", "Build", "Host", "Job", "ModelArtifact", "Run"]
