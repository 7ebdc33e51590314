"""Rules for the steps of a build that fetch and check out the source."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Rule
from controlpanel.llamacpp.rules_build_changes import put

_BROKEN = "git_transfer_broken"


GIT_RULES = (
    Rule(
        "repository_not_found",
        (
            r"fatal: repository '(?P<url>[^']*)' (?:not found|does not exist)",
            r"fatal: '(?P<url>[^']*)' does not appear to be a git repository",
            r"(?:ERROR|remote|fatal): Repository not found",
            r"fatal: remote error: (?:access denied|Repository not found)",
            r"remote: The project you were looking for could not be found",
        ),
        N_("There is no Git repository at this address"),
        N_(
            "Check the address of the repository for typing errors: open it in a browser, or list it with "
            "“git ls-remote” on the host. It may also have been renamed, removed, or be private."
        ),
        explains=(_BROKEN,),
    ),
    Rule(
        "git_auth",
        (
            r"fatal: could not read (?:Username|Password) for '(?P<url>[^']*)'",
            r"fatal: Authentication failed for '(?P<url>[^']*)'",
            r"(?:^|\s)\S*: Permission denied \((?:publickey|password|keyboard)",
            r"unable to access '(?P<url>[^']*)': The requested URL returned error: 40[13]",
            r"remote: Invalid username or (?:password|token)",
            r"remote: Support for password authentication was removed",
            r"remote: HTTP Basic: Access denied",
        ),
        N_("The Git server asks for a sign-in, or refuses this one"),
        N_(
            "Either the repository does not exist (GitHub asks for a name then, too), or it is private. "
            "Check the address. For a private repository use its ssh address and give the user that runs "
            "the panel a deploy key that may read it."
        ),
        explains=(_BROKEN,),
    ),
    Rule(
        "git_host_key",
        (
            r"Host key verification failed",
            r"REMOTE HOST IDENTIFICATION HAS CHANGED",
            r"No \S+ host key is known for (?P<host>\S+)",
        ),
        N_("The ssh key of the Git server is not known on this host"),
        N_(
            "As the user that runs the panel, connect once by hand (“ssh -T git@the-server”), compare the "
            "key with the one the provider publishes, and accept it; or use the https address."
        ),
        explains=(_BROKEN, "git_auth"),
    ),
    Rule(
        "git_host_unresolved",
        (
            r"unable to access '[^']*': Could not resolve (?:host|proxy)(?:name)?: (?P<host>\S+)",
            r"ssh: Could not resolve hostname (?P<host>[^:\s]+)",
            r"fatal: unable to look up (?P<host>[^:\s]+)",
        ),
        N_("The name of the Git server cannot be resolved: %(host)s"),
        N_(
            "Check the address for typing errors. If it is right, the host has no working DNS or no way to "
            "the internet: check its network, and the proxy variables (https_proxy) of the panel's "
            "environment."
        ),
        explains=(_BROKEN, "repository_not_found"),
    ),
    Rule(
        "git_unreachable",
        (
            r"unable to access '[^']*': Failed to connect to (?P<host>\S+)",
            r"unable to access '[^']*': (?:Couldn't|Could not) connect to server",
            r"unable to access '[^']*': (?:Connection|Operation) timed out",
            r"unable to access '[^']*': (?:Recv|Send) failure",
            r"ssh: connect to host (?P<host>\S+) port \d+: ",
            r"ssh: .{0,200}Connection (?:closed|reset|timed out)",
            r"kex_exchange_identification: ",
            r"unable to access '[^']*': Proxy CONNECT aborted",
            r"Received HTTP code \d+ from proxy after CONNECT",
        ),
        N_("The Git server cannot be reached from this host"),
        N_(
            "Check that the host may connect to the server and port of the address (firewall, VPN, proxy "
            "variables of the panel's environment), then build again. Where only https is let through, use "
            "the https address."
        ),
        explains=(_BROKEN, "repository_not_found"),
    ),
    Rule(
        "git_tls",
        (
            r"unable to access '[^']*': (?:server certificate verification failed|SSL certificate problem)",
            r"unable to access '[^']*': SSL:",
            r"unable to access '[^']*': .{0,200}(?:SSL_ERROR|SSL_connect|schannel|error setting certificate)",
            r"gnutls_handshake\(\) failed",
        ),
        N_("The secure connection to the Git server cannot be trusted or set up"),
        N_(
            "Check the host's clock and update its certificates (“apt install --reinstall "
            "ca-certificates”). Behind a proxy or a company server with its own certificate authority, add "
            "that authority on the host. Do not turn the check off: what is fetched here is run."
        ),
        explains=(_BROKEN,),
    ),
    Rule(
        "git_empty_repository",
        (r"couldn't find remote ref HEAD\b", r"warning: You appear to have cloned an empty repository"),
        N_("The repository is empty"),
        N_("Nothing was pushed to this repository yet, or its default branch is gone. Name a branch or tag."),
    ),
    Rule(
        "git_ref_not_found",
        (
            r"couldn't find remote ref (?:refs/(?:heads|tags)/)?(?P<ref>\S+)",
            r"upload-pack: not our ref (?P<ref>[0-9a-f]+)",
            r"Remote branch (?P<ref>\S+) not found in upstream",
            r"fatal: invalid reference: (?P<ref>\S+)",
            r"fatal: reference is not a tree: (?P<ref>\S+)",
            r"fatal: (?:ambiguous argument|bad revision|[Nn]ot a valid object name:?) '?(?P<ref>[^\s':]+)",
            r"error: pathspec '(?P<ref>[^']*)' did not match any file",
            r"Server does not allow request for unadvertised object (?P<ref>[0-9a-f]+)",
        ),
        N_("The repository has no branch, tag or commit “%(ref)s”"),
        N_(
            "Check the spelling and the case. It may have been deleted or renamed, or belong to another "
            "repository or a fork. Write a commit in full (40 characters). An empty field builds the "
            "default branch."
        ),
        put("ref", ""),
        unless=(r"remote ref HEAD\b",),
        explains=(_BROKEN,),
    ),
    Rule(
        "git_protocol",
        (
            r"fatal: transport '(?P<protocol>[^']*)' not allowed",
            r"fatal: [Uu]nable to find remote helper for '(?P<protocol>[^']*)'",
            r"git: 'remote-(?P<protocol>[\w+.-]+)' is not a git command",
        ),
        N_("Addresses of the kind “%(protocol)s” are not fetched"),
        N_(
            "Register the repository with an https:// or ssh address. A folder of this host is registered "
            "as a local repository, by an administrator."
        ),
    ),
    Rule(
        "git_dubious_ownership",
        (r"fatal: detected dubious ownership in repository at '(?P<path>[^']*)'",),
        N_("The repository folder belongs to another user: Git refuses to read it"),
        N_(
            "Give the folder %(path)s to the user that runs the panel (chown), or let that user trust it: "
            "“git config --global --add safe.directory %(path)s”."
        ),
        explains=(_BROKEN,),
    ),
    Rule(
        "git_lock",
        (
            r"Unable to create '(?P<path>[^']*\.lock)': File exists",
            r"cannot lock ref '(?P<path>[^']*)'",
        ),
        N_("Another Git process works in this repository, or a killed one left its lock"),
        N_(
            "Wait until the other build of this repository has fetched, then build again. If none is "
            "running, delete the lock file that the log names."
        ),
    ),
    Rule(
        "git_worktree",
        (r"fatal: '(?P<path>[^']*)' (?:already exists|is already checked out|is a missing but)",),
        N_("The folder for this source is there already"),
        N_("A build that was killed left %(path)s. Build again; if that fails too, delete the folder."),
    ),
    Rule(
        "git_server_error",
        (
            r"unable to access '[^']*': The requested URL returned error: (?P<code>429|5\d\d)",
            r"remote: Internal Server Error",
        ),
        N_("The Git server is in trouble or refuses more requests"),
        N_("Nothing is wrong here. Wait some minutes and build again; look at the provider's status page."),
        explains=(_BROKEN,),
    ),
    Rule(
        _BROKEN,
        (
            r"(?:fatal|error): early EOF",
            r"error: RPC failed; ",
            r"fatal: the remote end hung up unexpectedly",
            r"fatal: (?:fetch-pack: )?invalid index-pack output",
            r"fetch-pack: unexpected disconnect",
            r"fatal: index-pack failed",
            r"HTTP/2 stream \d+ was not closed cleanly",
            r"unable to access '[^']*': (?:transfer closed|Empty reply|GnuTLS recv error|OpenSSL SSL_read)",
        ),
        N_("The transfer from the Git server broke off"),
        N_(
            "The connection was lost while the source was fetched. Build again; what is there already is "
            "kept."
        ),
        rank=COMMON,
    ),
    Rule(
        "git_missing",
        (
            r"\bgit: (?:command )?not found",
            r"No such file or directory: '(?:\S*/)?git'",
        ),
        N_("Git is not installed on this host"),
        N_("Install it (“apt install git”) and build again."),
    ),
)
