"""A dialect that takes what any build takes, for words that are read without a build."""

from __future__ import annotations

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.helptext import Flag
from controlpanel.llamacpp.meaning_kinds import LOADING, Meaning
from controlpanel.llamacpp.meaning_switches import SWITCH
from controlpanel.llamacpp.meanings import MEANINGS

_LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
_TURBO = ("turbo2", "turbo3", "turbo4")

# Flags that are no setting but must be told from their values when no build says so.
_OTHERS: tuple[tuple[str, str, str], ...] = (
    ("-m --model", "FNAME", "LLAMA_ARG_MODEL"),
    ("-mm --mmproj", "FILE", "LLAMA_ARG_MMPROJ"),
    ("-a --alias", "STRING", "LLAMA_ARG_ALIAS"),
    ("--host", "HOST", "LLAMA_ARG_HOST"),
    ("--port", "PORT", "LLAMA_ARG_PORT"),
    ("--api-key", "KEY", "LLAMA_API_KEY"),
    ("--api-key-file", "FNAME", "LLAMA_ARG_API_KEY_FILE"),
    ("--ssl-key-file", "FNAME", "LLAMA_ARG_SSL_KEY_FILE"),
    ("--ssl-cert-file", "FNAME", "LLAMA_ARG_SSL_CERT_FILE"),
    ("-hf -hfr --hf-repo", "REPO", "LLAMA_ARG_HF_REPO"),
    ("-hff --hf-file", "FILE", "LLAMA_ARG_HF_FILE"),
    ("-hft --hf-token", "TOKEN", "HF_TOKEN"),
    ("-mu --model-url", "URL", "LLAMA_ARG_MODEL_URL"),
    ("-mmu --mmproj-url", "URL", "LLAMA_ARG_MMPROJ_URL"),
    ("-lv --verbosity --log-verbosity", "N", "LLAMA_ARG_LOG_VERBOSITY"),
    ("--log-file", "FNAME", "LLAMA_ARG_LOG_FILE"),
    ("--log-colors", "[on|off|auto]", "LLAMA_ARG_LOG_COLORS"),
    ("--sse-ping-interval", "N", "LLAMA_ARG_SSE_PING_INTERVAL"),
    ("--metrics", "", "LLAMA_ARG_ENDPOINT_METRICS"),
    ("--slots --no-slots", "", "LLAMA_ARG_ENDPOINT_SLOTS"),
    ("--props", "", "LLAMA_ARG_ENDPOINT_PROPS"),
    ("--jinja --no-jinja", "", "LLAMA_ARG_JINJA"),
    ("--ui --webui --no-ui --no-webui", "", "LLAMA_ARG_UI"),
    ("--mmap --no-mmap", "", "LLAMA_ARG_MMAP"),
    ("--mlock", "", "LLAMA_ARG_MLOCK"),
    ("-dio --direct-io -ndio --no-direct-io", "", "LLAMA_ARG_DIO"),
    ("-lm --load-mode", "MODE", "LLAMA_ARG_LOAD_MODE"),
)


def _any_build() -> Capabilities:
    # The load mode has a flag of each dialect among the others.
    flags = [_flag(meaning) for meaning in MEANINGS.values() if meaning.kind is not LOADING]
    for names, hint, env in _OTHERS:
        choices = _LOAD_MODES if "--load-mode" in names else ()
        flags.append(_spelled(names.split(), hint, env, choices))
    return Capabilities(
        spec_types=("none", "draft-mtp"),
        mtp_value="draft-mtp",
        cache_types=(*MEANINGS["cache_type_k"].choices, *_TURBO),
        load_mode="load-mode",
        flags=tuple(flags),
    )


def _flag(meaning: Meaning) -> Flag:
    words = [*meaning.more, *meaning.names]
    if meaning.kind is SWITCH:
        return _spelled(words, "", meaning.env, ())
    choices = (*meaning.choices, *_TURBO) if "type" in meaning.key else meaning.choices
    return Flag(tuple(words), hint="VALUE", env=meaning.env, choices=choices)


def _spelled(words: list[str], hint: str, env: str, choices: tuple[str, ...]) -> Flag:
    negative = tuple(word for word in words if not hint and word.startswith(("--no-", "-n")))
    positive = tuple(word for word in words if word not in negative)
    return Flag(positive, negative, hint, env=env, choices=choices)


ANY = _any_build()
