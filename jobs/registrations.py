"""What the jobs app brings into the registries."""

from controlpanel.lib.text import N_
from jobs import topics, topics_alerts, topics_gpu
from jobs.registry import register_kind, register_subject
from jobs.runtime.duties import Duty, register_duty
from jobs.services import (
    alert_notices,
    alert_watches,
    alerts,
    artifacts,
    behind,
    build_runner,
    building,
    builds,
    download_runner,
    downloads,
    exporter_gpus,
    exporter_jobs,
    gpus,
    history,
    history_live,
    hostload,
    memory_watch,
    mirrors,
    model_files,
    toolchains,
    watch,
)
from jobs.services.exporter import register_exporter
from jobs.views import rows


def register() -> None:
    """Called once from AppConfig.ready()."""
    register_kind(builds.PROBE, "control", builds.ProbeRunner(), N_("Probe of a build"))
    register_kind(builds.REMOVE, "control", builds.RemoveRunner(), N_("Removal of a build's files"))
    register_kind(building.MAKE, "work", build_runner.BuildRunner(), N_("Build"), limit=1)
    register_kind(behind.BEHIND, "work", behind.BehindRunner(), N_("Count of newer commits"), limit=1)
    register_kind(mirrors.FORGET, "work", mirrors.ForgetRunner(), N_("Removal of a repository's sources"))
    register_kind(toolchains.LOOK, "control", toolchains.LookRunner(), N_("Look at the host's toolchain"))
    register_kind(downloads.LOAD, "work", download_runner.DownloadRunner(), N_("Download"), limit=2)
    register_kind(downloads.CLEAR, "control", download_runner.ClearRunner(), N_("Removal of a download"))
    register_kind(model_files.VERIFY, "work", model_files.VerifyRunner(), N_("Check of a model's files"))
    register_kind(model_files.REMOVE, "control", model_files.RemoveRunner(), N_("Removal of a model's files"))
    register_kind(model_files.SCAN, "work", model_files.ScanRunner(), N_("Scan of a folder"))
    register_subject("build", rows.build_subjects)
    register_subject("host", rows.host_subjects)
    register_subject("model", rows.model_subjects)
    register_subject("download", rows.download_subjects)
    register_subject("folder", rows.folder_subjects)
    for export in (exporter_gpus.export_gpus, exporter_gpus.export_hosts, exporter_jobs.export_agents):
        register_exporter(export)
    register_exporter(exporter_jobs.export_jobs)
    register_exporter(exporter_jobs.export_downloads)
    register_duty(Duty("heartbeat", 5, watch.beat))
    register_duty(Duty("reconcile", 5, watch.reconcile_jobs))
    register_duty(Duty("runs", 1, watch.watch_runs))
    register_duty(Duty("memory", memory_watch.EVERY, memory_watch.watch_memory))
    register_duty(Duty("toolchain", 60, toolchains.keep_current, deadline=120))
    register_duty(Duty("facts", 3600, artifacts.renew_facts, deadline=600))
    register_duty(Duty("log-limit", 10, watch.trim_logs))
    register_duty(Duty("gpus", 1, gpus.sample_gpus))
    register_duty(Duty("host-load", 1, hostload.sample_host))
    register_duty(Duty("history-live", 1, history_live.publish_history, at_end=history_live.publish_rest))
    register_duty(Duty("history", 10, history.write_history, at_end=history.write_history))
    register_duty(Duty("history-thin", 60, history.thin_history))
    register_duty(Duty("alerts", alerts.EVERY, alerts.evaluate))
    register_duty(Duty("alert-notices", alert_notices.EVERY, alert_notices.send_due))
    register_duty(Duty("alerts-thin", 3600, alerts.prune))
    alert_watches.register()
    topics.register()
    topics_alerts.register()
    topics_gpu.register()
