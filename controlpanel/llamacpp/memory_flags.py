"""The settings of a memory estimate out of a command line for llama-server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controlpanel.lib.text import N_
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.extra_args import split_extra
from controlpanel.llamacpp.helptext import Flag, normalise
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.memory_types import Dialect, EstimateError

# Spellings beside those of the profile's fields, and settings that are no field of a profile.
_VALUES: dict[str, tuple[str, ...]] = {
    "ctx_size": ("-c",),
    "gpu_layers": ("-ngl",),
    "tensor_split": ("-ts",),
    "parallel": ("-np",),
    "flash_attn": ("-fa",),
    "cache_type_k": ("-ctk",),
    "cache_type_v": ("-ctv",),
    "speculation": (),
    "draft_max": (),
    "draft_type_k": ("-ctkd",),
    "draft_type_v": ("-ctvd",),
    "batch": ("-b",),
    "ubatch": ("-ub",),
    "split_mode": ("-sm", "--split-mode"),
    "main_gpu": ("-mg", "--main-gpu"),
    "n_cpu_moe": ("-ncmoe", "--n-cpu-moe"),
    "cache_ram": ("-cram", "--cache-ram"),
}
_SWITCHES: dict[str, tuple[str, bool]] = {
    "-cmoe": ("cpu_moe", True),
    "--cpu-moe": ("cpu_moe", True),
    "-kvu": ("kv_unified", True),
    "--kv-unified": ("kv_unified", True),
    "-no-kvu": ("kv_unified", False),
    "--no-kv-unified": ("kv_unified", False),
    "-kvo": ("kv_offload", True),
    "--kv-offload": ("kv_offload", True),
    "-nkvo": ("kv_offload", False),
    "--no-kv-offload": ("kv_offload", False),
    "--swa-full": ("swa_full", True),
    "--mmproj-offload": ("mmproj_offload", True),
    "--no-mmproj-offload": ("mmproj_offload", False),
}
# They change what goes where, in ways that the estimate does not know.
_NOT_KNOWN = (
    ("--model", "--model-url", "--hf-repo", "--hf-file", "--mmproj", "--mmproj-url", "--mmproj-device")
    + ("--models-dir", "--models-preset", "--device", "--rpc", "--override-tensor", "--override-kv")
    + ("--n-cpu-ffn", "--kv-unified-per-slot", "--lora", "--lora-scaled", "--control-vector")
    + ("--control-vector-scaled", "--spec-draft-model", "--spec-draft-hf", "--spec-draft-ngl")
    + ("--spec-draft-device", "--spec-draft-override-tensor", "--spec-draft-ctx-size")
    + ("--image-min-tokens", "--image-max-tokens", "--embedding", "--embeddings", "--rerank", "--reranking")
)
_MTP: dict[str, Dialect] = {"mtp": "fork", "draft-mtp": "upstream"}
# Kinds of speculation that take no memory of a card.
_NGRAM = ("none", "ngram-")


def dialect_of(caps: Capabilities) -> Dialect:
    """Return by whose rules a build takes memory."""
    older = caps.mtp_value == "mtp" or (caps.turboquant and caps.mtp_value is None)
    return "fork" if older else "upstream"


def read_flags(args: Sequence[str], caps: Capabilities | None) -> tuple[dict[str, object], Dialect]:
    """Return settings and dialect; raise EstimateError for a flag that is wrong or not taken into account.

    With a build every flag must be one of its own, and those that take no memory are passed over. Without
    one only flags that are known here are taken, and the fork is known by its words.
    """
    names = {
        name: key
        for key, more in _VALUES.items()
        for name in ((*MEANINGS[key].names, *more) if key in MEANINGS else more)
    }
    settings: dict[str, object] = {}
    for word, flag, value in _words(args, caps, names):
        spellings = (normalise(word), *(flag.names if flag else ()))
        if any(name in _NOT_KNOWN for name in spellings):
            raise EstimateError(N_("The estimate does not take %(flag)s into account."), flag=word[:60])
        switch = _SWITCHES.get(normalise(word))
        key = next((names[name] for name in spellings if name in names), None)
        if switch is not None:
            settings[switch[0]] = switch[1]
        elif key is not None:
            if value is None:
                raise EstimateError(N_("%(flag)s needs a value after it."), flag=word[:60])
            settings[key] = value
    dialect = dialect_of(caps) if caps is not None else _guess(settings)
    _speculation(settings, dialect)
    return settings, dialect


def _words(
    args: Sequence[str], caps: Capabilities | None, names: dict[str, str]
) -> Iterator[tuple[str, Flag | None, str | None]]:
    """Return each flag as written, what the build knows of it, and its value."""
    if caps is not None:
        for word, value in split_extra(args, caps):
            flag = caps.find(word)
            if flag is None:
                raise EstimateError(N_("This build has no flag %(flag)s."), flag=word[:60])
            yield word, flag, value
        return
    rest = iter(args)
    for word in rest:
        name = normalise(word)
        if name in names:
            yield word, None, next(rest, None)
        elif name in _SWITCHES or name in _NOT_KNOWN:
            yield word, None, None
        else:
            text = N_("%(flag)s is no flag that the estimate knows; with a build all flags of the build are.")
            raise EstimateError(text, flag=word[:60])


def _guess(settings: dict[str, object]) -> Dialect:
    """Return the dialect whose words the settings use."""
    turbo = any(str(settings.get(key, "")).startswith("turbo") for key in ("cache_type_k", "cache_type_v"))
    return "fork" if turbo or settings.get("speculation") == "mtp" else "upstream"


def _speculation(settings: dict[str, object], dialect: Dialect) -> None:
    """Turn the build's word for MTP into the field's; other kinds with a model of their own are not known."""
    if "speculation" not in settings:
        return
    mtp = False
    for kind in str(settings["speculation"]).split(","):
        if _MTP.get(kind) == dialect:
            mtp = True
        elif not kind.startswith(_NGRAM):
            text = N_("The estimate does not know the speculation %(kind)s with this build.")
            raise EstimateError(text, kind=kind[:60])
    settings["speculation"] = "mtp" if mtp else "none"
