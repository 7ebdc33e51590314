"""What people paste to name a model: a repository of the hub, a file in it, or another address of a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit, urlunsplit

from controlpanel.lib.text import N_, Worded

PUBLIC_HUB = "https://huggingface.co"
MAX_TEXT = 4096  # characters: signed links are long
MAX_REPO = 96
MAX_PATH = 1024

_HUB_HOSTS = frozenset({"huggingface.co", "www.huggingface.co", "hf.co", "www.hf.co"})
# What stands first in a page's path when the page is no model.
_OTHER_PAGES = frozenset(
    {"api", "blog", "bucket", "buckets", "chat", "collections", "docs", "join", "kernels", "learn", "login"}
    | {"models", "new", "organizations", "papers", "posts", "pricing", "search", "settings", "tasks"}
)
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
_REPO = re.compile(rf"{_NAME}/{_NAME}")
_PLACE = re.compile(
    rf"(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>[^\s:@]{{1,200}}?))?"
    r"(?:/(?P<file>[^\s:]*\.gguf)|:(?P<quant>[A-Za-z0-9][A-Za-z0-9_.-]{0,39}))?"
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}):(?://|:)")
_LOCAL = re.compile(r"(?:[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\])")
# Nor half a character, which neither an address nor a database takes.
CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_COMMAND = re.compile(r"\$?\s*(?:\S*/)?(?:llama(?:-[a-z]+)?|ollama|hf|huggingface-cli|git|docker|lms)\s")
_LONG_REVISIONS = frozenset({"pr", "convert"})


class BadReference(Worded):
    """A text that looks like the name or the address of a model, but is none; str() says why."""


@dataclass(frozen=True)
class HubPlace:
    """A repository of the hub ("owner/name") and what of it is meant; "" where the text does not say it.

    `quant` is a label such as Q4_K_M as it was written, `folder` the folder whose page was open.
    """

    repo: str
    revision: str = ""
    file: str = ""
    quant: str = ""
    folder: str = ""


@dataclass(frozen=True)
class WebFile:
    """Any other address of a file, and the name that the file would get.

    Whether the panel may connect there is not said by this: ask the guard of jobs.adapters.addresses.
    """

    url: str
    name: str


def parse(text: str, endpoint: str = PUBLIC_HUB) -> HubPlace | WebFile | None:
    """Return what a text names, None for words to search the hub for; BadReference says what is wrong.

    `endpoint` is the address of the hub in use: its links and those of the public hub mean the same.
    """
    text = text.strip().strip("\"'`<>").strip()
    if len(text) > MAX_TEXT:
        raise BadReference(N_("This is longer than %(limit)s characters."), limit=MAX_TEXT)
    if CONTROL.search(text):
        raise BadReference(N_("This contains a line break or another control character."))
    if _COMMAND.match(text):
        return _in_command(text.lstrip("$").split(), endpoint)
    return _one(text, endpoint)


def check_repo(repo: str) -> bool:
    """Tell whether a text can be the name of a repository: "owner/name" as the hub allows it."""
    return (
        len(repo) <= MAX_REPO
        and _REPO.fullmatch(repo) is not None
        and ".." not in repo
        and "--" not in repo
        and not repo.endswith((".git", ".ipynb"))
    )


def check_path(path: str) -> bool:
    """Tell whether a text can be the path of a file in a repository."""
    parts = path.split("/")
    return (
        0 < len(path) <= MAX_PATH
        and not CONTROL.search(path)
        and "\\" not in path
        and not any(part in {"", ".", ".."} for part in parts)
    )


def page_of(repo: str, endpoint: str = PUBLIC_HUB) -> str:
    """Return the address of a repository's page."""
    return f"{endpoint.rstrip('/')}/{repo}"


def _one(text: str, endpoint: str) -> HubPlace | WebFile | None:
    scheme = _SCHEME.match(text)
    if scheme is None and text.partition("/")[0].lower() in _hub_hosts(endpoint):
        return _one(f"https://{text}", endpoint)
    if scheme is None:
        if _LOCAL.match(text):
            raise BadReference(
                N_("This is a path. A file that is on the host already is registered, not downloaded.")
            )
        return _short(text)
    kind = scheme[1].lower()
    if kind == "hf":
        return _checked(_short(text[scheme.end() :].removeprefix("models/")))
    if kind not in ("http", "https"):
        raise BadReference(N_("Only https:// addresses can be fetched, not %(scheme)s://."), scheme=kind)
    return _address(text, endpoint)


def _short(text: str) -> HubPlace | None:
    """Read owner/name, owner/name:quant, owner/name@revision or owner/name/file.gguf."""
    match = _PLACE.fullmatch(text)
    if match is None or not check_repo(match["repo"]):
        return None
    file = match["file"] or ""
    if file and not check_path(file):
        return None
    return HubPlace(match["repo"], unquote(match["revision"] or ""), file, match["quant"] or "")


def _in_command(words: list[str], endpoint: str) -> HubPlace | WebFile | None:
    """Read the repository out of a command line such as `llama-server -hf owner/name:Q4_K_M`."""
    for number, word in enumerate(words[1:], 1):
        if "/" not in word or word.startswith("-") or _LOCAL.match(word):
            continue
        found = _one(word.strip("\"'"), endpoint)
        if isinstance(found, HubPlace) and not found.file:
            named = (other.strip("\"'") for other in words[number + 1 :])
            file = next((name for name in named if name.endswith(".gguf") and check_path(name)), "")
            return HubPlace(found.repo, found.revision, file, found.quant, found.folder)
        if found is not None:
            return found
    return None


def _address(text: str, endpoint: str) -> HubPlace | WebFile:
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").lower()
        port = parts.port
    except ValueError as error:
        raise _not_an_address() from error
    if not host or " " in text:
        raise _not_an_address()
    if "@" in parts.netloc:
        raise BadReference(
            N_("An address with a user name or a password in it is refused. Store a token instead.")
        )
    if (f"{host}:{port}" if port else host) in _hub_hosts(endpoint):
        return _hub_page(parts, endpoint)
    name = unquote(parts.path.rsplit("/", 1)[-1])
    if not check_path(name) or "/" in name:
        raise BadReference(N_("This address names no file: it has to end with the name of a .gguf file."))
    return WebFile(urlunsplit(parts._replace(fragment="")), name)


def _hub_page(parts: SplitResult, endpoint: str) -> HubPlace:
    path = parts.path
    prefix = urlsplit(endpoint).path.rstrip("/")
    if prefix and parts.netloc.lower() == urlsplit(endpoint).netloc.lower() and path.startswith(f"{prefix}/"):
        path = path[len(prefix) :]
    pieces = [unquote(piece) for piece in path.split("/") if piece]
    if pieces[:2] == ["api", "models"]:
        pieces = pieces[2:]
    if pieces and pieces[0] in ("datasets", "spaces"):
        raise BadReference(
            N_("This is the page of a dataset or of a space, not of a model. Open the page of the model.")
        )
    if len(pieces) < 2 or pieces[0] in _OTHER_PAGES:
        raise BadReference(
            N_("This page of the hub is not the page of one model. Open a model and copy its address.")
        )
    name, _, quant = pieces[1].removesuffix(".git").partition(":")
    repo = f"{pieces[0]}/{name}"
    view, rest = (pieces[2], pieces[3:]) if len(pieces) > 2 else ("", [])
    if rest[:1] == ["refs"] and len(rest) > 2 and rest[1] in _LONG_REVISIONS:
        rest = ["/".join(rest[:3]), *rest[3:]]
    revision, inner = (rest[0], "/".join(rest[1:])) if rest else ("", "")
    if view in ("blob", "resolve", "raw", "edit"):
        if not inner:
            raise BadReference(N_("This address names no file: it has to end with the name of a .gguf file."))
        return _checked(HubPlace(repo, revision, inner))
    if view in ("tree", "revision", "commit", "commits"):
        return _checked(HubPlace(repo, revision, folder=inner if view == "tree" else ""))
    # The hub's viewer of a header keeps the file in the query of the repository's page.
    shown = parse_qs(parts.query).get("show_file_info", [""])[0]
    return _checked(HubPlace(repo, file=shown, quant=quant))


def _checked(place: HubPlace | None) -> HubPlace:
    """Return a place whose parts are well formed; BadReference otherwise."""
    if place is None or not check_repo(place.repo):
        raise BadReference(
            N_("This is not the name of a model on the hub, which is written owner/name: org/model-GGUF.")
        )
    for path in (place.file, place.folder, place.revision):
        if path and not check_path(path):
            raise BadReference(N_("The path of the file in this address is not a path in a repository."))
    return place


def _hub_hosts(endpoint: str) -> frozenset[str]:
    """Return the hosts, with their port where it is not the usual one, whose links mean the hub."""
    return _HUB_HOSTS | {urlsplit(endpoint).netloc.lower()}


def _not_an_address() -> BadReference:
    return BadReference(N_("This is not an address that can be fetched. Write https://host/path/file.gguf."))
