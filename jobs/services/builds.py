"""Builds: register a binary, probe it, delete it. Only this module changes Build.state."""

import re
from pathlib import Path

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils import timezone
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish_on_commit
from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import stored, translate
from controlpanel.llamacpp.capabilities import Capabilities
from jobs.adapters import buildtree
from jobs.adapters.buildtree import TreeError
from jobs.adapters.probe import ProbeError, check_executable, fingerprint, probe_binary
from jobs.adapters.runs import run_dir
from jobs.models import Build, Host, Job, Run
from jobs.registry import Runner, WorkFailed
from jobs.services.audit import Actor, record
from jobs.services.jobs import Claimed, create_job

PROBE = "build.probe"
REMOVE = "build.remove"


def capabilities_of(build: Build) -> Capabilities:
    """Return the capabilities stored with the build."""
    return Capabilities.from_dict(build.capabilities)


def ready_build(name: str) -> Build:
    """Return the ready build of a name; Refused lists the builds there are."""
    ready = Build.objects.filter(state=Build.State.READY)
    build = ready.filter(name=name).first()
    if build is None:
        names = ", ".join(ready.values_list("name", flat=True)[:20]) or "–"
        message = _("There is no ready build %(name)s. Builds: %(names)s.")
        raise Refused(message % {"name": name, "names": names}, "build", "no_such_build")
    return build


def register_build(actor: Actor, host: Host, name: str, path: str, *, bundled: bool = False) -> Build:
    """Register an existing binary by its path and start its probe; Refused when the path is no executable."""
    name = re.sub(r"\s+", " ", name).strip()
    if not name:
        raise Refused(_("Give the build a name."), "name")
    try:
        check_executable(Path(path))
    except ProbeError as error:
        raise Refused(translate(error.message), "path") from error
    try:
        with transaction.atomic():
            build = Build.objects.create(
                host=host, name=name, path=path, bundled=bundled, created_by=actor.user
            )
            record(actor, "build.register", build, after={"name": name, "path": path})
            create_job(actor, PROBE, host, "build", build.pk, {})
            publish_on_commit("build", build.pk)
    except IntegrityError as error:
        raise Refused(_("There is already a build with this name."), "name") from error
    return build


def request_probe(actor: Actor, build: Build) -> None:
    """Probe the build again; its profiles keep the old capabilities until the probe succeeds."""
    with transaction.atomic():
        if (
            not Build.objects.filter(pk=build.pk)
            .exclude(state=Build.State.PROBING)
            .update(state=Build.State.PROBING, error="")
        ):
            raise Refused(_("This build is being probed already."))
        record(actor, "build.probe", build)
        create_job(actor, PROBE, build.host, "build", build.pk, {})
        publish_on_commit("build", build.pk)


def delete_build(actor: Actor, build: Build) -> None:
    """Delete a build; Refused while a profile uses it or it is worked on.

    What was made here goes with its files and logs; the files of a registered binary stay.
    """
    if build.state in Build.WORKING:
        raise Refused(_("The build is being worked on. Cancel that first."))
    try:
        with transaction.atomic():
            record(actor, "build.delete", build, before={"name": build.name, "path": build.path})
            pk = build.pk
            build.delete()
            if build.made_here:
                runs = list(
                    Run.objects.filter(subject_kind="build", subject_id=pk).values_list("pk", flat=True)
                )
                create_job(actor, REMOVE, build.host, "build", pk, {"runs": runs})
            publish_on_commit("build", pk)
    except ProtectedError as error:
        profiles = set(build.profiles.all())
        text = _("These known-good revisions use this build: %(names)s. Take the mark from them first.")
        if profiles:
            text = _("Profiles use this build: %(names)s. Change or delete them first.")
        keepers = profiles or error.protected_objects
        raise Refused(text % {"names": ", ".join(sorted(map(str, keepers)))}) from error


def probe_now(build: Build) -> None:
    """Probe the binary and store the result on the row; raise WorkFailed with the reason."""
    path = Path(build.path)
    row = Build.objects.filter(pk=build.pk)
    try:
        capabilities = probe_binary(path)
        print_ = fingerprint(path)
    except (ProbeError, OSError) as error:
        message = error.message if isinstance(error, ProbeError) else Message(str(error))
        row.update(state=Build.State.FAILED, error=stored(message), probed_at=timezone.now())
        publish_on_commit("build", build.pk)
        raise WorkFailed.of(message) from error
    row.update(
        state=Build.State.READY,
        error="",
        capabilities=capabilities.to_dict(),
        version=capabilities.version or "",
        # A tree without git makes binaries that do not know theirs.
        commit=build.source_commit or capabilities.commit or "",
        fingerprint=print_,
        probed_at=timezone.now(),
    )
    publish_on_commit("build", build.pk)


class ProbeRunner(Runner):
    """Runs the probe of one build."""

    def run(self, job: Claimed) -> None:
        """Probe the build named by the job, if it still exists."""
        build = Build.objects.filter(pk=job.row.subject_id).first()
        if build is not None:
            job.step("probe")
            probe_now(build)

    def cancel(self, job: Claimed) -> None:
        """Say on the build that nobody probed it."""
        _give_up(job.row)

    def dropped(self, job: Job) -> None:
        """Say on the build that nobody probed it."""
        _give_up(job)


class RemoveRunner(Runner):
    """Removes the files of a build whose row is gone."""

    keeps = N_("The build is deleted already; only its files are left to remove.")

    def run(self, job: Claimed) -> None:
        """Remove the folder of the build and those of its runs, with their rows."""
        job.step("remove")
        try:
            buildtree.remove(buildtree.tree(int(job.row.subject_id)).root)
            for run_id in job.params["runs"]:
                buildtree.remove(run_dir(run_id))
        except TreeError as error:
            raise WorkFailed.of(error.message) from error
        Run.objects.filter(pk__in=job.params["runs"]).exclude(state__in=Run.ACTIVE).delete()


def _give_up(job: Job) -> None:
    canceled = stored(Message(N_("The probe was canceled. Probe the build again to use it.")))
    if Build.objects.filter(pk=job.subject_id, state=Build.State.PROBING).update(
        state=Build.State.FAILED, error=canceled
    ):
        publish_on_commit("build", job.subject_id)
