"""Questions to the model hub: search, the files of a repository, and where a file's bytes are right now."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from jobs.adapters.hub_client import NoAnswer, Refused, TooSlow, WrongAnswer, asking, same_origin
from jobs.adapters.hub_errors import (
    BAD_ANSWER,
    NO_ANSWER,
    NO_FILE,
    NO_REPO,
    TOO_SLOW,
    HubError,
    Question,
    raise_refusal,
)
from jobs.domain.hf import CONTROL, PUBLIC_HUB, check_path, check_repo, page_of
from jobs.domain.hf_files import HubFile

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

__all__ = ["Found", "HubError", "HubRepository", "endpoint", "repository", "resolve", "search"]

SECONDS = 20.0  # for one question, all its parts together
MAX_QUERY = 200  # characters
MAX_FOUND = 100
MAX_FILES = 20_000
MAX_SIZE = 1 << 53
DEFAULT_REVISION = "main"

# What the library raises when an answer lacks what it takes for granted.
_NOT_A_HUB = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Found:
    """One repository that a search found; numbers are None where the hub does not say them."""

    repo: str
    downloads: int | None
    likes: int | None
    gated: bool
    private: bool
    updated: datetime | None
    architecture: str
    parameters: int | None
    context_length: int | None


@dataclass(frozen=True)
class Located:
    """Where a file's bytes are now and what to send along; None for what the hub does not say."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    size: int | None = None
    sha256: str | None = None
    etag: str | None = None
    commit: str | None = None


@dataclass(frozen=True)
class HubRepository:
    """A repository at one commit: `commit` in full, `gated` when its terms have to be accepted first."""

    repo: str
    commit: str
    link: str
    gated: bool
    private: bool
    updated: datetime | None
    files: tuple[HubFile, ...] = field(repr=False)


def endpoint() -> str:
    """Return the address of the hub in use, as HF_ENDPOINT names it."""
    address = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or PUBLIC_HUB
    return address if "://" in address else f"https://{address}"


def search(text: str, *, token: str | None = None, limit: int = 30) -> list[Found]:
    """Return repositories with GGUF files whose names match, the most loaded first; raises HubError."""
    limit = max(1, min(limit, MAX_FOUND))
    words = CONTROL.sub(" ", text).strip()[:MAX_QUERY]
    with _question(token) as (api, _):
        models = api.list_models(
            search=words,
            filter="gguf",
            sort="downloads",
            limit=limit,
            expand=["downloads", "gated", "gguf", "lastModified", "likes", "private"],
        )
        return [_found(model) for model in models if check_repo(model.id)]


def repository(repo: str, revision: str = "", *, token: str | None = None) -> HubRepository:
    """Return a repository's files at a branch, tag or commit ("" is the main branch); raises HubError."""
    revision = revision or DEFAULT_REVISION
    with _question(token, repo, revision) as (api, question):
        info = api.model_info(repo, revision=revision, files_metadata=True)
        if not check_repo(info.id) or not _COMMIT.fullmatch(info.sha or "") or info.siblings is None:
            raise WrongAnswer("no repository")
        if len(info.siblings) > MAX_FILES:
            raise WrongAnswer("too many files")
        return HubRepository(
            repo=info.id,
            commit=str(info.sha),
            link=question.link,
            gated=bool(info.gated),
            private=bool(info.private),
            updated=info.last_modified,
            files=tuple(_file(entry) for entry in info.siblings if check_path(entry.rfilename)),
        )


def resolve(repo: str, revision: str, file: str, *, token: str | None = None) -> Located:
    """Ask where a file's bytes are now, and what they are; the link is often good for an hour only.

    The token goes into the headers only when the bytes come from the hub's own host. Raises HubError.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    revision = revision or DEFAULT_REVISION
    with _question(token, repo, revision, file) as (api, question):
        if not check_path(file):
            raise HubError("not_found_file", NO_FILE, repo=repo, file=file[:200])
        url = hf_hub_url(repo, file, revision=revision, endpoint=api.endpoint)
        found = get_hf_file_metadata(url, token=token or False, endpoint=api.endpoint)
        own = token and same_origin(found.location, api.endpoint)
        etag = found.etag or ""
        return Located(
            url=found.location,
            headers={"Authorization": f"Bearer {token}"} if own else {},
            size=_number(found.size),
            sha256=etag if _SHA256.fullmatch(etag) else None,
            etag=etag or None,
            commit=found.commit_hash,
        )


@contextmanager
def _question(
    token: str | None, repo: str = "", revision: str = "", file: str = ""
) -> Iterator[tuple[HfApi, Question]]:
    """Ask within the deadline, and turn whatever goes wrong into a HubError without the library's words."""
    from httpx2 import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    address = endpoint()
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    question = Question(
        host=host,
        link=page_of(repo, urlunsplit(parts._replace(netloc=host))) if repo else "",
        repo=repo,
        revision=revision,
        file=file,
        with_token=bool(token),
    )
    if repo and not check_repo(repo):
        raise HubError("not_found_repo", NO_REPO, repo=repo[:100])
    # False keeps the library from looking for a token in the home folder.
    api = HfApi(endpoint=address, token=token or False, library_name="llamacpp-control-panel")
    try:
        with asking(address, SECONDS):
            yield api, question
    except Refused as error:
        raise_refusal(question, error.refusal)
    except TooSlow as error:
        raise HubError("hub_down", TOO_SLOW, host=question.host) from error
    except NoAnswer as error:
        raise HubError("hub_down", NO_ANSWER, host=question.host, why=str(error)) from error
    except (WrongAnswer, HfHubHTTPError, HTTPError, *_NOT_A_HUB) as error:
        raise HubError("bad_answer", BAD_ANSWER, host=question.host) from error


def _found(model: ModelInfo) -> Found:
    facts = model.gguf if isinstance(model.gguf, dict) else {}
    architecture = facts.get("architecture")
    return Found(
        repo=model.id,
        downloads=_number(model.downloads),
        likes=_number(model.likes),
        gated=bool(model.gated),
        private=bool(model.private),
        updated=model.last_modified,
        architecture=CONTROL.sub("", architecture)[:60] if isinstance(architecture, str) else "",
        parameters=_number(facts.get("total")),
        context_length=_number(facts.get("context_length")),
    )


def _file(entry: RepoSibling) -> HubFile:
    sha256 = entry.lfs.sha256 if entry.lfs else ""
    known = isinstance(sha256, str) and _SHA256.fullmatch(sha256)
    return HubFile(entry.rfilename, _number(entry.size), sha256 if known else None)


def _number(value: object) -> int | None:
    """Return a whole number of plausible size, None for anything else."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < MAX_SIZE else None  # type: ignore[operator, return-value]
