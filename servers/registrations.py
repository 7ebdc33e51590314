"""What the servers app brings into the registries."""

from jobs.registry import register_kind
from jobs.runtime.duties import Duty, register_duty
from jobs.services.runs import register_run_kind
from servers import topics
from servers.services import instances, launch, polls, settle


def register() -> None:
    """Called once from AppConfig.ready()."""
    register_kind(instances.LAUNCH, "control", launch.LaunchRunner())
    register_kind(instances.STOP, "control", launch.StopRunner())
    register_run_kind(launch.RUN_KIND, settle.server_ended)
    register_duty(Duty("servers", 1, polls.poll_instances))
    register_duty(Duty("settle", 3, settle.settle_instances))
    topics.register()
