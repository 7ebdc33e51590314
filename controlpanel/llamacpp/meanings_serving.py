"""Fields of how a server works: speculation, pictures, loading and answering, its log."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.meaning_decimals import DECIMAL
from controlpanel.llamacpp.meaning_kinds import CHOICE, LOADING, MAX_CONTEXT, NUMBER, SPECULATION, Meaning
from controlpanel.llamacpp.meaning_switches import SWITCH
from controlpanel.llamacpp.meanings_memory import CACHE_TYPES

_YEAR = 31_536_000  # seconds
_DRAFT_CACHE = N_(
    "The cache of the drafting layers stays f16 unless set here; it does not follow the main one."
)

SPECULATION_FIELDS = (
    Meaning(
        "speculation",
        N_("Speculation"),
        N_("MTP drafts tokens with the model's own extra layers; the model file must hold them."),
        ("--spec-type",),
        SPECULATION,
        choices=("none", "mtp"),
        env="LLAMA_ARG_SPEC_TYPE",
    ),
    Meaning(
        "draft_max",
        N_("Draft tokens"),
        N_("Tokens drafted per step; 2 to 4 suit most models."),
        ("--spec-draft-n-max", "--draft-max"),
        NUMBER,
        low=1,
        high=64,
        more=("--draft", "--draft-n"),
        env="LLAMA_ARG_SPEC_DRAFT_N_MAX",
    ),
    Meaning(
        "draft_min",
        N_("Fewest draft tokens"),
        N_("Drafts shorter than this are not used."),
        ("--spec-draft-n-min", "--draft-min"),
        NUMBER,
        high=64,
        more=("--draft-n-min",),
        env="LLAMA_ARG_SPEC_DRAFT_N_MIN",
    ),
    Meaning(
        "draft_p_min",
        N_("Least draft probability"),
        N_("Drafting stops at a token that is less likely than this, from 0 to 1."),
        ("--spec-draft-p-min", "--draft-p-min"),
        DECIMAL,
        high=1,
        env="LLAMA_ARG_SPEC_DRAFT_P_MIN",
    ),
    Meaning(
        "draft_type_k",
        N_("Draft KV cache type K"),
        _DRAFT_CACHE,
        ("--spec-draft-type-k", "--cache-type-k-draft"),
        CHOICE,
        choices=CACHE_TYPES,
        more=("-ctkd",),
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
    ),
    Meaning(
        "draft_type_v",
        N_("Draft KV cache type V"),
        _DRAFT_CACHE,
        ("--spec-draft-type-v", "--cache-type-v-draft"),
        CHOICE,
        choices=CACHE_TYPES,
        more=("-ctvd",),
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
    ),
)

VISION_FIELDS = (
    Meaning(
        "mmproj_offload",
        N_("Projector on the GPU"),
        N_("Off keeps the vision projector in main memory: saves GPU memory, pictures take longer."),
        ("--mmproj-offload", "--no-mmproj-offload"),
        SWITCH,
        choices=("on", "off"),
        env="LLAMA_ARG_MMPROJ_OFFLOAD",
    ),
    Meaning(
        "image_min_tokens",
        N_("Fewest tokens per picture"),
        N_("For models with pictures of any size: small pictures are enlarged to this many tokens."),
        ("--image-min-tokens",),
        NUMBER,
        low=1,
        high=65_536,
        env="LLAMA_ARG_IMAGE_MIN_TOKENS",
    ),
    Meaning(
        "image_max_tokens",
        N_("Most tokens per picture"),
        N_("For models with pictures of any size: large pictures are reduced to this many tokens."),
        ("--image-max-tokens",),
        NUMBER,
        low=1,
        high=65_536,
        env="LLAMA_ARG_IMAGE_MAX_TOKENS",
    ),
)

SERVING_FIELDS = (
    Meaning(
        "load_mode",
        N_("Load mode"),
        N_("How the model file gets into memory."),
        ("--load-mode", "--mmap", "--no-mmap", "--mlock"),
        LOADING,
        choices=("auto", "mmap", "none", "mlock"),
        more=("-lm",),
        env="LLAMA_ARG_LOAD_MODE",
    ),
    Meaning(
        "batch",
        N_("Batch size"),
        N_("Prompt tokens handled together at most."),
        ("--batch-size",),
        NUMBER,
        low=1,
        high=65_536,
        more=("-b",),
        env="LLAMA_ARG_BATCH",
    ),
    Meaning(
        "ubatch",
        N_("Micro-batch size"),
        N_("Prompt tokens per computation; smaller saves GPU memory."),
        ("--ubatch-size",),
        NUMBER,
        low=1,
        high=65_536,
        more=("-ub",),
        env="LLAMA_ARG_UBATCH",
    ),
    Meaning(
        "threads",
        N_("Threads"),
        N_("CPU threads for generation."),
        ("--threads",),
        NUMBER,
        low=1,
        high=1_024,
        more=("-t",),
        env="LLAMA_ARG_THREADS",
    ),
    Meaning(
        "threads_batch",
        N_("Threads for prompts"),
        N_("CPU threads for reading prompts; empty takes as many as for generation."),
        ("--threads-batch",),
        NUMBER,
        low=1,
        high=1_024,
        more=("-tb",),
    ),
    Meaning(
        "cont_batching",
        N_("Continuous batching"),
        N_("On: conversations are worked on together as they come. Off: they wait for each other."),
        ("--cont-batching", "--no-cont-batching"),
        SWITCH,
        choices=("on", "off"),
        more=("-cb", "-nocb"),
        env="LLAMA_ARG_CONT_BATCHING",
    ),
    Meaning(
        "reasoning_format",
        N_("Reasoning format"),
        N_("Where the model's thoughts go: none leaves them in the answer, auto follows the model."),
        ("--reasoning-format",),
        CHOICE,
        choices=("none", "deepseek", "deepseek-legacy", "auto"),
        env="LLAMA_ARG_THINK",
    ),
    Meaning(
        "reasoning_budget",
        N_("Reasoning budget"),
        N_("Tokens for thinking at most; -1 is without a limit, 0 ends the thinking at once."),
        ("--reasoning-budget",),
        NUMBER,
        low=-1,
        high=MAX_CONTEXT,
        env="LLAMA_ARG_THINK_BUDGET",
    ),
    Meaning(
        "warmup",
        N_("Warm-up"),
        N_("An empty run after loading; without it the first answer begins later."),
        ("--warmup", "--no-warmup"),
        SWITCH,
        choices=("on", "off"),
    ),
    Meaning(
        "sleep_idle",
        N_("Sleep when idle"),
        N_("Seconds without a request after which the model leaves memory; the next request loads it again."),
        ("--sleep-idle-seconds",),
        NUMBER,
        low=1,
        high=_YEAR,
    ),
)

LOG_FIELDS = (
    Meaning(
        "log_prefix",
        N_("Prefix of log lines"),
        N_("Each line of the log begins with its level and its source."),
        ("--log-prefix", "--no-log-prefix"),
        SWITCH,
        choices=("on", "off"),
        env="LLAMA_ARG_LOG_PREFIX",
    ),
    Meaning(
        "log_timestamps",
        N_("Time of log lines"),
        N_("Each line of the log says when it was written, counted from the start."),
        ("--log-timestamps", "--no-log-timestamps"),
        SWITCH,
        choices=("on", "off"),
        env="LLAMA_ARG_LOG_TIMESTAMPS",
    ),
)
