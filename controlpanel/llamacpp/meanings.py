"""The fields of a profile: what each means, and how a build spells it.

A profile stores meanings; a new field is one entry in MEANINGS.
"""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.meaning_kinds import (
    CHOICE,
    CONTEXT,
    LAYERS,
    LOADING,
    MAX_CONTEXT,
    NUMBER,
    SPECULATION,
    SPLIT,
    Meaning,
)

# What every build since 2024 knows; a build's own list comes first.
_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

_ALL = (
    Meaning(
        "ctx_size",
        N_("Context size"),
        N_("Tokens for all slots together; 0 takes the model's own size."),
        ("--ctx-size",),
        CONTEXT,
        high=MAX_CONTEXT,
    ),
    Meaning(
        "gpu_layers",
        N_("GPU layers"),
        N_("Layers kept in GPU memory: a number, auto or all."),
        ("--gpu-layers", "--n-gpu-layers"),
        LAYERS,
        high=10_000,
    ),
    Meaning(
        "tensor_split",
        N_("Tensor split"),
        N_("Share of the model per GPU, such as 3,1."),
        ("--tensor-split",),
        SPLIT,
    ),
    Meaning(
        "parallel",
        N_("Slots"),
        N_("Conversations served at the same time; they share the context size."),
        ("--parallel",),
        NUMBER,
        low=1,
        high=256,
    ),
    Meaning(
        "flash_attn",
        N_("Flash attention"),
        N_("Needed for a quantised V cache."),
        ("--flash-attn",),
        CHOICE,
        choices=("on", "off", "auto"),
    ),
    Meaning(
        "cache_type_k",
        N_("KV cache type K"),
        N_("Smaller types save memory and cost some quality."),
        ("--cache-type-k",),
        CHOICE,
        choices=_CACHE_TYPES,
    ),
    Meaning(
        "cache_type_v",
        N_("KV cache type V"),
        N_("A quantised type needs flash attention."),
        ("--cache-type-v",),
        CHOICE,
        choices=_CACHE_TYPES,
    ),
    Meaning(
        "speculation",
        N_("Speculation"),
        N_("MTP drafts tokens with the model's own extra layers; the model file must hold them."),
        ("--spec-type",),
        SPECULATION,
        choices=("none", "mtp"),
    ),
    Meaning(
        "draft_max",
        N_("Draft tokens"),
        N_("Tokens drafted per step; 2 to 4 suit most models."),
        ("--spec-draft-n-max", "--draft-max"),
        NUMBER,
        low=1,
        high=64,
    ),
    Meaning(
        "draft_type_k",
        N_("Draft KV cache type K"),
        N_("The cache of the drafting layers stays f16 unless set here; it does not follow the main one."),
        ("--spec-draft-type-k", "--cache-type-k-draft"),
        CHOICE,
        choices=_CACHE_TYPES,
    ),
    Meaning(
        "draft_type_v",
        N_("Draft KV cache type V"),
        N_("The cache of the drafting layers stays f16 unless set here; it does not follow the main one."),
        ("--spec-draft-type-v", "--cache-type-v-draft"),
        CHOICE,
        choices=_CACHE_TYPES,
    ),
    Meaning(
        "load_mode",
        N_("Load mode"),
        N_("How the model file gets into memory."),
        ("--load-mode", "--mmap", "--no-mmap", "--mlock"),
        LOADING,
        choices=("auto", "mmap", "none", "mlock"),
    ),
    Meaning(
        "batch",
        N_("Batch size"),
        N_("Prompt tokens handled together at most."),
        ("--batch-size",),
        NUMBER,
        low=1,
        high=65_536,
    ),
    Meaning(
        "ubatch",
        N_("Micro-batch size"),
        N_("Prompt tokens per computation; smaller saves GPU memory."),
        ("--ubatch-size",),
        NUMBER,
        low=1,
        high=65_536,
    ),
    Meaning(
        "threads",
        N_("Threads"),
        N_("CPU threads for generation."),
        ("--threads",),
        NUMBER,
        low=1,
        high=1_024,
    ),
)

MEANINGS: dict[str, Meaning] = {meaning.key: meaning for meaning in _ALL}
