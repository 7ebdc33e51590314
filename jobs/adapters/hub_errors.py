"""What the hub refuses, in words: no token, licence, no access, not there, too many questions, away."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from controlpanel.lib.text import N_, Worded

MAX_WAIT = 86_400  # seconds that a hub can ask to wait, as far as it is believed

NO_TOKEN = N_(
    "%(repo)s can only be loaded by people who accepted its terms: open %(link)s, accept them, and store a "
    "token of your account in the panel."
)
LICENCE = N_(
    "The account of the stored token has not accepted the terms of %(repo)s: open %(link)s, sign in with "
    "that account and accept them, then try again."
)
WAITING = N_(
    "The authors of %(repo)s have not answered the request for access yet: %(link)s shows its state. "
    "Try again when it is granted."
)
REJECTED = N_("The authors of %(repo)s refused access to the account of the stored token.")
TOKEN_RIGHTS = N_(
    "The stored token may not read %(repo)s, although its account may: allow the token to read gated "
    "repositories in its settings on the hub, or store another one."
)
DENIED = N_("The account of the stored token has no access to %(repo)s.")
DISABLED = N_("The hub has disabled access to %(repo)s.")
BAD_TOKEN = N_(
    "The hub does not accept the stored token: it is wrong or has expired. "
    "Make a new one on the hub and store it."
)
NO_REPO = N_("There is no model %(repo)s on the hub, or it is private and the account has no access.")
NO_REPO_WITHOUT_TOKEN = N_(
    "There is no model %(repo)s on the hub, or it is private: "
    "then store a token of an account that has access."
)
NO_REVISION = N_("%(repo)s has no branch, tag or commit %(revision)s.")
NO_FILE = N_(
    "%(repo)s has no file %(file)s. It may have been renamed or removed: look at the list of its files."
)
TOO_MANY = N_("The hub takes no more questions from here for now. Try again in %(seconds)s s.")
TOO_MANY_SOME_TIME = N_(
    "The hub takes no more questions from here for now. Try again in a few minutes; "
    "a stored token allows more."
)
DOWN_STATUS = N_("The hub %(host)s has trouble of its own (it answered %(status)s). Try again later.")
NO_ANSWER = N_(
    "The hub %(host)s cannot be reached (%(why)s). Check the network and the proxy of the panel's host, and "
    "HF_ENDPOINT where it is set."
)
TOO_SLOW = N_("The hub %(host)s did not answer in time. Try again later.")
BAD_ANSWER = N_(
    "%(host)s answered something that is not a model hub's answer. "
    "A proxy or a sign-in page may stand between, or HF_ENDPOINT names another kind of server."
)


class HubError(Worded):
    """The hub did not give what was asked; str() says why and what to do, and never contains a token.

    `code` is one of no_token, bad_token, licence, denied, not_found_repo, not_found_revision,
    not_found_file, rate_limit, hub_down, bad_answer. `link` is a page where a person can mend it, or "".
    `retry_after` is the number of seconds that the hub asked to wait, None when it did not.
    """

    def __init__(
        self, code: str, text: str, *, link: str = "", retry_after: int | None = None, **params: object
    ) -> None:
        super().__init__(text, **params, link=link)
        self.code = code
        self.link = link
        self.retry_after = retry_after


@dataclass(frozen=True)
class Question:
    """What the hub was asked for, in so far as an error has to name it."""

    host: str
    link: str = ""
    repo: str = ""
    revision: str = ""
    file: str = ""
    with_token: bool = False


@dataclass(frozen=True)
class Refusal:
    """An error status with the hub's own code and sentence, and the seconds to wait (None: not said)."""

    status: int
    code: str = ""
    said: str = ""
    wait: int | None = None


def raise_refusal(question: Question, refusal: Refusal) -> NoReturn:
    """Raise the HubError for an answer whose status is 400 or more."""
    status, code = refusal.status, refusal.code
    if status == 429:
        if refusal.wait is None:
            raise HubError("rate_limit", TOO_MANY_SOME_TIME)
        raise HubError("rate_limit", TOO_MANY, seconds=refusal.wait, retry_after=refusal.wait)
    if status == 408 or status >= 500:
        raise HubError("hub_down", DOWN_STATUS, host=question.host, status=status, retry_after=refusal.wait)
    if not question.repo:
        if status == 401 and question.with_token:
            raise HubError("bad_token", BAD_TOKEN)
        raise HubError("bad_answer", BAD_ANSWER, host=question.host)
    if code == "GatedRepo" or status == 403:
        _raise_no_access(question, refusal)
    if code == "RevisionNotFound":
        raise HubError("not_found_revision", NO_REVISION, repo=question.repo, revision=question.revision)
    if code == "EntryNotFound" or (status == 404 and question.file and code != "RepoNotFound"):
        raise HubError("not_found_file", NO_FILE, repo=question.repo, file=question.file)
    if status == 401 and question.with_token:
        raise HubError("bad_token", BAD_TOKEN)
    if status in (401, 404, 410) or code == "RepoNotFound":
        text = NO_REPO if question.with_token else NO_REPO_WITHOUT_TOKEN
        raise HubError("not_found_repo", text, repo=question.repo)
    raise HubError("bad_answer", BAD_ANSWER, host=question.host)


def wait_of(headers: dict[str, str]) -> int | None:
    """Return the seconds to wait that an answer asks for; header names in small letters."""
    # The hub's own header, such as: "api";r=0;t=55
    limit = re.search(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,9})", headers.get("ratelimit", ""))
    text = limit[1] if limit else headers.get("retry-after", "").strip()
    return min(int(text), MAX_WAIT) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _raise_no_access(question: Question, refusal: Refusal) -> NoReturn:
    repo, said = question.repo, refusal.said.lower()
    if not question.with_token:
        raise HubError("no_token", NO_TOKEN, repo=repo, link=question.link)
    if refusal.status == 401:
        raise HubError("bad_token", BAD_TOKEN)
    if "awaiting" in said:
        raise HubError("denied", WAITING, repo=repo, link=question.link)
    if "rejected" in said:
        raise HubError("denied", REJECTED, repo=repo)
    if "fine-grained" in said:
        raise HubError("denied", TOKEN_RIGHTS, repo=repo)
    if refusal.code == "GatedRepo":
        raise HubError("licence", LICENCE, repo=repo, link=question.link)
    if "disabled" in said:
        raise HubError("denied", DISABLED, repo=repo)
    raise HubError("denied", DENIED, repo=repo)
