"""Rules for settings that contradict each other when the context is made: cache types, split, length."""

from __future__ import annotations

from collections.abc import Iterable

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import Change, Found, Rule
from controlpanel.llamacpp.rules_build_changes import put
from controlpanel.llamacpp.rules_launch_changes import NOTE, plain_cache

_EFFECTS = ("crashed", "aborted", "model_not_loaded")


def _trained_context(found: Found) -> Iterable[Change]:
    return [Change("ctx_size", int(found["trained"]))]


CONTEXT_RULES = (
    Rule(
        "v_cache_needs_fa",
        (
            r"V cache quantization requires flash_attn",
            r"quantized V cache requires flash_attn",
        ),
        N_("A quantised V cache needs flash attention, which is off"),
        N_("Set the field “Flash attention” to on, or leave “KV cache type V” empty (f16)."),
        put("flash_attn", "on"),
        explains=_EFFECTS,
    ),
    Rule(
        "kv_block_head_size",
        (
            r"(?P<which>[KV]) cache type (?P<type>\w{1,20}) with block size (?P<block>\d+) does not divide "
            r"n_embd_head_\w{1,4} ?= ?(?P<size>\d+)",
        ),
        N_("The model's heads (%(size)s wide) cannot have a KV cache of type %(type)s"),
        N_(
            "Quantised caches work in blocks of %(block)s, which this size is no multiple of. Leave “KV "
            "cache type K” and “KV cache type V” empty (f16)."
        ),
        plain_cache,
        explains=_EFFECTS,
    ),
    Rule(
        "kv_types_differ",
        (r"model does not support different K \((?P<k>\w{1,20})\) and V \((?P<v>\w{1,20})\) cache types",),
        N_("This model needs one type for both halves of the KV cache"),
        N_("Choose the same type in the fields “KV cache type K” (%(k)s) and “KV cache type V” (%(v)s)."),
        lambda found: [Change("cache_type_v", found["k"])],
        explains=_EFFECTS,
    ),
    Rule(
        "tensor_split_mode_kv",
        (r"SPLIT_MODE_TENSOR and KV cache quantization not implemented",),
        N_("This build cannot have the split mode tensor together with a quantised KV cache"),
        N_(
            "Set the field “Split mode” to layer, leave both KV cache types empty (f16), or use a newer "
            "build (since June 2026 both work together)."
        ),
        put("split_mode", "layer"),
        explains=_EFFECTS,
    ),
    Rule(
        "turboquant_with_sm_tensor",
        (r"ggml op not implemented: TURBO\w*",),
        N_("TurboQuant caches do not work with the split mode tensor"),
        N_("Set the field “Split mode” to layer, or choose q8_0 or q4_0 for both KV cache types."),
        put("split_mode", "layer"),
        explains=_EFFECTS,
    ),
    Rule(
        "tensor_split_mode_fa",
        (r"SPLIT_MODE_TENSOR requires flash_attn",),
        N_("The split mode tensor needs flash attention, which is off"),
        N_("Set the field “Flash attention” to on, or “Split mode” to layer."),
        put("flash_attn", "on"),
        explains=_EFFECTS,
    ),
    Rule(
        "tensor_split_mode_model",
        (r"SPLIT_MODE_TENSOR not implemented for architecture '?(?P<architecture>[\w.-]{1,60})",),
        N_("This build cannot split models of the kind %(architecture)s by tensors"),
        N_("Set the field “Split mode” to layer, which works with each model, or use a newer build."),
        put("split_mode", "layer"),
        explains=_EFFECTS,
    ),
    Rule(
        "yarn_context_capped",
        (
            r"slot context \((?P<asked>\d{1,10})\) exceeds the training context of the model "
            r"\((?P<trained>\d{1,10})\) - capping",
        ),
        N_("The context was cut from %(asked)s to the %(trained)s tokens that the model was trained for"),
        N_(
            "Longer requests are refused. Set “Context size” to %(trained)s, or stretch it: “RoPE scaling” "
            "yarn with “RoPE scale”. If those are set already, this build ignores them: use a newer one, "
            "or add “--override-kv ARCHITECTURE.context_length=int:%(asked)s” to the extra arguments."
        ),
        _trained_context,
        rank=NOTE,
        needs_failure=False,
        passing=True,
    ),
    Rule(
        "context_above_training",
        (
            r"slot context \((?P<asked>\d{1,10})\) exceeds the training context of the model "
            r"\((?P<trained>\d{1,10})\) - using rope scaling",
        ),
        N_("The context is longer (%(asked)s) than the model was trained for (%(trained)s)"),
        N_(
            "The build does not cut it: answers get worse beyond %(trained)s tokens. Set “Context size” to "
            "that, or set “RoPE scaling” to yarn with a “RoPE scale” that covers it."
        ),
        _trained_context,
        rank=NOTE,
        needs_failure=False,
        passing=True,
    ),
)
