"""What has to be true once nobody kills or asks for anything any more."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence

from jobs.runtime.procs import alive
from tests.e2e.whole import Panel
from tests.soak_report import Report
from tests.soak_viewer import Viewer
from tests.soak_watch import Watch, processes_of

QUIET = 60.0  # seconds after which all has to be settled
ROLES = ("up", "supervisord", "valkey", "web", "worker-control", "worker-work", "agent")
ROWS = """
import json
from jobs.models import Job, Run
from servers.models import Instance
jobs = [f"{job} is {job.state}" for job in Job.objects.filter(state__in=Job.ACTIVE)]
runs = list(Run.objects.filter(state__in=Run.ACTIVE).values_list("pk", flat=True))
servers = {
    row.profile.slug: [row.desired, row.observed, row.run_id, row.run.pid if row.run else None, row.error]
    for row in Instance.objects.select_related("profile", "run")
}
print(json.dumps({"jobs": jobs, "runs": runs, "servers": servers}))
"""


def settle(panel: Panel, watch: Watch, viewers: Sequence[Viewer], report: Report) -> None:
    """Wait until nothing is wrong; what still is after a minute goes against the rules."""
    began = time.monotonic()
    sizes = {viewer: viewer.log.stat().st_size for viewer in viewers}
    while wrong := [*wrong_servers(panel, watch), *wrong_processes(panel), *behind(sizes)]:
        if time.monotonic() - began > QUIET:
            for text in wrong:
                report.violation(f"after {QUIET:.0f} s of quiet: {text}")
            break
        time.sleep(1)
    report.took("quiet", time.monotonic() - began)


def wrong_servers(panel: Panel, watch: Watch) -> list[str]:
    """Compare wishes, rows and processes."""
    watch.look()
    rows = json.loads(panel.shell(ROWS))
    living = {server.run_id: server for server in watch.servers()}
    wrong = [f"the job {job}" for job in rows["jobs"]]
    wrong += [f"the run {pk} is active without a process" for pk in rows["runs"] if pk not in living]
    wrong += [
        f"{row.profile}: the run {pk} lives, its row has ended"
        for pk, row in living.items()
        if pk not in rows["runs"]
    ]
    for slug, (desired, observed, run_id, pid, error) in rows["servers"].items():
        wish = watch.profiles[slug].wish
        if wish not in (None, desired):
            wrong.append(f"{slug}: {wish} was the last wish, the panel has noted {desired}")
        if observed != ("ready" if desired == "running" else "stopped"):
            wrong.append(f"{slug}: wanted {desired}, it is {observed}: {error}")
        mine = [server for server in living.values() if server.profile == slug]
        if len(mine) != (desired == "running"):
            wrong.append(f"{slug}: wanted {desired}, with {len(mine)} processes")
        if mine and (mine[0].run_id, mine[0].proc.pid) != (run_id, pid):
            wrong.append(
                f"{slug}: pid {mine[0].proc.pid} of run {mine[0].run_id}, noted is {pid} of run {run_id}"
            )
    return wrong


def wrong_processes(panel: Panel) -> list[str]:
    """Find what nobody knows, and roles that no process or several have."""
    seen = processes_of(panel.data)
    served = {row.run_id for row in seen if row.run_id and not row.is_shim}
    wrong = [
        f"nobody knows the process {row.proc.pid}: {row.command}"
        for row in seen
        if not (row.role or row.run_id)
    ]
    wrong += [
        f"the shim {row.proc.pid} of run {row.run_id} keeps no server"
        for row in seen
        if row.is_shim and row.run_id not in served
    ]
    roles = Counter(row.role for row in seen if row.role)
    wrong += [
        f"{roles[role]} processes are {role}" for role in {*ROLES, *roles} if roles[role] != (role in ROLES)
    ]
    return wrong


def behind(sizes: dict[Viewer, int]) -> list[str]:
    """Find viewers that lack what was in the file at the begin of the quiet, or a part of an ended log."""
    return [
        f"the viewer of run {viewer.server.run_id} stands at byte {viewer.end} of {viewer.log.stat().st_size}"
        for viewer, size in sizes.items()
        if viewer.end < size or not (alive(viewer.server.proc) or viewer.whole())
    ]
