"""The runner of builds with real git, cmake and a compiler, in this process."""

import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.db import connection

from controlpanel.lib.errors import Refused
from controlpanel.llamacpp.rules import diagnose
from jobs.adapters import buildtree, sources
from jobs.adapters import runs as folders
from jobs.domain import mirror
from jobs.models import Build, Job, Repository, Run
from jobs.runtime import shim
from jobs.services import behind, building, builds, configs, jobs, mirrors
from jobs.services.audit import Actor
from jobs.services.builds import capabilities_of
from tests.builds import finished, job_of, made, make_config
from tests.fakes.mini_llama import SlowTools, commit, git, make_repository, write_tree
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("sources") / "mini.cpp")


def words(build: Build) -> str:
    """Everything that tells why a build is as it is, for messages of failed tests."""
    logs = [folders.log_path(run.pk) for run in Run.objects.filter(subject_id=str(build.pk))]
    texts = [path.read_text(errors="replace")[-2000:] for path in logs if path.exists()]
    return "\n".join([build.state, build.error_text, *texts])


def test_a_build_is_fetched_compiled_installed_and_probed(repository: Path) -> None:
    build = made(make_config(repository))
    assert build.state == Build.State.READY, words(build)
    head = git(repository, "rev-parse", "main")
    assert (build.source_commit, build.commit) == (head, head)
    job = job_of(build)
    assert [step["name"] for step in job.steps] == [
        *("fetch", "checkout", "configure", "compile", "install", "probe")
    ]
    assert job.state == Job.State.SUCCEEDED
    capabilities = capabilities_of(build)
    assert capabilities.mtp_value == "draft-mtp"
    assert capabilities.commit == head[:9]
    assert build.size == buildtree.size_of(Path(build.path).parents[1])
    assert "GGML_CUDA_FA_QUANTS" in Repository.objects.get(url=str(repository)).options


def test_the_result_can_be_moved_and_nothing_else_is_left(repository: Path, tmp_path: Path) -> None:
    build = made(make_config(repository))
    tree = buildtree.tree(build.pk)
    assert [path.name for path in tree.root.iterdir()] == ["install"]
    shutil.copytree(tree.installed, tmp_path / "elsewhere", symlinks=True)
    builds.delete_build(Actor.cli(), build)
    jobs.execute(Job.objects.get(kind=builds.REMOVE).pk)
    assert not tree.root.exists()
    program = tmp_path / "elsewhere" / "bin" / "llama-server"
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert "0.6.0-dev" in done.stderr
    assert not Run.objects.filter(subject_id=str(build.pk)).exists()


@pytest.mark.parametrize("ref", ["", "main", "b1", "newer", "commit", "short"])
def test_a_ref_is_a_branch_a_tag_a_commit_or_nothing(repository: Path, ref: str) -> None:
    head = git(repository, "rev-parse", "newer")
    wanted = {"commit": head, "short": head[:8]}.get(ref, ref)
    build = made(make_config(repository, ref=wanted))
    assert build.state == Build.State.READY, words(build)
    expected = git(repository, "rev-parse", {"": "main"}.get(ref, wanted))
    assert build.source_commit == expected


def test_a_pull_request_can_be_built(repository: Path) -> None:
    git(repository, "update-ref", "refs/pull/7/head", "newer")
    build = made(make_config(repository, ref="pull/7/head"))
    assert build.state == Build.State.READY, words(build)
    assert build.source_commit == git(repository, "rev-parse", "newer")


def test_a_source_without_git_is_built_as_it_is(tmp_path: Path) -> None:
    write_tree(tmp_path / "plain")
    build = made(make_config(tmp_path / "plain", ref=""))
    assert build.state == Build.State.READY, words(build)
    assert (build.source_commit, build.commit) == ("", "unknown")
    assert [step["name"] for step in job_of(build).steps][:2] == ["checkout", "configure"]
    assert (tmp_path / "plain" / "CMakeLists.txt").is_file()


@pytest.mark.parametrize(
    ("ref", "step", "said"),
    [
        ("mian", "fetch", "no branch, tag or commit named mian. Did you mean main"),
        ("error", "compile", "The step compile failed"),
        ("cuda", "configure", "The step configure failed"),
        ("plain", "checkout", "llama-server"),
        ("empty", "checkout", "CMakeLists.txt"),
    ],
)
def test_a_failure_says_at_which_step_and_why(repository: Path, ref: str, step: str, said: str) -> None:
    build = made(make_config(repository, ref=ref))
    assert build.state == Build.State.FAILED
    assert said in build.error_text, words(build)
    job = job_of(build)
    assert (job.state, job.step, job.error_text) == (Job.State.FAILED, step, build.error_text)
    assert not buildtree.tree(build.pk).root.exists()
    assert not build.path and not build.capabilities


def test_a_failed_step_is_diagnosed_with_its_line_in_the_log(repository: Path) -> None:
    build = made(make_config(repository, ref="cuda"))
    [best, *_others] = build.diagnosis
    assert (best["cause_key"], best["step"]) == ("nvcc_not_found", "configure")
    run = Run.objects.get(pk=best["run"])
    assert run.diagnosis == build.diagnosis
    log = folders.log_path(run.pk).read_bytes()
    for line in best["evidence"]:
        assert log[line["offset"] :].startswith(line["text"].encode())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/nowhere/at/all", "does not exist on this host"),
        ("https://127.0.0.1:1/none.git", "The step fetch failed"),
    ],
)
def test_a_repository_that_cannot_be_reached_is_an_error_in_words(url: str, said: str) -> None:
    config = make_config(Path(url) if url.startswith("/") else url)
    build = made(config)
    assert build.state == Build.State.FAILED
    assert said in build.error_text, words(build)


@pytest.mark.parametrize("url", ["file:///tmp", "ext::sh -c true", "--upload-pack=true", "http://x/y.git"])
def test_a_hostile_address_is_refused_before_anything_runs(url: str) -> None:
    with pytest.raises(Refused):
        building.start_build(Actor.cli(), make_config(url))
    assert not Run.objects.exists() and not Build.objects.filter(config__isnull=False).exists()


def test_a_folder_that_was_not_registered_as_one_is_not_read(repository: Path, tmp_path: Path) -> None:
    config = make_config(f"ssh://127.0.0.1:1{repository}")
    build = made(config)
    assert build.state == Build.State.FAILED and not build.source_commit


def test_rebuild_makes_the_same_commit_although_its_branch_moved(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "moving.cpp")
    first = made(make_config(repository))
    (repository / "README").write_text("more\n")
    commit(repository, "second")
    again = finished(building.rebuild(Actor.cli(), first))
    assert again.state == Build.State.READY, words(again)
    assert (again.source_commit, again.inputs) == (first.source_commit, first.inputs)
    assert again.name == "mini #2"
    behind.count_behind(Actor.cli(), again)
    jobs.execute(Job.objects.get(kind=behind.BEHIND).pk)
    again.refresh_from_db()
    assert again.behind == 1


def test_two_queued_builds_are_made_one_after_the_other(repository: Path) -> None:
    config = make_config(repository)
    first, second = (building.start_build(Actor.cli(), config) for _ in range(2))
    claimed = jobs.claim(job_of(first).pk)
    assert claimed is not None
    jobs.execute(job_of(second).pk)
    second.refresh_from_db()
    assert second.state == Build.State.QUEUED
    jobs.finish(claimed.row, Job.State.FAILED)
    assert finished(second).state == Build.State.READY


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowTools:
    """git and cmake that can be held at a step."""
    found = SlowTools(tmp_path / "tools")
    monkeypatch.setenv("PATH", str(found.path), prepend=":")
    return found


@pytest.mark.parametrize("step", ["fetch", "checkout", "configure", "compile"])
def test_a_cancel_ends_the_whole_tree_at_any_step(repository: Path, tools: SlowTools, step: str) -> None:
    tools.hold(step)
    build = building.start_build(Actor.cli(), make_config(repository))

    def work() -> None:
        jobs.execute(job_of(build).pk)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: tools.pid(step), 60, f"the step {step}")
    building.cancel_build(Actor.cli(), build)
    thread.join(60)
    assert not thread.is_alive()
    build.refresh_from_db()
    assert (build.state, job_of(build).state) == (Build.State.CANCELED, Job.State.CANCELED)
    assert not Path(f"/proc/{tools.pid(step)}").exists()
    assert not buildtree.tree(build.pk).root.exists()


def test_a_queued_build_is_canceled_at_once(repository: Path) -> None:
    build = building.start_build(Actor.cli(), make_config(repository))
    building.cancel_build(Actor.cli(), build)
    build.refresh_from_db()
    assert build.state == Build.State.CANCELED
    with pytest.raises(Refused):
        building.cancel_build(Actor.cli(), build)


@pytest.mark.parametrize(("free", "state"), [(100, "failed"), (10**12, "ready")])
def test_a_build_needs_space_on_the_disk(
    repository: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str
) -> None:
    monkeypatch.setattr(buildtree, "free_bytes", lambda: free)
    build = made(make_config(repository))
    assert build.state == state, words(build)
    assert ("disk" in build.error_text) == (state == "failed")


def test_a_disk_that_fills_up_stops_the_build(
    repository: Path, tools: SlowTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.hold("compile")
    monkeypatch.setattr(buildtree, "free_bytes", lambda: 1000 if tools.pid("compile") else 10**12)
    monkeypatch.setattr("jobs.services.build_steps.MEASURE_EVERY", 0.2)
    build = made(make_config(repository))
    assert (build.state, "disk is nearly full" in build.error_text) == (Build.State.FAILED, True), words(
        build
    )
    assert not Path(f"/proc/{tools.pid('compile')}").exists()


def test_a_build_in_use_or_at_work_is_not_deleted(repository: Path) -> None:
    build = building.start_build(Actor.cli(), make_config(repository))
    with pytest.raises(Refused):
        builds.delete_build(Actor.cli(), build)
    assert Build.objects.filter(pk=build.pk).exists()


def test_a_run_folder_that_is_gone_makes_the_build_lost(repository: Path, tools: SlowTools) -> None:
    tools.hold("configure")
    build = building.start_build(Actor.cli(), make_config(repository))
    thread = threading.Thread(target=lambda: (jobs.execute(job_of(build).pk), connection.close()))
    thread.start()
    wait_for(lambda: tools.pid("configure"), 60, "the step configure")
    running = Run.objects.filter(subject_id=str(build.pk), state=Run.State.RUNNING)
    run = wait_for(running.first, 10, "the row of its run")
    assert run is not None
    shutil.rmtree(folders.run_dir(run.pk))
    thread.join(60)
    tools.release("configure")
    build.refresh_from_db()
    assert (build.state, job_of(build).state) == (Build.State.FAILED, Job.State.LOST), words(build)


def test_a_restarted_host_makes_the_build_lost(repository: Path, tools: SlowTools) -> None:
    tools.hold("configure")
    build = building.start_build(Actor.cli(), make_config(repository))
    thread = threading.Thread(target=lambda: (jobs.execute(job_of(build).pk), connection.close()))
    thread.start()
    wait_for(lambda: tools.pid("configure"), 60, "the step configure")
    state = folders.run_dir(job_of(build).params["runs"]["configure"]) / "state.json"
    other = json.loads(state.read_text())
    other["shim"]["boot"] = other["child"]["boot"] = "another boot"
    shim.write_atomic(str(state), json.dumps(other).encode())
    thread.join(60)
    tools.release("configure")
    build.refresh_from_db()
    assert (build.state, job_of(build).state) == (Build.State.FAILED, Job.State.LOST), words(build)
    assert "restarted" in build.error_text


def test_a_huge_repository_is_given_up(
    repository: Path, tools: SlowTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.hold("fetch")
    monkeypatch.setattr("jobs.services.build_steps.MIRROR_LIMIT", 10)
    build = made(make_config(repository))
    assert (build.state, "larger than" in build.error_text) == (Build.State.FAILED, True), words(build)
    assert not Path(f"/proc/{tools.pid('fetch')}").exists()


def test_git_never_waits_for_a_password(tmp_path: Path) -> None:
    class Locked(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="sources"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Locked) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sources.ensure_mirror(tmp_path / "m.git")
        url = f"http://127.0.0.1:{server.server_port}/locked.git"
        argv = mirror.fetch_argv(str(tmp_path / "m.git"), url, "", local=False)
        argv[argv.index("protocol.https.allow=always")] = "protocol.http.allow=always"
        env = {**os.environ, **mirror.ENVIRONMENT, "HOME": str(tmp_path)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=False)
        server.shutdown()
    assert done.returncode == 128
    assert "could not read Username" in done.stderr
    [best, *_others] = diagnose(done.stderr, "build", done.returncode)
    assert best.cause_key == "git_auth"


def test_the_sources_of_a_repository_go_with_it(repository: Path) -> None:
    config = make_config(repository)
    row, build = config.repository, building.start_build(Actor.cli(), config)
    configs.delete_config(Actor.cli(), config)
    with pytest.raises(Refused, match="under way"):
        configs.delete_repository(Actor.cli(), row)
    assert finished(build).state == Build.State.READY
    mirror_folder = buildtree.mirror(row.pk)
    assert mirror_folder.is_dir()
    configs.delete_repository(Actor.cli(), row)
    jobs.execute(Job.objects.get(kind=mirrors.FORGET).pk)
    assert not mirror_folder.exists() and Path(build.path).is_file()
