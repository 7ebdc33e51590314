"""Addresses and names of git that come from people: what is safe to hand to git, and why the rest is not."""

from __future__ import annotations

import re

from controlpanel.lib.text import N_, Message

MAX_URL = 2048
MAX_REF = 200

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
_USER = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"
_PATH = r"[A-Za-z0-9._~%+,=@-][A-Za-z0-9._~%+,=@/-]{0,2047}"
_HTTPS = re.compile(rf"https://{_HOST}(?::\d{{1,5}})?/{_PATH}")
_SSH = re.compile(rf"ssh://(?:{_USER}@)?{_HOST}(?::\d{{1,5}})?/{_PATH}")
_SCP = re.compile(rf"{_USER}@{_HOST}:(?!-)/?{_PATH}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})(?:://|::)")
_LOGIN = re.compile(r"(?<=://)[^/@]*@")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,40}")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]")


def check_url(url: str) -> Message | None:
    """Say why an address is not taken, None when it is: https://…, ssh://… or user@host:path."""
    if not url:
        return Message(N_("Enter the address of a git repository."))
    if len(url) > MAX_URL:
        return Message(N_("The address is longer than %(limit)s characters."), {"limit": MAX_URL})
    if any(ord(character) <= 32 or ord(character) == 127 for character in url):
        return Message(N_("The address contains a space or a control character."))
    scheme = _SCHEME.match(url)
    if scheme and (scheme[1].lower() not in ("https", "ssh") or "::" in scheme[0]):
        text = N_("The panel fetches over https and ssh only, not over %(scheme)s.")
        return Message(text, {"scheme": scheme[1].lower()})
    login = _LOGIN.search(url)
    if login and (url.startswith("https://") or ":" in login[0]):
        text = N_(
            "The address contains a login. Leave it out: the panel fetches public repositories over https, "
            "and private ones over ssh with the key of its user."
        )
        return Message(text)
    if not (_HTTPS.fullmatch(url) or _SSH.fullmatch(url) or _SCP.fullmatch(url)):
        return Message(
            N_(
                "This is no address of a git repository. "
                "Write https://host/path, ssh://user@host/path or user@host:path."
            )
        )
    return None


def check_ref(ref: str) -> Message | None:
    """Say why git has no branch, tag or commit of this name, None when it may; "" is the default branch."""
    if not ref:
        return None
    if len(ref) > MAX_REF:
        return Message(N_("The name is longer than %(limit)s characters."), {"limit": MAX_REF})
    if ref.startswith("-"):
        return Message(N_("A branch, tag or commit does not begin with “-”."))
    found = _FORBIDDEN.search(ref)
    if found and (found[0] <= " " or found[0] == "\x7f"):
        return Message(N_("The name of a branch, tag or commit has no spaces and no control characters."))
    part = found[0] if found else next((part for part in ("..", "@{", "//") if part in ref), "")
    if part:
        text = N_("The name of a branch, tag or commit does not contain “%(part)s”.")
        return Message(text, {"part": part})
    pieces = ref.split("/")
    if ref == "@" or ref.endswith(".") or any(_wrong_piece(piece) for piece in pieces):
        text = N_("“%(ref)s” cannot be the name of a branch, tag or commit.")
        return Message(text, {"ref": ref})
    return None


def is_commit(ref: str) -> bool:
    """Tell whether a name can be a commit: 7 to 40 hexadecimal digits. A branch may look the same."""
    return _COMMIT.fullmatch(ref) is not None


def shown_url(url: str) -> str:
    """Return an address as pages and logs show it, without a login."""
    return url if url.startswith("ssh://") and check_url(url) is None else _LOGIN.sub("", url)


def _wrong_piece(piece: str) -> bool:
    return not piece or piece.startswith(".") or piece.endswith(".lock")
