"""The settings of a memory estimate out of a command line for llama-server."""

from __future__ import annotations

from collections.abc import Sequence

from controlpanel.lib.text import N_
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.extra_args import split_extra
from controlpanel.llamacpp.helptext import normalise
from controlpanel.llamacpp.importing_flags import LOADING
from controlpanel.llamacpp.meaning_any import ANY
from controlpanel.llamacpp.meaning_switches import SWITCH, switch_value
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.memory_types import Dialect, EstimateError

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

    With a build every flag must be one of its own, without one a flag that any build has; those that take
    no memory are passed over. Without a build the fork is known by its words.
    """
    known = ANY if caps is None else caps
    settings: dict[str, object] = {}
    for word, value in split_extra(args, known):
        name = normalise(word)
        flag = known.find(name)
        if any(spelling in _NOT_KNOWN for spelling in (name, *(flag.names if flag else ()))):
            raise EstimateError(N_("The estimate does not take %(flag)s into account."), flag=word[:60])
        if flag is None:
            raise EstimateError(_no_flag(caps), flag=word[:60])
        if flag.arity and value is None:
            raise EstimateError(N_("%(flag)s needs a value after it."), flag=word[:60])
        meaning = next((m for m in MEANINGS.values() if any(one in flag.all_names for one in m.names)), None)
        if meaning is not None and meaning.kind is SWITCH:
            settings[meaning.key] = switch_value(flag, name)
        elif meaning is not None and value is not None:
            settings[meaning.key] = value
        elif name in LOADING and LOADING[name] != "mlock":  # Locked pages are mapped or not as others are.
            settings["load_mode"] = LOADING[name]
    dialect = dialect_of(caps) if caps is not None else _guess(settings)
    _speculation(settings, dialect)
    return settings, dialect


def _no_flag(caps: Capabilities | None) -> str:
    if caps is not None:
        return N_("This build has no flag %(flag)s.")
    return N_("%(flag)s is no flag that the estimate knows; with a build all flags of the build are.")


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
