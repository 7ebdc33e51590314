"""What the jobs app brings into the registries."""

from controlpanel.lib.text import N_
from jobs import topics, topics_gpu
from jobs.registry import register_kind, register_subject
from jobs.runtime.duties import Duty, register_duty
from jobs.services import builds, gpus, watch
from jobs.views.rows import build_subjects


def register() -> None:
    """Called once from AppConfig.ready()."""
    register_kind(builds.PROBE, "control", builds.ProbeRunner(), N_("Probe of a build"))
    register_subject("build", build_subjects)
    register_duty(Duty("heartbeat", 5, watch.beat))
    register_duty(Duty("reconcile", 5, watch.reconcile_jobs))
    register_duty(Duty("runs", 0.5, watch.watch_runs))
    register_duty(Duty("log-limit", 10, watch.trim_logs))
    register_duty(Duty("gpus", 1, gpus.sample_gpus))
    topics.register()
    topics_gpu.register()
