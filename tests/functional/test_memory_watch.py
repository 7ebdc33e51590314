"""Runs with a memory limit: real processes under the real shim, ended once they took too much."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytest_django import DjangoAssertNumQueries

from controlpanel.llamacpp.memory import Estimate
from controlpanel.llamacpp.rule_types import Change
from jobs.adapters import cgroups
from jobs.adapters import runs as folders
from jobs.adapters.rss import session_memory
from jobs.adapters.runs import RunSpec
from jobs.models import Run
from jobs.services import runs, watch
from jobs.services.artifacts import register_artifact
from jobs.services.audit import Actor
from jobs.services.builds import probe_now, register_build
from jobs.services.hosts import local_host
from jobs.services.memory_watch import watch_memory
from servers.services.estimates import Prepared, prepare
from servers.services.mending import mended
from servers.services.profiles import ProfileData
from tests.models import plain_model
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
Start = Callable[..., Run]

# It maps a file of 200 MiB and reads all of it, then takes 100 MiB for itself, of which a child has half.
TAKES = """
import mmap, os, sys, time
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    sum(mapped[at] for at in range(0, len(mapped), 4096))
ready, told = os.pipe()
child = os.fork()
own = b"x" * (50 << 20)
if child == 0:
    os.write(told, b".")
    time.sleep(120)
os.read(ready, 1)
print("taken", flush=True)
time.sleep(120)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runs that take 100 MiB, and ends them; their file may be mapped on top of their limit."""
    rows: list[Run] = []
    mapped = tmp_path / "model"
    with mapped.open("wb") as file:
        file.truncate(200 << 20)

    def begin(memory_mib: int | None) -> Run:
        row = runs.create_run(local_host(), "trial", "trial", len(rows))
        rows.append(row)
        argv = [sys.executable, "-S", "-E", "-c", TAKES, str(mapped)]
        runs.spawn(row, RunSpec(argv, cwd="/", memory_mib=memory_mib, mapped_mib=200))
        wait_for(lambda: "taken" in folders.log_path(row.pk).read_text(), 30, "the memory to be taken")
        watch.watch_runs()
        return row

    yield begin
    for row in rows:
        folders.kill(row.pk)
        folders.wait(row.pk, 30)
    watch.watch_runs()
    watch_memory()


def stored(row: Run) -> Run:
    return Run.objects.get(pk=row.pk)


def test_a_run_over_its_limit_is_killed_as_a_failure_and_one_below_it_is_not(start: Start) -> None:
    small, free = start(180), start(None)
    watch_memory()
    assert stored(small).memory_mib == 180 and stored(free).memory_mib is None
    pid = stored(small).pid
    assert pid is not None
    held = session_memory({pid})[pid] // 1024
    assert 100 <= held < 150  # both processes, without the file
    runs.limit_memory(small, 90)
    watch_memory()
    ended = folders.wait(small.pk, 30)
    assert (ended.status, ended.exit_code, ended.stop_requested) == ("exited", -9, False)
    watch.watch_runs()
    row = stored(small)
    assert (row.state, row.exit_code, row.stop_requested) == (Run.State.EXITED, -9, False)
    assert row.over_memory == {"limit_mib": 90, "used_mib": held}
    assert stored(free).state == Run.State.RUNNING and stored(free).over_memory == {}


def test_nothing_is_asked_without_a_running_run(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    watch.watch_runs()
    watch_memory()
    with django_assert_num_queries(0):
        watch_memory()


def test_a_run_enters_its_control_group_before_it_executes_and_a_new_limit_follows_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = tmp_path / "unit"
    unit.mkdir()
    monkeypatch.setattr(cgroups, "home", lambda root: unit)
    row = start(300)
    group = unit / f"run-{row.pk}"
    assert (group / "memory.max").read_text() == str(500 << 20)
    assert (group / "cgroup.procs").read_text() == str(stored(row).pid)
    runs.limit_memory(row, 400)
    watch_memory()
    assert (group / "memory.max").read_text() == str(600 << 20)
    runs.limit_memory(row, None)
    watch_memory()
    assert (group / "memory.max").read_text() == "max"
    # What the kernel does when the limit is reached between two looks.
    runs.limit_memory(row, 300)
    watch_memory()
    (group / "memory.events").write_text("oom 1\noom_kill 2\n")
    folders.kill(row.pk, asked=False)
    folders.wait(row.pk, 30)
    watch.watch_runs()
    assert stored(row).over_memory == {"limit_mib": 300, "used_mib": 300}


def test_mapped_files_come_on_top_of_the_kernels_limit_and_a_group_that_is_closed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run-mapped" / "cgroup.procs").mkdir(parents=True)
    monkeypatch.setattr(cgroups, "home", lambda root: tmp_path)
    folders.spawn("mapped", RunSpec(["true"], cwd="/", memory_mib=100, mapped_mib=28))
    limit = tmp_path / "run-mapped" / "memory.max"
    assert limit.read_text() == str(128 << 20)
    folders.limit_memory("mapped", 200)
    assert limit.read_text() == str(228 << 20)
    assert folders.wait("mapped", 30).exit_code == 0


def test_the_context_that_fits_also_fits_into_the_memory_limit(tmp_path: Path) -> None:
    actor = Actor.cli()
    program = str(Path(sys.prefix) / "bin" / "panel-llama-server")
    build = register_build(actor, local_host(), "Engine", program)
    probe_now(build)
    build.refresh_from_db()
    model = register_artifact(actor, local_host(), str(plain_model(tmp_path)))
    settings = {"ctx_size": 1 << 20, "cache_ram": 0, "parallel": 1}
    data = ProfileData("Tiny", build, model, settings=settings)
    change = [Change("ctx_size", "less")]
    assert mended(data, change).settings["ctx_size"] == 1 << 19  # no card, no limit: half
    for limit in (600, 64):
        found = mended(replace(data, policy={"memory_mib": limit}), change)
        prepared = prepare(found)
        assert isinstance(prepared, Prepared)
        estimate = prepared.estimate()
        assert isinstance(estimate, Estimate)
        own = sum(size for term, size in estimate.host.items() if term != "weights" and size is not None)
        assert limit - 1 < own <= limit
    # It is the prompt cache that takes more than the limit, whatever the context.
    crowded = replace(data, settings={**settings, "cache_ram": 8192}, policy={"memory_mib": 600})
    assert mended(crowded, change).settings["ctx_size"] == 1 << 19
