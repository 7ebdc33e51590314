"""Rows of the jobs app."""

from jobs.models.alert import Alert, AlertChannel, AlertRule, Notice
from jobs.models.artifact import ModelArtifact
from jobs.models.audit import AuditEntry
from jobs.models.build import Build
from jobs.models.config import BuildConfig
from jobs.models.download import Download
from jobs.models.folder import ModelFolder
from jobs.models.host import Host
from jobs.models.job import Job
from jobs.models.metrics_token import MetricsToken
from jobs.models.repository import Repository
from jobs.models.run import Run
from jobs.models.sample import SampleBlock
from jobs.models.token import HubToken

__all__ = [
    "Alert",
    "AlertChannel",
    "AlertRule",
    "AuditEntry",
    "Build",
    "BuildConfig",
    "Download",
    "Host",
    "HubToken",
    "Job",
    "MetricsToken",
    "ModelArtifact",
    "ModelFolder",
    "Notice",
    "Repository",
    "Run",
    "SampleBlock",
]
