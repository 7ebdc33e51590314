"""Rules for what a model hub refuses, and for files that are not there."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Near, Rule

_EFFECTS = ("http_forbidden", "http_not_found", "download_gave_up", "hf_repository_not_found")
_GATED_URL = Near(r"Cannot access gated repo for url (?P<url>\S+)", before=4, after=4, required=False)

HUB_RULES = (
    Rule(
        "hf_gated_no_token",
        (
            r"model (?P<repository>\S+) is gated\. You must be authenticated",
            r"Access to model (?P<repository>\S+) is restricted\. You must .{0,40}be authenticated",
            r"401 Client Error.{0,200}Cannot access gated repo",
        ),
        N_("The model has a licence to accept first, and no token was sent"),
        N_(
            "Open the model's page on the hub, sign in and accept its licence. Then make a token that may "
            "read (Settings, Access Tokens) and store it in the panel's tokens."
        ),
        with_=(_GATED_URL,),
        explains=(*_EFFECTS, "hf_gated_not_authorized"),
    ),
    Rule(
        "hf_gated_not_authorized",
        (
            r"Access to model (?P<repository>\S+) is restricted and you are not in the authorized list",
            r"403 Client Error.{0,200}Cannot access gated repo",
        ),
        N_("This account has not accepted the model's licence, or has not been let in"),
        N_(
            "Open the model's page on the hub with the account that the token belongs to, and accept the "
            "licence or ask for access. A fine-grained token also needs the right to read gated repositories."
        ),
        with_=(_GATED_URL,),
        explains=_EFFECTS,
    ),
    Rule(
        "hf_access_pending",
        (r"Your request to access model (?P<repository>\S+) is awaiting a review",),
        N_("The request for access to %(repository)s has not been answered yet"),
        N_("The model's authors decide about it by hand. Try again when they have let this account in."),
        explains=(*_EFFECTS, "hf_gated_not_authorized"),
    ),
    Rule(
        "hf_access_denied",
        (r"Your request to access model (?P<repository>\S+) has been rejected",),
        N_("The model's authors have denied access to %(repository)s"),
        N_("Another token of the same account does not help. Look for another model or another source."),
        explains=(*_EFFECTS, "hf_gated_not_authorized"),
    ),
    Rule(
        "hf_token_scope",
        (
            r"enable access to public gated repositories in your fine-grained token",
            r"doesn't have (?:enough|sufficient) permissions to access this",
        ),
        N_("The token may not read this repository"),
        N_(
            "On the hub, open Settings, Access Tokens and give the token the right to read public gated "
            "repositories (and those of the organisation), or make one of the kind “read”."
        ),
        explains=(*_EFFECTS, "hf_gated_not_authorized"),
    ),
    Rule(
        "hf_token_invalid",
        (
            r"Invalid user token\b",
            r"Invalid credentials in Authorization header",
            r"Invalid username or password",
            r"invalid token, authentication disabled",
            r"OAuth token has expired",
        ),
        N_("The hub does not accept the token"),
        N_(
            "It was revoked, has expired, or was not copied whole. Make a new one on the hub (Settings, "
            "Access Tokens) and store it in the panel's tokens. A public model needs none."
        ),
        explains=(*_EFFECTS, "hf_gated_no_token", "hf_gated_not_authorized"),
    ),
    Rule(
        "hf_repository_not_found",
        (
            r"Repository Not Found for url: (?P<url>\S+)",
            r"huggingface_hub\S*RepositoryNotFoundError: 40[14]",
            r"Repo id must be in the form",
            r"invalid HF repo format, expected <user>/<model>",
        ),
        N_("The hub has no such repository, or it is private"),
        N_(
            "Check the name for typing errors (owner/name, capital letters count). The hub gives the same "
            "answer for private repositories: for one of those, store a token of an account that may read it."
        ),
        explains=("http_forbidden", "http_not_found", "download_gave_up"),
    ),
    Rule(
        "hf_revision_not_found",
        (
            r"Revision Not Found for url: (?P<url>\S+)",
            r"Invalid rev id: (?P<revision>\S+)",
        ),
        N_("The repository has no such revision"),
        N_(
            "Leave the revision empty for the newest files, or give a branch, tag or commit of the "
            "repository."
        ),
        explains=("http_not_found", "download_gave_up"),
    ),
    Rule(
        "hf_file_not_found",
        (
            r"Entry Not Found for url: (?P<url>\S+)",
            r"file '(?P<file>[^']*)' not found in repository",
            r"no GGUF files found in repository (?P<repository>\S+)",
        ),
        N_("The repository has no such file"),
        N_(
            "It was renamed or removed, or the name has a typing error. Look at the repository's list of "
            "files on the Models page. A repository without any GGUF file holds the model in another format: "
            "look for one with GGUF in its name."
        ),
        explains=("http_not_found", "download_gave_up"),
    ),
    Rule(
        "hf_rate_limit",
        (
            r"429 (?:Client Error: )?Too Many Requests",
            r"HTTP/[\d.]{1,3} 429",
            r"download failed: .{0,200}\(status: 429\)",
            r"failed with status code: 429",
            r"We had to rate limit you",
        ),
        N_("The hub has limited this address: too many requests"),
        N_(
            "Wait some minutes and resume the download: what is there is not fetched again. With a token the "
            "limit is higher."
        ),
        explains=("download_gave_up", "hub_down"),
    ),
    Rule(
        "hub_down",
        (
            r"\b50[0234] Server Error",
            r"status server error \(50\d",
            r"failed with status code: 50[0234]",
            r"download failed: .{0,200}\(status: 50[0234]\)",
            r"HTTP/[\d.]{1,3} 50[0234]",
        ),
        N_("The hub has trouble of its own"),
        N_("Nothing is wrong on this host. Look at the hub's status page, wait, and resume the download."),
        rank=COMMON + 5,
        explains=("download_gave_up",),
    ),
    Rule(
        "signed_link_expired",
        (
            r"<Code>AccessDenied</Code>.{0,400}(?:expired|Expired)",
            r"Request has expired",
            r"403 (?:Client Error: )?Forbidden.{0,60}https://(?:cdn-lfs|cas-bridge|cas-server|xethub)[\w.-]*/",
        ),
        N_("The download link has expired"),
        N_(
            "Links to the hub's storage are valid for some hours only. Resume the download: the panel asks "
            "the hub for a new one and keeps what is there."
        ),
        explains=("http_forbidden", "download_gave_up"),
    ),
    Rule(
        "http_forbidden",
        (
            r"403 (?:Client Error: )?Forbidden",
            r"401 (?:Client Error: )?Unauthorized",
            r"failed with status code: 40[13]",
            r"download failed: .{0,200}\(status: 40[13]\)",
            r"status client error \(40[13] ",
            r"HTTP/[\d.]{1,3} 40[13]",
            r"ERROR 40[13]: ",
        ),
        N_("The server does not give this file to us"),
        N_(
            "It asks for a sign-in, or the token does not reach so far. For a model of the hub, open its "
            "page: it may have a licence to accept, and a token is then needed."
        ),
        rank=COMMON,
        explains=("download_gave_up",),
    ),
    Rule(
        "http_not_found",
        (
            r"404 (?:Client Error: )?Not Found",
            r"failed with status code: 404",
            r"download failed: .{0,200}\(status: 404\)",
            r"HTTP/[\d.]{1,3} 404",
            r"ERROR 404: Not Found",
        ),
        N_("The server has no such file"),
        N_("Check the address for typing errors: open it in a browser, and copy it again."),
        rank=COMMON,
        explains=("download_gave_up",),
    ),
)
