"""What the jobs app brings into the registries."""

from jobs import topics, topics_gpu
from jobs.registry import register_kind
from jobs.runtime.duties import Duty, register_duty
from jobs.services import builds, gpus, watch


def register() -> None:
    """Called once from AppConfig.ready()."""
    register_kind(builds.PROBE, "control", builds.ProbeRunner())
    register_duty(Duty("heartbeat", 5, watch.beat))
    register_duty(Duty("reconcile", 5, watch.reconcile_jobs))
    register_duty(Duty("runs", 0.5, watch.watch_runs))
    register_duty(Duty("gpus", 1, gpus.sample_gpus))
    topics.register()
    topics_gpu.register()
