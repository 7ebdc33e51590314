"""Flags that extra arguments may not hold, each with the place that does it instead."""

from __future__ import annotations

import re

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
_NO_SPECULATION = N_("There is no %(flag)s in llama-server: set the field Speculation to none.")
_KIND = N_(
    "There is no %(flag)s in llama-server: kinds of speculation are values of --spec-type, as far as the "
    "build lists them; for MTP set the field Speculation."
)
_DRAFT_CONTEXT = N_("This build has no flag %(flag)s: drafts get the context of the model by themselves.")
_DRAFT_LAYERS = N_(
    "There is no %(flag)s in this build: layers of a separate draft model are --spec-draft-ngl, and MTP from "
    "the model's own file needs neither."
)
_CMAKE = N_("%(flag)s: this is for building a server, not for starting one. See the page Builds.")
_MTP_KEY = N_("%(flag)s: no build reads this; MTP works when the field Speculation is set to MTP.")
_HEADS_KEY = N_(
    "%(flag)s: no model has this key; MTP heads are announced by nextn_predict_layers. Set the field "
    "Speculation to MTP."
)
_BASE_KEY = N_(
    "%(flag)s: a file holds this key under its architecture's own name, and its value is the right one: "
    "leave it out."
)

# Flags that guides on the web name, for builds that do not have them.
MYTHS: dict[str, str] = {
    "--mtp": _FIELD_SPECULATION,
    "--draft-mtp": _FIELD_SPECULATION,
    "--nextn": _FIELD_SPECULATION,
    "--no-mtp": _NO_SPECULATION,
    "--lookahead": _KIND,
    "--eagle3": _KIND,
    "--dflash": _KIND,
    "--mtp-n-predict": N_("There is no %(flag)s in any build: set the field Draft tokens."),
    "--mtp-logit-threshold": N_(
        "There is no %(flag)s in any build: the target model checks every draft, and --spec-draft-p-min, the "
        "field Least draft probability, sets how sure a draft token must be."
    ),
    "--rope-scaling-factor": N_(
        "There is no %(flag)s in any build: the factor is --rope-scale, the field RoPE scale; it is the "
        "wanted context divided by the trained one."
    ),
    "--rope-scaling-type": N_(
        "There is no %(flag)s in any build: write --rope-scaling yarn, or set the field RoPE scaling to yarn."
    ),
    "--mmap": _FIELD_LOAD,
    "--no-mmap": _FIELD_LOAD,
    "--mlock": _FIELD_LOAD,
    "--direct-io": _FIELD_LOAD,
    "--no-direct-io": _FIELD_LOAD,
    "-dio": _FIELD_LOAD,
    "-ndio": _FIELD_LOAD,
    "--load-mode": _FIELD_LOAD,
    "-lm": _FIELD_LOAD,
    "-G": _CMAKE,
    "-T": _CMAKE,
}

# Flags that many builds have, for the others.
_SOME_BUILDS: dict[str, str] = {
    "-cd": _DRAFT_CONTEXT,
    "--ctx-size-draft": _DRAFT_CONTEXT,
    "--spec-draft-ctx-size": _DRAFT_CONTEXT,
    "-ngld": _DRAFT_LAYERS,
    "--gpu-layers-draft": _DRAFT_LAYERS,
    "--n-gpu-layers-draft": _DRAFT_LAYERS,
    "--spec-draft-replace": N_(
        "There is no %(flag)s in this build: choose a draft model with the vocabulary of the model."
    ),
}

# The beginnings of words that guides name; those that say more come first.
_STARTS: tuple[tuple[str, str], ...] = (
    ("--mtp-", N_("There is no %(flag)s in any build: set the fields Speculation and Draft tokens.")),
    (
        "-DLLAMA_MTP",
        N_("%(flag)s: builds that know MTP need no option for it. Set the field Speculation to MTP."),
    ),
    ("-DLLAMA_CU", N_("%(flag)s: the option for building with CUDA is GGML_CUDA. See the page Builds.")),
    (
        "-DLLAMA_AVX",
        N_("%(flag)s: options for building with AVX begin with GGML_AVX. See the page Builds."),
    ),
    ("-DGGML_", _CMAKE),
    ("-DLLAMA_", _CMAKE),
    ("-DCMAKE_", _CMAKE),
)

# Keys of a request or of a model file, which are no arguments.
_KEYS: dict[str, str] = {
    "mtp": _MTP_KEY,
    "mtp_n_predict": _MTP_KEY,
    "mtp_logit_threshold": _MTP_KEY,
    "llama.mtp": _HEADS_KEY,
    "llama.mtp.n_predict": _HEADS_KEY,
    "llama.rope.freq_base": _BASE_KEY,
}
_TURBO_WORD = N_(
    "%(flag)s: a type of the KV cache is set in the fields KV cache type K and V; TurboQuant has turbo2, "
    "turbo3 and turbo4, in builds that offer them there."
)
_VARIABLE = N_("%(flag)s: this is a variable, not an argument: write it under Environment.")
_KEY_WORD = re.compile(r"""[\s{"']*([A-Za-z][\w.]*)["']?\s*(?:[:=].*)?""", re.DOTALL)
_TURBO = re.compile(r"turbo\w{0,8}")
_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=.*", re.DOTALL)

# What the values of such flags are meant for.
MEANT = {"--mtp-n-predict": "draft_max", "--rope-scaling-factor": "rope_scale"}


def myth(word: str) -> str | None:
    """Return what is right instead of a word that guides name, a text with the parameter `flag`.

    None for a word of which nothing is known; what a build has is for the caller to know.
    """
    name = word.partition("=")[0]
    known = MYTHS.get(normalise(name)) or _SOME_BUILDS.get(normalise(name))
    if known:
        return known
    for start, text in _STARTS:
        if name.startswith(start) or normalise(name).startswith(start):
            return text
    if _TURBO.fullmatch(word):
        return _TURBO_WORD
    if _ASSIGNMENT.fullmatch(word):
        return _VARIABLE
    key = _KEY_WORD.fullmatch(word)
    return _KEYS.get(key[1]) if key else None
