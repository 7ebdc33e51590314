"""Flags that extra arguments may not hold, each with the place that does it instead."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.helptext import Flag, normalise

_MODEL = N_("%(flag)s: the model is chosen in the field Model.")
_MMPROJ = N_("%(flag)s: the projector is chosen in the field Vision projector.")
_DOWNLOAD = N_(
    "%(flag)s: servers do not download files themselves. "
    "Fetch the model on the page Models and choose it there."
)
_HOST = N_("%(flag)s: the panel keeps servers on the host's own address, and people reach them through it.")
_PORT = N_("%(flag)s: the port is set in the field Port.")
_ALIAS = N_("%(flag)s: the panel sets the name under which the server answers.")
_KEY = N_("%(flag)s: the panel makes a secret key for each server itself.")
_TLS = N_("%(flag)s: servers are reached through the panel only. Set up TLS in front of the panel.")
_PATHS = N_("%(flag)s: the panel calls the server under its usual paths.")
_LOG = N_("%(flag)s: the panel keeps and reads the log itself. See the log on the page Servers.")
_PROMPTS = N_("%(flag)s: this would write what people ask to files on the host.")
_FILES = N_("%(flag)s: this would give everybody who can use the server access to files of the host.")
_ROUTER = N_("%(flag)s: one server serves one model here. Make one profile per model on the page Profiles.")
_RPC = N_("%(flag)s: this would let the server talk to programs on hosts the panel cannot see.")
_PROPS = N_("%(flag)s: settings of a server are changed on the page Profiles, not while it runs.")
_STATUS = N_("%(flag)s: the panel sets this itself, because it reads the server's state from there.")
_CODE = N_("%(flag)s: this would let everybody who can use the server run programs on the host.")
_PRINTS = N_("%(flag)s: the program would print something and end instead of serving. See the page Builds.")

_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (_MODEL, ("-m", "--model")),
    (_MMPROJ, ("-mm", "--mmproj")),
    (_DOWNLOAD, ("-mu", "--model-url", "-mmu", "--mmproj-url", "-dr", "--docker-repo")),
    (_HOST, ("--host", "--reuse-port")),
    (_PORT, ("--port",)),
    (_ALIAS, ("-a", "--alias")),
    (_PATHS, ("--path", "--api-prefix")),
    (_LOG, ("--log-file", "--log-disable", "--log-jsonl", "--log-colors")),
    (_PROMPTS, ("--log-prompts-dir",)),
    (_FILES, ("--slot-save-path", "--media-path")),
    (_RPC, ("--rpc",)),
    (_PROPS, ("--props",)),
    (_STATUS, ("--metrics", "--slots", "--no-slots")),
    (_CODE, ("--tools", "--tools-runtime", "-ag", "--agent")),
    (_CODE, ("--ui-mcp-proxy", "--webui-mcp-proxy", "--video-ffmpeg-dir")),
    (_PRINTS, ("-h", "--help", "--usage", "--version", "--license", "--list-devices")),
    (_PRINTS, ("-cl", "--cache-list", "--completion-bash")),
)

_PREFIXES: tuple[tuple[str, str], ...] = (
    ("-hf", _DOWNLOAD),
    ("--hf-", _DOWNLOAD),
    ("--spec-draft-hf", _DOWNLOAD),
    ("--api-key", _KEY),
    ("--ssl-", _TLS),
    ("--models-", _ROUTER),
    ("--no-models-", _ROUTER),
    ("--mcp-", _CODE),
)

_REASONS = {name: reason for reason, names in _GROUPS for name in names}


def refusal(name: str, flag: Flag | None = None) -> str | None:
    """Return why a flag is refused, a text with the parameter `flag`; None when it is not refused.

    `flag` brings in the other spellings that the build has for it.
    """
    names = (name, *flag.all_names) if flag else (name,)
    for spelling in map(normalise, names):
        reason = _REASONS.get(spelling)
        if reason:
            return reason
        for prefix, words in _PREFIXES:
            if spelling.startswith(prefix):
                return words
    if flag and "download weights from the internet" in flag.help:
        return _DOWNLOAD
    return None


_FIELD_LOAD = N_("There is no %(flag)s in this build: set the field Load mode.")
_FIELD_SPECULATION = N_("There is no %(flag)s in llama-server: set the field Speculation to MTP.")

# Flags that guides on the web name, for builds that do not have them.
MYTHS: dict[str, str] = {
    "--mtp": _FIELD_SPECULATION,
    "--nextn": _FIELD_SPECULATION,
    "--mtp-n-predict": N_("There is no %(flag)s in any build: set the field Draft tokens."),
    "--mtp-logit-threshold": N_(
        "There is no %(flag)s in any build: the target model checks every draft, and --spec-draft-p-min "
        "sets how sure a draft token must be."
    ),
    "--rope-scaling-factor": N_("There is no %(flag)s in any build: the factor is --rope-scale."),
    "--rope-scaling-type": N_("There is no %(flag)s in any build: write --rope-scaling yarn."),
    "--mmap": _FIELD_LOAD,
    "--no-mmap": _FIELD_LOAD,
    "--mlock": _FIELD_LOAD,
    "--direct-io": _FIELD_LOAD,
    "--no-direct-io": _FIELD_LOAD,
    "-dio": _FIELD_LOAD,
    "-ndio": _FIELD_LOAD,
    "--load-mode": _FIELD_LOAD,
    "-lm": _FIELD_LOAD,
}
