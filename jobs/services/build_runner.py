"""The runner of builds: fetch, checkout, configure, compile, install, probe, gone on with after any end."""

from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from controlpanel.lib.streams import publish
from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import stored
from controlpanel.llamacpp.problems import errors
from jobs.adapters import buildtree, sources
from jobs.adapters.buildtree import BuildTree, TreeError
from jobs.adapters.commands import CommandError, run_bounded
from jobs.adapters.sources import GitError
from jobs.domain import mirror, progress
from jobs.domain.buildcheck import check_inputs
from jobs.domain.buildspec import SERVER, BuildInputs
from jobs.domain.cmake import compile_argv, configure_argv, job_count
from jobs.domain.programs import Toolchain
from jobs.domain.targets import targets_in
from jobs.domain.toolchain import warnings
from jobs.domain.trees import not_llama, tree_of
from jobs.models import Build, Job, Repository
from jobs.registry import Canceled, Interrupted, Runner, WorkFailed, WorkLost
from jobs.services.build_steps import Step, end_runs, environment, run_step
from jobs.services.builds import probe_now
from jobs.services.jobs import Claimed
from jobs.services.toolchains import look_now

HOUR = 3600.0
LEAST_FREE = 1024**3  # bytes of disk below which no build begins
CANCELED = Message(N_("The build was canceled."))
NO_SPACE = N_(
    "Only %(free)s MiB of disk space are free; a build needs at least %(need)s MiB. Delete old builds."
)


class BuildRunner(Runner):
    """Makes one build."""

    def run(self, job: Claimed) -> None:
        """Go on with the build at its first step that is not done."""
        build = _build(job.row)
        if build is None or build.state not in Build.WORKING:
            return
        move(build, Build.State.QUEUED, to=Build.State.BUILDING)
        try:
            Making(job, build).all_steps()
        except (Interrupted, Canceled):
            raise
        except (WorkFailed, WorkLost) as error:
            _give_up(build, error.message)
            raise
        except (GitError, TreeError, CommandError) as error:
            _give_up(build, error.message)
            raise WorkFailed.of(error.message) from error
        except Exception as error:
            _give_up(build, Message(N_("The panel met an error of its own: %(why)s"), {"why": repr(error)}))
            raise

    def cancel(self, job: Claimed) -> None:
        """End the step that runs with all its processes, and remove what was made."""
        end_runs(job)
        build = _build(job.row)
        if build is not None:
            move(build, *Build.WORKING, to=Build.State.CANCELED, error=stored(CANCELED))
            with suppress(TreeError):
                buildtree.remove(buildtree.tree(build.pk).root)

    def dropped(self, job: Job) -> None:
        """Say on the build that it was canceled before it began."""
        build = _build(job)
        if build is not None:
            move(build, *Build.WORKING, to=Build.State.CANCELED, error=stored(CANCELED))


def move(build: Build, *allowed: str, to: str, error: str = "") -> bool:
    """Move a build on from one of the allowed states; False when it is in another one."""
    won = Build.objects.filter(pk=build.pk, state__in=allowed).update(state=to, error=error)
    if won:
        build.state = to
        publish("build", build.pk)
    return bool(won)


class Making:
    """One build while it is made: what its steps hand on to each other."""

    def __init__(self, job: Claimed, build: Build) -> None:
        self.job = job
        self.build = build
        self.inputs = BuildInputs.from_dict(build.inputs)
        self.mirror = buildtree.mirror(job.params["mirror"])
        self.folders: BuildTree = buildtree.tree(build.pk)

    def all_steps(self) -> None:
        """Do what is not done yet; each step is harmless when it was done before."""
        if not self.folders.installed.is_dir():
            self._need_space()
            self.folders.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._has_git():
                self._fetch()
                self._checkout()
            else:
                self._copy()
            self._compile(self._configure())
            self.job.step("install")
            buildtree.install(self.folders, (SERVER, *self.inputs.targets))
        self._finish()

    def _has_git(self) -> bool:
        source = Path(self.inputs.repository)
        if not self.inputs.local:
            return True
        if not source.is_dir():
            raise WorkFailed(N_("The folder %(path)s does not exist on this host."), path=source)
        return (source / ".git").exists() or (source / "HEAD").is_file()

    def _need_space(self) -> None:
        free = buildtree.free_bytes()
        if free is not None and free < LEAST_FREE:
            raise WorkFailed(
                NO_SPACE,
                free=free // 1024**2,
                need=LEAST_FREE // 1024**2,
            )

    def _fetch(self) -> None:
        commit = self.job.params.get("commit", "")
        if not sources.has_commit(self.mirror, commit):
            sources.ensure_mirror(self.mirror)
            argv = mirror.fetch_argv(
                str(self.mirror), self.inputs.repository, self.inputs.ref, local=self.inputs.local
            )
            unlock = partial(buildtree.unlock, self.mirror)
            self._run(Step("fetch", argv, unlock, 6 * HOUR, progress.git_progress, grows=self.mirror))
            commit = commit or self._resolved()
            if not sources.has_commit(self.mirror, commit):
                raise WorkFailed(
                    N_("The commit %(commit)s is no longer in the repository."), commit=commit[:12]
                )
            self.job.remember(commit=commit, number=sources.commit_number(self.mirror, commit))
        if self.build.source_commit != commit:
            Build.objects.filter(pk=self.build.pk).update(source_commit=commit)
            self.build.source_commit = commit
            publish("build", self.build.pk)

    def _resolved(self) -> str:
        ref = self.inputs.ref
        commit = sources.resolve(self.mirror, ref)
        if commit is None:
            near = get_close_matches(ref, sources.names(self.mirror), 3)
            text = N_("The repository has no branch, tag or commit named %(ref)s.")
            if near:
                text = N_("The repository has no branch, tag or commit named %(ref)s. Did you mean %(near)s?")
            raise WorkFailed(text, ref=ref or "HEAD", near=", ".join(near))
        return commit

    def _checkout(self) -> None:
        source = self.folders.source

        def prepare() -> None:
            buildtree.remove(source)
            sources.forget_missing_worktrees(self.mirror)

        argv = mirror.checkout_argv(str(self.mirror), str(source), self.build.source_commit)
        self._run(Step("checkout", argv, prepare, HOUR, progress.git_progress))

    def _copy(self) -> None:
        source = self.folders.source
        argv = ["cp", "-a", "--reflink=auto", "--", f"{self.inputs.repository}/.", str(source)]
        self._run(Step("checkout", argv, partial(buildtree.remove, source), HOUR))

    def _configure(self) -> Toolchain:
        texts = buildtree.read_texts(self.folders.source)
        reason = not_llama(texts)
        if reason is not None:
            raise WorkFailed.of(reason)
        tree, toolchain = tree_of(texts), look_now()
        Repository.objects.filter(pk=self.job.params["mirror"]).update(options=sorted(tree.options))
        wrong = errors([*check_inputs(self.inputs, tree), *warnings(toolchain, self.inputs, tree)])
        if wrong:
            raise WorkFailed.of(wrong[0].message)
        argv = configure_argv(
            self.inputs,
            str(self.folders.source),
            str(self.folders.build),
            tree=tree,
            toolchain=toolchain,
            commit=self.build.source_commit,
            number=self.job.params.get("number", 0),
        )
        self._run(Step("configure", argv, partial(buildtree.remove, self.folders.build), HOUR))
        return toolchain

    def _compile(self, toolchain: Toolchain) -> None:
        targets = self._targets()
        argv = compile_argv(str(self.folders.build), job_count(self.inputs, toolchain), targets)
        self._run(Step("compile", argv, None, 24 * HOUR, progress.build_progress))

    def _targets(self) -> tuple[str, ...]:
        """Return the wanted targets that this tree has: older ones and forks lack some of the tools."""
        answer = run_bounded(
            ["cmake", "--build", str(self.folders.build), "--target", "help"],
            seconds=60,
            limit=8 * 1024**2,
            env=environment(),
            cwd=self.folders.root,
        )
        known = targets_in(answer.stdout)
        wanted = tuple(target for target in self.inputs.targets if target in known)
        if SERVER not in wanted:
            raise WorkFailed(N_("This source cannot build %(name)s."), name=SERVER)
        return wanted

    def _finish(self) -> None:
        for folder in (self.folders.source, self.folders.build):
            buildtree.remove(folder)
        sources.forget_missing_worktrees(self.mirror)
        self.job.step("probe")
        self.build.path = str(self.folders.installed / "bin" / SERVER)
        Build.objects.filter(pk=self.build.pk).update(
            path=self.build.path, size=buildtree.size_of(self.folders.installed)
        )
        move(self.build, Build.State.BUILDING, to=Build.State.PROBING)
        probe_now(self.build)

    def _run(self, step: Step) -> None:
        run_step(self.job, self.build, step, self.folders.root)


def _build(job: Job) -> Build | None:
    return Build.objects.select_related("host", "config").filter(pk=job.subject_id).first()


def _give_up(build: Build, why: Message) -> None:
    if move(build, *Build.WORKING, to=Build.State.FAILED, error=stored(why)):
        with suppress(TreeError):  # what stays counts as the build's size and goes when it is deleted
            buildtree.remove(buildtree.tree(build.pk).root)
