"""Builds in a whole panel: each process killed at each step, and two builds in the queue."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.runtime.procs import Proc, alive, signal_proc
from tests.e2e.whole import Panel
from tests.fakes.mini_llama import SlowTools, git, make_repository
from tests.waiting import wait_for

STEPS = ("fetch", "checkout", "configure", "compile")
SECONDS = 120.0  # for a build that takes three

START = """
from jobs.models import Build, BuildConfig, Repository; from jobs.services import building
from jobs.services.audit import Actor; from jobs.services.hosts import local_host
repository, _ = Repository.objects.get_or_create(url={url!r}, defaults={{"name": "mini", "kind": "local"}})
config, _ = BuildConfig.objects.get_or_create(name="mini", defaults={{"host": local_host(),
    "repository": repository, "ref": "main", "targets": ["llama-server"], "native": False}})
print(building.start_build(Actor.cli(), config).pk)
"""
LOOK = """
import json; from jobs.models import Build, Run; from jobs.services.building import newest_job
build = Build.objects.get(pk={pk}); job = newest_job(build)
print(json.dumps({{"state": build.state, "error": build.error_text, "path": build.path, "job": job.state,
    "commit": build.source_commit, "step": job.step, "runs": job.params.get("runs", {{}}),
    "steps": [step["name"] for step in job.steps], "ended": str(job.ended_at), "started": str(job.started_at),
    "notes": [run.note_text for run in Run.objects.filter(subject_kind="build", subject_id="{pk}")]}}))
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> SlowTools:
    return SlowTools(tmp_path_factory.mktemp("tools") / "slow")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("sources") / "mini.cpp")


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory, tools: SlowTools) -> Iterator[Panel]:
    path = f"{tools.path}:{os.environ['PATH']}"
    with Panel(tmp_path_factory.mktemp("builds") / "data", PATH=path) as found:
        found.start()
        yield found


def start(panel: Panel, repository: Path) -> int:
    return int(panel.shell(START.format(url=str(repository))))


def look(panel: Panel, pk: int) -> dict[str, Any]:
    found = json.loads(panel.shell(LOOK.format(pk=pk)))
    assert isinstance(found, dict)
    return found


def settled(panel: Panel, pk: int) -> dict[str, Any]:
    """How the build stands once nothing works on it any more."""
    working = ("queued", "building", "probing")
    wait_for(lambda: look(panel, pk)["state"] not in working, SECONDS, "the build to end")
    return look(panel, pk)


def shim_of(panel: Panel, pk: int, step: str) -> Proc:
    state = json.loads((panel.data / "runs" / look(panel, pk)["runs"][step] / "state.json").read_text())
    return Proc(state["shim"]["pid"], state["shim"]["start"], state["shim"]["boot"])


def end_of(panel: Panel, victim: str, pk: int, step: str) -> None:
    """kill -9 of a process while the build stands at a step."""
    if victim != "shim":
        panel.kill(victim)
        return
    proc = shim_of(panel, pk, step)
    signal_proc(proc, signal.SIGKILL)
    wait_for(lambda: not alive(proc), 10, "the end of the shim")


@pytest.mark.parametrize("victim", ["worker-work", "agent", "shim"])
def test_a_build_ends_right_although_a_process_is_killed_at_each_step(
    panel: Panel, tools: SlowTools, repository: Path, victim: str
) -> None:
    for step in STEPS:
        tools.hold(step)
        tools.forget(step)
    pk = start(panel, repository)
    for step in STEPS:
        wait_for(lambda step=step: tools.pid(step), SECONDS, f"the step {step}")  # type: ignore[misc]
        end_of(panel, victim, pk, step)
        tools.release(step)
    found = settled(panel, pk)
    assert (found["state"], found["job"]) == ("ready", "succeeded"), (found, panel.logs())
    assert found["steps"] == [*STEPS, "install", "probe"]
    assert found["commit"] == git(repository, "rev-parse", "main")
    assert Path(found["path"]).is_file()
    assert [path.name for path in (panel.data / "builds" / str(pk)).iterdir()] == ["install"]


def test_two_builds_are_made_one_after_the_other(panel: Panel, tools: SlowTools, repository: Path) -> None:
    tools.hold("compile")
    tools.forget("compile")
    first, second = start(panel, repository), start(panel, repository)
    wait_for(lambda: tools.pid("compile"), SECONDS, "the first build's compilation")
    assert look(panel, second)["state"] == "queued"
    tools.release("compile")
    found = settled(panel, first), settled(panel, second)
    assert [build["state"] for build in found] == ["ready", "ready"], (found, panel.logs())
    assert found[1]["started"] >= found[0]["ended"]
