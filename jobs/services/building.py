"""Builds made here: start, start again, cancel. Their steps are done by jobs.services.build_runner."""

from django.db import transaction
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish_on_commit
from controlpanel.lib.words import translate
from controlpanel.llamacpp.problems import errors
from jobs.domain.buildcheck import check_inputs
from jobs.domain.buildspec import BuildInputs
from jobs.domain.toolchain import warnings
from jobs.domain.trees import tree_with
from jobs.models import Build, BuildConfig, Job, Repository
from jobs.services.audit import Actor, record
from jobs.services.jobs import cancel_job, create_job
from jobs.services.toolchains import toolchain_of

MAKE = "build.make"


def start_build(actor: Actor, config: BuildConfig) -> Build:
    """Queue a build of what the config says now; Refused with words when it cannot work on its host."""
    return _start(actor, config, config.repository, config.inputs(), commit="")


def rebuild(actor: Actor, build: Build) -> Build:
    """Queue a build of the same inputs and the same commit; Refused when that is not possible any more."""
    inputs = BuildInputs.from_dict(build.inputs)
    if not build.made_here or build.config is None:
        raise Refused(_("The build config of this build was deleted: make a new one."))
    repository = Repository.objects.filter(url=inputs.repository).first()
    if repository is None:
        raise Refused(
            _("The repository %(url)s is no longer registered. An admin can add it.")
            % {"url": inputs.repository}
        )
    return _start(actor, build.config, repository, inputs, build.source_commit)


def cancel_build(actor: Actor, build: Build) -> None:
    """Cancel the build; Refused when nothing is being built."""
    job = newest_job(build)
    if job is None or not job.is_active:
        raise Refused(_("This build has ended already."))
    cancel_job(actor, job)


def newest_job(build: Build) -> Job | None:
    """Return the job that makes or made the build; None for a binary registered by its path."""
    rows = Job.objects.select_related("host", "actor")
    return rows.filter(subject_kind="build", subject_id=str(build.pk), kind=MAKE).first()


def _start(
    actor: Actor, config: BuildConfig, repository: Repository, inputs: BuildInputs, commit: str
) -> Build:
    tree, toolchain = tree_with(repository.options), toolchain_of(config.host)
    found = check_inputs(inputs, tree) + (warnings(toolchain, inputs, tree) if toolchain else [])
    wrong = errors(found)
    if wrong:
        raise Refused(translate(wrong[0].message), wrong[0].field)
    with transaction.atomic():
        build = Build.objects.create(
            host=config.host,
            name=_free_name(config),
            state=Build.State.QUEUED,
            config=config,
            inputs=inputs.to_dict(),
            source_commit=commit,
            created_by=actor.user,
        )
        record(actor, "build.start", build, after={"name": build.name, **inputs.to_dict()})
        create_job(actor, MAKE, config.host, "build", build.pk, {"mirror": repository.pk, "commit": commit})
        publish_on_commit("build", build.pk)
    return build


def _free_name(config: BuildConfig) -> str:
    number = config.builds.count() + 1
    while Build.objects.filter(name=f"{config.name} #{number}").exists():
        number += 1
    return f"{config.name} #{number}"
