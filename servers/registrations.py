"""What the servers app brings into the registries."""

from controlpanel.lib.text import N_
from jobs.registry import register_kind, register_subject
from jobs.runtime.duties import Duty, register_duty
from jobs.services.exporter import register_exporter
from jobs.services.marks import register_marks
from jobs.services.runs import register_run_kind
from servers import topics
from servers.services import (
    alert_kinds,
    exported,
    instances,
    keeping,
    launch,
    marks,
    measure,
    metering_duty,
    polls,
    runtime_watch,
    settle,
    waking,
)
from servers.views.rows import server_subjects


def register() -> None:
    """Called once from AppConfig.ready()."""
    register_kind(instances.LAUNCH, "control", launch.LaunchRunner(), N_("Start of a server"))
    register_kind(instances.STOP, "control", launch.StopRunner(), N_("Stop of a server"))
    title = N_("Measurement of a profile's memory")
    register_kind(measure.MEASURE, "work", measure.MeasureRunner(), title, limit=1)
    register_subject("instance", server_subjects)
    register_run_kind(launch.RUN_KIND, settle.server_ended)
    register_exporter(exported.export_servers)
    register_exporter(exported.export_incidents)
    register_marks(marks.server_marks)
    register_duty(Duty("servers", 1, polls.poll_instances))
    register_duty(Duty("meter", 1, metering_duty.measure_servers))
    register_duty(Duty("settle", 5, settle.settle_instances))
    register_duty(Duty("restart", 2, keeping.restart_due))
    register_duty(Duty("stable", 10, keeping.forget_failures))
    register_duty(Duty("return", 20, keeping.bring_back))
    register_duty(Duty("runtime", 15, runtime_watch.watch_running))
    register_duty(Duty("idle", 15, waking.unload_idle))
    alert_kinds.register()
    topics.register()
