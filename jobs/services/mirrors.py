"""Removal of what was fetched from a repository that is no longer registered."""

from jobs.adapters import buildtree
from jobs.adapters.buildtree import TreeError
from jobs.models import Repository
from jobs.registry import Runner, WorkFailed
from jobs.services.jobs import Claimed

FORGET = "repository.forget"


class ForgetRunner(Runner):
    """Removes the mirror of a repository whose row is gone."""

    def run(self, job: Claimed) -> None:
        """Remove the mirror, unless a repository of this key is there after all."""
        job.step("remove")
        pk = int(job.row.subject_id)
        if Repository.objects.filter(pk=pk).exists():
            return
        try:
            buildtree.remove(buildtree.mirror(pk))
        except TreeError as error:
            raise WorkFailed.of(error.message) from error
