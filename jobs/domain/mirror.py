"""The git commands of a build: what is fetched into a mirror, and how a commit is checked out of it.

A mirror is a bare repository of the panel's own. Branches and tags keep their names in it; refs/panel/head is
the source's default branch, refs/panel/wanted what no branch and no tag leads to. The source is not trusted.
"""

from __future__ import annotations

import re

HEAD = "refs/panel/head"
WANTED = "refs/panel/wanted"

# What git must see in its environment: it asks nobody, and reads no settings but the mirror's.
ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=30 -oStrictHostKeyChecking=accept-new",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C.UTF-8",
}

_SAFE = ("credential.helper=", "core.hooksPath=/dev/null", "core.fsmonitor=false", "submodule.recurse=false")
# A transfer that stands still for a minute ends with an error.
_TRANSFER = ("http.lowSpeedLimit=1000", "http.lowSpeedTime=60", "gc.autoDetach=false")
_PULL = re.compile(r"(?:refs/)?pull/(\d{1,9})(?:/head)?")
_FULL_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.IGNORECASE)


def git_argv(mirror: str, *arguments: str, settings: tuple[str, ...] = (), git: str = "git") -> list[str]:
    """Return a git command in the mirror that runs no hook and asks no helper."""
    return [git, "-C", mirror, *(word for one in (*_SAFE, *settings) for word in ("-c", one)), *arguments]


def init_argv(mirror: str) -> list[str]:
    """Return the command that makes an empty mirror; run again, it changes nothing."""
    return ["git", "init", "--quiet", "--bare", "--template=", "--", mirror]


def fetch_argv(mirror: str, url: str, ref: str, *, local: bool, git: str = "git") -> list[str]:
    """Return the command that brings branches, tags and a wanted commit or pull request up to date."""
    allowed = ("file",) if local else ("https", "ssh")
    protocols = ("protocol.allow=never", *(f"protocol.{name}.allow=always" for name in allowed))
    wanted = _unnamed(ref)
    refs = [f"+HEAD:{HEAD}", "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
    refs += [f"+{wanted}:{WANTED}"] if wanted else []
    how = ("--progress", "--prune", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
    arguments = ("fetch", *how, "--end-of-options", url, *refs)
    return git_argv(mirror, *arguments, settings=(*protocols, *_TRANSFER), git=git)


def checkout_argv(mirror: str, source: str, commit: str, *, git: str = "git") -> list[str]:
    """Return the command that puts a commit into a new work folder of the mirror."""
    return git_argv(mirror, "worktree", "add", "--force", "--detach", "--", source, commit, git=git)


def names_of(ref: str) -> tuple[str, ...]:
    """Return the names in the mirror that a ref of a config may stand for, in the order of their weight."""
    if not ref:
        return (HEAD,)
    if _unnamed(ref):
        return (WANTED,)
    return (f"refs/tags/{ref}", f"refs/heads/{ref}", ref)


def branch_of(ref: str) -> str:
    """Return the name in the mirror that builds of a ref are behind of: its branch, else the default."""
    return HEAD if not ref or _unnamed(ref) else f"refs/heads/{ref}"


def _unnamed(ref: str) -> str:
    """Return what to ask the source for when a ref is no branch and no tag, else nothing."""
    pull = _PULL.fullmatch(ref)
    if pull:
        return f"refs/pull/{pull[1]}/head"
    return ref.lower() if _FULL_COMMIT.fullmatch(ref) else ""
