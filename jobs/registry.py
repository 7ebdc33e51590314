"""Registries of jobs: which runner does a kind, on which of the host's queues, and what jobs are about."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from controlpanel.lib.text import Worded

if TYPE_CHECKING:
    from jobs.models import Job
    from jobs.services.audit import Actor
    from jobs.services.jobs import Claimed

Queue = Literal["work", "control"]


class Interrupted(Exception):
    """Raised at a step boundary when the worker shuts down: the job stays running and is recovered."""


class Canceled(Exception):
    """Raised at a step boundary when somebody asked to cancel the job."""


class WorkFailed(Worded):
    """The work said no (not our code): the job ends as failed with this sentence."""


class WorkLost(Worded):
    """What the job had begun is gone (its run folder, or the host was restarted): the job ends as lost."""


class Runner:
    """Does one kind of job. Each step is idempotent and reads its outcome from the run folder or the row.

    `keeps` says in words why jobs of this kind cannot be canceled by hand, "" when they can.
    """

    keeps = ""

    def run(self, job: "Claimed") -> None:
        """Do the work from the step cursor on; also called after a dead owner, to recover."""
        raise TypeError(f"{type(self).__name__} does not implement run()")

    def cancel(self, job: "Claimed") -> None:
        """End what the job started; called in the worker once a cancel was noticed."""

    def dropped(self, job: "Job") -> None:
        """Settle the subject of a job that was canceled before a worker took it; in the same transaction."""

    def take_back(self, actor: "Actor", job: "Job") -> bool:
        """Undo by a service of the kind's own what a person cancels; False when there is none."""
        return False


@dataclass(frozen=True)
class JobKind:
    """A kind of job as registered by an app; `title` is the English text of what it does.

    At most `limit` jobs of the kind run at a time on one host; 0 means as many as the worker has threads.
    """

    name: str
    queue: Queue
    runner: Runner
    title: str
    limit: int = 0


_kinds: dict[str, JobKind] = {}


def register_kind(name: str, queue: Queue, runner: Runner, title: str = "", limit: int = 0) -> None:
    """Make a job kind known; called from AppConfig.ready()."""
    _kinds[name] = JobKind(name, queue, runner, title or name, limit)


def kind_of(name: str) -> JobKind | None:
    """Return the registered kind, or None when no app knows it (any more)."""
    return _kinds.get(name)


@dataclass(frozen=True)
class Subject:
    """What a job or a run is about, for a page: its name and its address."""

    label: str
    href: str


FindSubjects = Callable[[set[str]], dict[str, Subject]]

_subjects: dict[str, FindSubjects] = {}


def register_subject(kind: str, find: FindSubjects) -> None:
    """Name the function that finds the subjects of this kind by their keys, all with one question."""
    _subjects[kind] = find


def subjects_of(jobs: "list[Job]") -> dict[tuple[str, str], Subject]:
    """Return the subjects of jobs by (kind, key); one that is gone is missing."""
    return find_subjects((job.subject_kind, job.subject_id) for job in jobs)


def find_subjects(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Subject]:
    """Return subjects by (kind, key); one that is gone is missing."""
    keys: dict[str, set[str]] = {}
    for kind, key in pairs:
        keys.setdefault(kind, set()).add(key)
    return {
        (kind, key): subject
        for kind, wanted in keys.items()
        if kind in _subjects
        for key, subject in _subjects[kind](wanted).items()
    }
