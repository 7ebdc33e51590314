"""What the jobs app lets rules watch: cards, main memory, disk, builds and downloads."""

import time
from collections.abc import Callable
from datetime import datetime

from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import message_in
from jobs.domain.alerts import UNKNOWN, Event, Finding, Found, Parameter
from jobs.domain.gpu import WITHOUT_GPU, GpuSample
from jobs.domain.hostload import HostLoad
from jobs.models import Build, Download, Host, Job
from jobs.services import gpus, hostload
from jobs.services.alert_kinds import AlertKind, register_alert_kind
from jobs.services.building import MAKE

GIB = 1024  # MiB
DEGREES = N_("%(degrees)s °C")
USED = N_("%(percent)s %% of %(total)s GiB used")
FREE = N_("%(free)s GiB free of %(total)s GiB")
DONE = Message(N_("It is ready."))
LOADED = Message(N_("It is complete."))


def _each_card(judge: Callable[[GpuSample], tuple[bool | None, Message]]) -> Found | None:
    """Look at the cards of all hosts; those of an old sample, and lost ones, are not known."""
    samples = gpus.latest()
    if samples is None:
        return None
    now, whole, findings = time.time(), True, []
    for host, sample in samples:
        if sample is None:
            whole = False
            continue
        old = sample.stale_since(now) is not None
        whole = whole and not old and sample.gpus.problem in {None, *WITHOUT_GPU}
        for card in sample.gpus.gpus:
            firing, value = (None, UNKNOWN) if old or card.lost else judge(card)
            key = f"{host.slug} {gpus.subject_of(card)}"
            findings.append(Finding(key[:120], _label_of(host, card), firing, value))
    return Found(tuple(findings), whole)


def _label_of(host: Host, card: GpuSample) -> str:
    name = f"GPU {card.index}" + (f" {card.name}" if card.name else "")
    return f"{name} · {host.name}"


def hot_cards(limit: float) -> Found | None:
    """Find cards that are hotter than so many °C."""

    def judge(card: GpuSample) -> tuple[bool | None, Message]:
        if card.temperature is None:
            return None, UNKNOWN
        return card.temperature > limit, Message(DEGREES, {"degrees": card.temperature})

    return _each_card(judge)


def full_cards(limit: float) -> Found | None:
    """Find cards of whose memory more than so many percent is used."""
    return _each_card(lambda card: _used(card.memory_used_mib, card.memory_total_mib, limit))


def _used(used: int | None, total: int | None, limit: float) -> tuple[bool | None, Message]:
    if used is None or not total:
        return None, UNKNOWN
    percent = 100 * used / total
    return percent > limit, Message(USED, {"percent": f"{percent:.0f}", "total": f"{total / GIB:.1f}"})


def _each_host(judge: Callable[[HostLoad], tuple[bool | None, Message]]) -> Found | None:
    samples = hostload.latest_loads()
    if samples is None:
        return None
    now, findings = time.time(), []
    for host, sample in samples:
        known = sample is not None and sample.stale_since(now) is None
        firing, value = judge(sample.load) if sample is not None and known else (None, UNKNOWN)
        findings.append(Finding(host.slug, host.name, firing, value))
    return Found(tuple(findings))


def full_hosts(limit: float) -> Found | None:
    """Find hosts of whose main memory more than so many percent is used."""
    return _each_host(lambda load: _used(load.memory_used_mib, load.memory_total_mib, limit))


def short_disks(limit: float) -> Found | None:
    """Find hosts with less than so many GiB free on the disk of the data folder."""

    def judge(load: HostLoad) -> tuple[bool | None, Message]:
        if load.disk_free_mib is None:
            return None, UNKNOWN
        free = load.disk_free_mib / GIB
        total = "–" if load.disk_total_mib is None else f"{load.disk_total_mib / GIB:.0f}"
        return free < limit, Message(FREE, {"free": f"{free:.1f}", "total": total})

    return _each_host(judge)


def _ended_builds(*states: str) -> Callable[[datetime], list[Event]]:
    def find(since: datetime) -> list[Event]:
        jobs = list(Job.objects.filter(kind=MAKE, state__in=states, ended_at__gt=since).order_by("ended_at"))
        keys = {int(job.subject_id) for job in jobs if job.subject_id.isdigit()}
        builds = {str(row.pk): row for row in Build.objects.filter(pk__in=keys).only("name", "error")}
        return [
            Event(f"job {job.pk}", build.name, message_in(build.error) if build.error else DONE, job.ended_at)
            for job in jobs
            if (build := builds.get(job.subject_id)) is not None and job.ended_at is not None
        ]

    return find


def _ended_downloads(state: str) -> Callable[[datetime], list[Event]]:
    def find(since: datetime) -> list[Event]:
        rows = Download.objects.filter(state=state, ended_at__gt=since).order_by("ended_at")
        return [
            Event(
                f"download {row.pk} {row.ended_at.timestamp():.0f}",
                row.name,
                message_in(row.error) if row.error else LOADED,
                row.ended_at,
            )
            for row in rows.only("name", "error", "ended_at")
            if row.ended_at is not None
        ]

    return find


def register() -> None:
    """Called once from the app's registrations."""
    states, ends = Job.State, Download.State
    for kind in (
        AlertKind(
            "gpu_hot",
            N_("GPU temperature"),
            N_("GPU hotter than %(limit)s °C"),
            N_("A card is hotter than a limit."),
            Parameter("°C", 85, 30, 120),
            find=hot_cards,
        ),
        AlertKind(
            "gpu_memory",
            N_("GPU memory"),
            N_("GPU memory above %(limit)s %%"),
            N_("More than a share of a card's memory is used."),
            Parameter("%", 97, 1, 100),
            find=full_cards,
        ),
        AlertKind(
            "host_memory",
            N_("Main memory"),
            N_("Main memory above %(limit)s %%"),
            N_("More than a share of a host's main memory is used."),
            Parameter("%", 95, 1, 100),
            find=full_hosts,
        ),
        AlertKind(
            "disk_free",
            N_("Disk space"),
            N_("Less than %(limit)s GiB of disk free"),
            N_("The disk of the panel's data folder has less free than a limit."),
            Parameter("GiB", 20, 0.1, 100_000),
            find=short_disks,
        ),
        AlertKind(
            "build_finished",
            N_("Build finished"),
            N_("Build finished"),
            N_("A build was made and installed."),
            events=_ended_builds(states.SUCCEEDED),
        ),
        AlertKind(
            "build_failed",
            N_("Build failed"),
            N_("Build failed"),
            N_("A build ended without a binary."),
            events=_ended_builds(states.FAILED, states.ERRORED, states.LOST),
        ),
        AlertKind(
            "download_finished",
            N_("Download finished"),
            N_("Download finished"),
            N_("All files of a download arrived and were checked."),
            events=_ended_downloads(ends.COMPLETE),
        ),
        AlertKind(
            "download_failed",
            N_("Download failed"),
            N_("Download failed"),
            N_("A download stopped with an error."),
            events=_ended_downloads(ends.FAILED),
        ),
    ):
        register_alert_kind(kind)
