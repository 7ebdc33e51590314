"""Which flag or variable means which field of a profile, with a build and without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from controlpanel.lib.text import N_
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.extra_refused import refusal
from controlpanel.llamacpp.helptext import Flag, normalise
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.renames import RENAMES

_SHORT: dict[str, tuple[tuple[str, ...], str]] = {
    "ctx_size": (("-c",), "LLAMA_ARG_CTX_SIZE"),
    "gpu_layers": (("-ngl",), "LLAMA_ARG_N_GPU_LAYERS"),
    "tensor_split": (("-ts",), "LLAMA_ARG_TENSOR_SPLIT"),
    "parallel": (("-np",), "LLAMA_ARG_N_PARALLEL"),
    "flash_attn": (("-fa",), "LLAMA_ARG_FLASH_ATTN"),
    "cache_type_k": (("-ctk",), "LLAMA_ARG_CACHE_TYPE_K"),
    "cache_type_v": (("-ctv",), "LLAMA_ARG_CACHE_TYPE_V"),
    "speculation": ((), "LLAMA_ARG_SPEC_TYPE"),
    "draft_max": (("--draft", "--draft-n"), "LLAMA_ARG_SPEC_DRAFT_N_MAX"),
    "draft_type_k": (("-ctkd",), "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K"),
    "draft_type_v": (("-ctvd",), "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V"),
    "batch": (("-b",), "LLAMA_ARG_BATCH"),
    "ubatch": (("-ub",), "LLAMA_ARG_UBATCH"),
    "threads": (("-t",), "LLAMA_ARG_THREADS"),
}
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
    ("-cb --cont-batching -nocb --no-cont-batching", "", "LLAMA_ARG_CONT_BATCHING"),
    ("--ui --webui --no-ui --no-webui", "", "LLAMA_ARG_UI"),
    ("--mmap --no-mmap", "", "LLAMA_ARG_MMAP"),
    ("--mlock", "", "LLAMA_ARG_MLOCK"),
    ("-dio --direct-io -ndio --no-direct-io", "", "LLAMA_ARG_DIO"),
    ("-lm --load-mode", "MODE", "LLAMA_ARG_LOAD_MODE"),
)

LOADING = {
    "--mmap": "mmap",
    "--no-mmap": "none",
    "--mlock": "mlock",
    "--direct-io": "dio",
    "-dio": "dio",
}
"""Flags of the older dialect that say a load mode without a value."""

FIELDS = {
    "-m": "model",
    "--model": "model",
    "-mm": "mmproj",
    "--mmproj": "mmproj",
    "--port": "port",
    "-a": "alias",
    "--alias": "alias",
}
"""Flags of a profile's fields that are no meaning."""

TURBO8 = N_(
    "%(flag)s: there is no %(value)s in any build. TurboQuant has turbo2, turbo3 and turbo4, "
    "in builds of a fork that lists them."
)

_BY_THE_PANEL = frozenset(
    refusal(name) for name in ("--host", "--alias", "--api-key", "--ssl-key-file", "--log-file", "--metrics")
)


def managed(reason: str) -> bool:
    """Tell whether a refusal says that the panel does the same itself."""
    return reason in _BY_THE_PANEL


def _any_build() -> Capabilities:
    """Return a dialect that takes what any build takes, for a command without a build."""
    flags = []
    for key, (short, env) in _SHORT.items():
        meaning = MEANINGS[key]
        choices = (*meaning.choices, *_TURBO) if "type" in key else meaning.choices
        flags.append(Flag((*short, *meaning.names), hint="VALUE", env=env, choices=choices))
    for names, hint, env in _OTHERS:
        words = names.split()
        positive = tuple(word for word in words if not word.startswith(("--no-", "-no", "-ndio")))
        negative = tuple(word for word in words if word not in positive)
        choices = _LOAD_MODES if "--load-mode" in words else ()
        flags.append(Flag(positive, negative, hint, env=env, choices=choices))
    return Capabilities(
        spec_types=("none", "draft-mtp"),
        mtp_value="draft-mtp",
        cache_types=(*MEANINGS["cache_type_k"].choices, *_TURBO),
        load_mode="load-mode",
        flags=tuple(flags),
    )


ANY = _any_build()


class Use(NamedTuple):
    """A flag with its values; `shown` is what the text has for it, perhaps a variable's name."""

    name: str
    values: tuple[str, ...]
    shown: str


class Names:
    """The names of one build, those of every build behind them."""

    def __init__(self, caps: Capabilities | None) -> None:
        self.build = caps
        self.caps = caps or ANY
        self.keys = {name: key for key, (short, _) in _SHORT.items() for name in short}
        self.keys |= {name: key for key, meaning in MEANINGS.items() for name in meaning.names}
        for flag in self.caps.flags:
            key = next((self.keys[name] for name in flag.names if name in self.keys), None)
            if key is not None and key != "load_mode":
                self.keys |= dict.fromkeys(flag.names, key)
        self.keys |= dict.fromkeys((*LOADING, "-lm"), "load_mode")
        self.env = {flag.env: flag for flag in ANY.flags if flag.env}
        self.env |= {flag.env: flag for flag in self.caps.flags if flag.env and not flag.removed}

    def flag(self, name: str) -> Flag | None:
        """Return what is known of a flag, removed or not."""
        return self.caps.index.get(name) or ANY.index.get(name)

    def renamed(self, name: str) -> str | None:
        """Return the name that the build has for a flag that it no longer, or not yet, knows."""
        for old, new in RENAMES:
            if name == old and self.caps.has(new.partition(" ")[0]):
                return new
            if name == new and self.caps.has(old):
                return old
        return None

    def known(self) -> Iterator[str]:
        """Yield every name that a mistyped flag may mean."""
        yield from self.caps.index
        if self.build is None:
            yield from (name for pair in RENAMES for name in pair if " " not in name)

    def of_variable(self, name: str, value: str) -> Use | None:
        """Return a variable of llama.cpp as the flag it stands for; None for any other variable."""
        flag = self.env.get(name)
        no = False
        if flag is None and name.startswith("LLAMA_ARG_NO_"):
            flag, no = self.env.get("LLAMA_ARG_" + name.removeprefix("LLAMA_ARG_NO_")), True
        if flag is None:
            return None
        if flag.arity:
            return None if no else Use(normalise(flag.name), (value,), name)
        if not no and value.lower() in ("on", "enabled", "true", "1"):
            return Use(flag.name, (), name)
        negative = next((word for word in flag.negatives if word.startswith("--")), "")
        return Use(negative, (), name)
