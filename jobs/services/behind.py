"""How many commits a build lacks that its branch has by now: counted on request, on the build's host."""

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish
from controlpanel.lib.text import N_
from jobs.adapters import buildtree, sources
from jobs.adapters.sources import GitError
from jobs.domain import mirror as git
from jobs.domain.buildspec import BuildInputs
from jobs.models import Build, Job, Repository
from jobs.registry import Runner, WorkFailed
from jobs.services.audit import Actor, record
from jobs.services.building import MAKE
from jobs.services.jobs import Claimed, create_job

BEHIND = "build.behind"


def count_behind(actor: Actor, build: Build) -> None:
    """Ask for the count; Refused without a commit, and while a build or another count is running."""
    inputs = BuildInputs.from_dict(build.inputs) if build.made_here else None
    repository = Repository.objects.filter(url=inputs.repository).first() if inputs else None
    if repository is None or not build.source_commit:
        raise Refused(_("The panel does not know from which commit of which repository this build was made."))
    with transaction.atomic():
        if Job.objects.filter(kind__in=(MAKE, BEHIND), host=build.host, state__in=Job.OWNED).exists():
            raise Refused(_("A build or another count is running. Try again when it has ended."))
        record(actor, "build.behind", build)
        create_job(actor, BEHIND, build.host, "build", build.pk, {"mirror": repository.pk})


class BehindRunner(Runner):
    """Fetches the repository of a build and counts."""

    def run(self, job: Claimed) -> None:
        """Store the count on the build."""
        build = Build.objects.filter(pk=job.row.subject_id).first()
        if build is None:
            return
        job.step("fetch")
        inputs = BuildInputs.from_dict(build.inputs)
        mirror = buildtree.mirror(job.params["mirror"])
        try:
            sources.ensure_mirror(mirror)
            sources.fetch(mirror, inputs.repository, "", local=inputs.local)
        except GitError as error:
            raise WorkFailed(N_("The repository could not be fetched: %(why)s"), why=error.message) from error
        job.step("count")
        newest = git.branch_of(inputs.ref)
        if sources.resolve_name(mirror, newest) is None:
            newest = git.HEAD  # a tag has no branch of its own, and a branch may be gone
        number = sources.commits_between(mirror, build.source_commit, newest)
        if number is None:
            raise WorkFailed(N_("The commit of the build is no longer in the repository."))
        Build.objects.filter(pk=build.pk).update(behind=number, behind_at=timezone.now())
        publish("build", build.pk)
