"""Registry of job kinds: which runner does a kind, and on which of the host's queues."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from controlpanel.lib.text import Worded

if TYPE_CHECKING:
    from jobs.services.jobs import Claimed

Queue = Literal["work", "control"]


class Interrupted(Exception):
    """Raised at a step boundary when the worker shuts down: the job stays running and is recovered."""


class Canceled(Exception):
    """Raised at a step boundary when somebody asked to cancel the job."""


class WorkFailed(Worded):
    """The work said no (not our code): the job ends as failed with this sentence."""


class Runner:
    """Does one kind of job. Each step is idempotent and reads its outcome from the run folder or the row."""

    def run(self, job: "Claimed") -> None:
        """Do the work from the step cursor on; also called after a dead owner, to recover."""
        raise TypeError(f"{type(self).__name__} does not implement run()")

    def cancel(self, job: "Claimed") -> None:
        """End what the job started; called in the worker once a cancel was noticed."""


@dataclass(frozen=True)
class JobKind:
    """A kind of job as registered by an app."""

    name: str
    queue: Queue
    runner: Runner


_kinds: dict[str, JobKind] = {}


def register_kind(name: str, queue: Queue, runner: Runner) -> None:
    """Make a job kind known; called from AppConfig.ready()."""
    _kinds[name] = JobKind(name, queue, runner)


def kind_of(name: str) -> JobKind | None:
    """Return the registered kind, or None when no app knows it (any more)."""
    return _kinds.get(name)
