"""Fields of how tokens are chosen when a request does not say it, and of contexts beyond the trained one."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.meaning_decimals import DECIMAL
from controlpanel.llamacpp.meaning_kinds import CHOICE, MAX_CONTEXT, NUMBER, Meaning

SAMPLING_FIELDS = (
    Meaning(
        "temperature",
        N_("Temperature"),
        N_("0 takes the likeliest token always; higher values make answers more varied."),
        ("--temp", "--temperature"),
        DECIMAL,
        high=10,
        env="LLAMA_ARG_TEMPERATURE",
    ),
    Meaning(
        "top_k",
        N_("Top-k"),
        N_("Only the k likeliest tokens are considered; 0 considers all."),
        ("--top-k",),
        NUMBER,
        high=1_000_000,
        env="LLAMA_ARG_TOP_K",
    ),
    Meaning(
        "top_p",
        N_("Top-p"),
        N_("Only the likeliest tokens that make up this share are considered; 1 considers all."),
        ("--top-p",),
        DECIMAL,
        high=1,
        env="LLAMA_ARG_TOP_P",
    ),
    Meaning(
        "min_p",
        N_("Min-p"),
        N_("Tokens less likely than this part of the likeliest one are left out; 0 leaves out none."),
        ("--min-p",),
        DECIMAL,
        high=1,
        env="LLAMA_ARG_MIN_P",
    ),
    Meaning(
        "repeat_penalty",
        N_("Repeat penalty"),
        N_("Above 1 tokens that came already get less likely; 1 changes nothing."),
        ("--repeat-penalty",),
        DECIMAL,
        low=0.01,
        high=10,
        env="LLAMA_ARG_REPEAT_PENALTY",
    ),
    Meaning(
        "presence_penalty",
        N_("Presence penalty"),
        N_("Above 0 the model turns to new words sooner; 0 changes nothing."),
        ("--presence-penalty",),
        DECIMAL,
        low=-10,
        high=10,
        env="LLAMA_ARG_PRESENCE_PENALTY",
    ),
    Meaning(
        "seed",
        N_("Seed"),
        N_("The same seed gives the same answer to the same request; -1 takes a new one each time."),
        ("--seed",),
        NUMBER,
        low=-1,
        high=4_294_967_294,
        more=("-s",),
    ),
)

ROPE_FIELDS = (
    Meaning(
        "rope_scaling",
        N_("RoPE scaling"),
        N_("How the context grows beyond what the model was trained for; yarn suits most models."),
        ("--rope-scaling",),
        CHOICE,
        choices=("none", "linear", "yarn"),
        env="LLAMA_ARG_ROPE_SCALING_TYPE",
    ),
    Meaning(
        "rope_scale",
        N_("RoPE scale"),
        N_("How many times the trained context the new one is, such as 4."),
        ("--rope-scale",),
        DECIMAL,
        low=1,
        high=1_024,
        env="LLAMA_ARG_ROPE_SCALE",
    ),
    Meaning(
        "yarn_orig_ctx",
        N_("Trained context for YaRN"),
        N_("Tokens the model was trained for; 0 takes what the model file says."),
        ("--yarn-orig-ctx",),
        NUMBER,
        high=MAX_CONTEXT,
        env="LLAMA_ARG_YARN_ORIG_CTX",
    ),
    Meaning(
        "rope_freq_base",
        N_("RoPE base frequency"),
        N_("Replaces the value stored in the model, which is nearly always the right one."),
        ("--rope-freq-base",),
        DECIMAL,
        low=1,
        high=10**12,
        env="LLAMA_ARG_ROPE_FREQ_BASE",
    ),
)
