"""The job protocol: claims, owners, cursors, cancel and reconcile on the real database."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import close_old_connections, connection
from django.utils import timezone

from jobs import registry
from jobs.models import Host, Job
from jobs.registry import Runner, WorkFailed, WorkLost, register_kind
from jobs.runtime.procs import this_process
from jobs.services import jobs
from jobs.services.audit import Actor
from jobs.services.hosts import local_host

pytestmark = pytest.mark.django_db(transaction=True)
State = Job.State


class Recorder(Runner):
    """A runner whose steps are recorded, and which fails or waits as the job's parameters say."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def run(self, job: jobs.Claimed) -> None:
        for name in ("one", "two"):
            if job.cursor == "two" and name == "one":
                continue
            job.step(name)
            self.seen.append(name)
        if job.params.get("say_no"):
            raise WorkFailed("the disk is full")
        if job.params.get("raise"):
            raise ValueError("a fault of ours")
        if job.params.get("wait"):
            job.wait(lambda: False, 60)

    def cancel(self, job: jobs.Claimed) -> None:
        self.seen.append("canceled")


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A registered kind "test" for the time of one test."""
    monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))
    found = Recorder()
    register_kind("test", "control", found)
    return found


def make(state: str = State.QUEUED, **fields: Any) -> Job:
    """A job row as it would be found in the database."""
    return Job.objects.create(
        kind="test", host=local_host(), subject_kind="x", subject_id="1", state=state, **fields
    )


def owner(start_offset: int = 0) -> dict[str, Any]:
    """Owner columns naming this process, or one that is gone when the start time is off."""
    me = this_process()
    return {"owner_boot": me.boot, "owner_pid": me.pid, "owner_start": me.start + start_offset}


def test_a_job_runs_to_success_with_its_steps(runner: Recorder) -> None:
    job = make()
    jobs.execute(job.pk)
    job.refresh_from_db()
    assert (job.state, runner.seen) == (State.SUCCEEDED, ["one", "two"])
    assert [step["name"] for step in job.steps] == ["one", "two"]
    assert all(step["ended_at"] >= step["started_at"] for step in job.steps)


@pytest.mark.parametrize(
    ("params", "state", "words"),
    [
        ({"say_no": True}, State.FAILED, "the disk is full"),
        ({"raise": True}, State.ERRORED, "ValueError: a fault of ours"),
    ],
)
def test_no_from_the_work_and_a_fault_of_ours_are_told_apart(
    runner: Recorder, params: dict[str, Any], state: str, words: str
) -> None:
    job = make(params=params)
    jobs.execute(job.pk)
    job.refresh_from_db()
    assert (job.state, job.error_text) == (state, words)


def test_a_second_message_for_a_running_job_does_nothing(runner: Recorder) -> None:
    job = make(State.RUNNING, **owner())
    jobs.execute(job.pk)
    job.refresh_from_db()
    assert (job.state, runner.seen) == (State.RUNNING, [])


def test_a_job_of_a_dead_owner_goes_on_at_its_cursor(runner: Recorder) -> None:
    job = make(State.RUNNING, step="two", **owner(start_offset=1))
    jobs.execute(job.pk)
    job.refresh_from_db()
    assert (job.state, runner.seen) == (State.SUCCEEDED, ["two"])


def test_ten_claims_at_once_give_one_owner(runner: Recorder) -> None:
    job = make()
    won = []

    def claim() -> None:
        close_old_connections()
        won.append(jobs.claim(job.pk) is not None)
        connection.close()

    threads = [threading.Thread(target=claim) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 9 + [True]


def test_canceling_a_queued_job_ends_it_at_once(runner: Recorder) -> None:
    job = make()
    jobs.request_cancel(job)
    jobs.execute(job.pk)
    job.refresh_from_db()
    assert (job.state, runner.seen) == (State.CANCELED, [])


def test_canceling_a_running_job_is_noticed_at_its_next_check(runner: Recorder) -> None:
    job = make(params={"wait": True})
    thread = threading.Thread(target=lambda: (jobs.execute(job.pk), connection.close()))
    thread.start()
    while not Job.objects.filter(pk=job.pk, step="two").exists():
        pass
    jobs.request_cancel(job)
    thread.join(30)
    assert not thread.is_alive()
    job.refresh_from_db()
    assert (job.state, runner.seen) == (State.CANCELED, ["one", "two", "canceled"])


def test_a_cancel_asked_while_the_worker_died_is_carried_out_by_the_next(runner: Recorder) -> None:
    job = make(State.CANCELING, step="one", **owner(start_offset=1))
    jobs.execute(job.pk)
    job.refresh_from_db()
    assert (job.state, runner.seen) == (State.CANCELED, ["canceled"])


def test_shutting_down_leaves_the_job_running_for_the_next_worker(
    runner: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = threading.Event()
    monkeypatch.setattr(jobs, "shutting_down", stopping)
    stopping.set()
    job = make()
    jobs.execute(job.pk)
    job.refresh_from_db()
    assert (job.state, runner.seen) == (State.RUNNING, [])


def test_reconcile_wakes_old_queued_jobs_and_those_of_dead_owners_only(
    runner: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    monkeypatch.setattr(jobs, "enqueue", lambda job: woken.append(job.pk) or True)
    old, fresh = make(), make()
    Job.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(seconds=11))
    dead, living = make(State.RUNNING, **owner(1)), make(State.RUNNING, **owner())
    elsewhere = make(State.RUNNING, **owner(1))
    Job.objects.filter(pk=elsewhere.pk).update(host=Host.objects.create(slug="other", name="Other"))
    done = make(State.SUCCEEDED)
    jobs.reconcile(local_host())
    assert woken == [old.pk, dead.pk]
    assert not {fresh.pk, living.pk, elsewhere.pk, done.pk} & set(woken)


def test_creating_a_job_without_a_broker_leaves_it_queued_and_is_quick(
    runner: Recorder, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: object, **_kwargs: object) -> None:
        raise ConnectionRefusedError("broker away")

    monkeypatch.setattr(jobs.current_app, "send_task", away)
    job = jobs.create_job(Actor.cli(), "test", local_host(), "x", 1, {})
    job.refresh_from_db()
    assert (job.state, job.enqueued_at) == (State.QUEUED, None)


def limited(runner: Recorder, number: int) -> None:
    """Register the recorder as a kind of which at most `number` jobs run at a time."""
    register_kind("test", "work", runner, limit=number)


def test_a_job_of_a_limited_kind_stays_queued_while_others_run(runner: Recorder) -> None:
    limited(runner, 2)
    running = [make(State.RUNNING, **owner()), make(State.CANCELING, **owner())]
    waiting = make()
    jobs.execute(waiting.pk)
    waiting.refresh_from_db()
    assert (waiting.state, runner.seen) == (State.QUEUED, [])
    jobs.finish(running[0], State.SUCCEEDED)
    jobs.execute(waiting.pk)
    waiting.refresh_from_db()
    assert (waiting.state, runner.seen) == (State.SUCCEEDED, ["one", "two"])


def test_the_limit_counts_the_jobs_of_one_host(runner: Recorder) -> None:
    limited(runner, 1)
    make(State.RUNNING, **owner())
    Job.objects.update(host=Host.objects.create(slug="other", name="Other"))
    here = make()
    jobs.execute(here.pk)
    here.refresh_from_db()
    assert here.state == State.SUCCEEDED


def test_ten_workers_at_once_take_no_more_than_the_limit(runner: Recorder) -> None:
    limited(runner, 2)
    rows = [make() for _ in range(10)]
    won: list[bool] = []

    def claim(pk: int) -> None:
        close_old_connections()
        won.append(jobs.claim(pk) is not None)
        connection.close()

    threads = [threading.Thread(target=claim, args=(row.pk,)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 8 + [True] * 2
    assert Job.objects.filter(state=State.RUNNING).count() == 2


def test_work_that_is_gone_ends_as_lost(runner: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(job: jobs.Claimed) -> None:
        raise WorkLost("the folder is gone")

    monkeypatch.setattr(runner, "run", lose)
    job = make()
    jobs.execute(job.pk)
    job.refresh_from_db()
    assert (job.state, job.error_text) == (State.LOST, "the folder is gone")


def test_progress_belongs_to_its_step(runner: Recorder) -> None:
    claimed = jobs.claim(make().pk)
    assert claimed is not None
    claimed.step("one")
    claimed.progress(3, 7, "three of seven")
    row = Job.objects.get(pk=claimed.row.pk)
    assert row.progress == {"done": 3, "total": 7, "text": "three of seven"}
    claimed.step("two")
    row.refresh_from_db()
    assert row.progress == {}
