"""Short questions to git about a mirror, bounded in time and size."""

import os
from pathlib import Path

from controlpanel.lib.text import N_, Worded
from jobs.adapters.commands import CommandError, Output, run_bounded
from jobs.adapters.runs import inherited
from jobs.domain import mirror as git

SECONDS = 60.0
FETCH_SECONDS = 900.0
LIMIT = 4 * 1024 * 1024  # bytes
SUGGESTIONS = 2000  # names read at most to find one that is meant


class GitError(Worded):
    """Git answered with an error; str() says which."""


def ensure_mirror(mirror: Path) -> None:
    """Make the bare repository when it is not there yet."""
    if (mirror / "HEAD").is_file():
        return
    mirror.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _ask(git.init_argv(str(mirror)), cwd=mirror.parent)


def resolve(mirror: Path, ref: str) -> str | None:
    """Return the full commit that a config's ref stands for in the mirror; None when it has no such thing."""
    return next(filter(None, (resolve_name(mirror, name) for name in git.names_of(ref))), None)


def resolve_name(mirror: Path, name: str) -> str | None:
    """Return the full commit of a name in the mirror; None when there is no such name."""
    return _line(mirror, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}") or None


def has_commit(mirror: Path, commit: str) -> bool:
    """Tell whether the mirror holds a commit."""
    return (
        bool(commit) and (mirror / "HEAD").is_file() and _line(mirror, "cat-file", "-t", commit) == "commit"
    )


def commit_number(mirror: Path, commit: str) -> int:
    """Return how many commits lead to this one, itself included: llama.cpp's build number; 0 not known."""
    said = _line(mirror, "rev-list", "--count", commit)
    return int(said) if said.isdigit() else 0


def commits_between(mirror: Path, old: str, new: str) -> int | None:
    """Return how many commits `new` has that `old` lacks; None when git cannot tell."""
    said = _line(mirror, "rev-list", "--count", f"{old}..{new}")
    return int(said) if said.isdigit() else None


def names(mirror: Path) -> list[str]:
    """Return names of branches and tags, the newest first."""
    argv = ["for-each-ref", "--sort=-creatordate", f"--count={SUGGESTIONS}", "--format=%(refname:lstrip=2)"]
    try:
        return _ask(git.git_argv(str(mirror), *argv, "refs/heads", "refs/tags"), cwd=mirror).stdout.split()
    except GitError:
        return []


def fetch(mirror: Path, url: str, ref: str, *, local: bool) -> None:
    """Bring the mirror up to date at once; GitError with git's last words."""
    _ask(git.fetch_argv(str(mirror), url, ref, local=local), cwd=mirror, seconds=FETCH_SECONDS)


def forget_missing_worktrees(mirror: Path) -> None:
    """Let git forget work folders that were removed."""
    if mirror.is_dir():
        _ask(git.git_argv(str(mirror), "worktree", "prune"), cwd=mirror)


def _line(mirror: Path, *arguments: str) -> str:
    try:
        return _ask(git.git_argv(str(mirror), *arguments), cwd=mirror).stdout.strip()
    except GitError:
        return ""


def _ask(argv: list[str], *, cwd: Path, seconds: float = SECONDS) -> Output:
    env = inherited(os.environ, proxy=True) | git.ENVIRONMENT | {"HOME": str(cwd)}
    try:
        answer = run_bounded(argv, seconds=seconds, limit=LIMIT, env=env, cwd=cwd)
    except CommandError as error:
        raise GitError.of(error.message) from error
    if answer.code:
        last = (answer.stderr.strip().splitlines() or [""])[-1]
        raise GitError(N_("git says: %(words)s"), words=last[:300] or str(answer.code))
    return answer
