"""Rules for speculation with MTP: starts that fail, and drafts that do not help.

Facts as in rules_launch.py; of them `settings`, `model_mtp_heads` and `stop_requested` count here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Change, Found, Near, Rule
from controlpanel.llamacpp.rules_build_changes import put
from controlpanel.llamacpp.rules_launch_changes import NOTE, plain_cache, unless_stopped
from controlpanel.llamacpp.rules_quoted import unquoted
from controlpanel.llamacpp.rules_runtime_facts import number, setting

_NO_MTP = put("speculation", "none")
_EFFECTS = ("mtp_context_failed", "aborted", "crashed", "model_not_loaded", "bad_value")
_HEADS_TITLE = N_("The model has no MTP heads that this build can use")
_HEADS_REMEDY = N_(
    "Set the field “Speculation” to none, or choose a file of the model with MTP heads (often -MTP- in its "
    "name; “manage.py gguf FILE” tells). A draft model in the extra arguments needs them as well."
)
_SILENT_TITLE = N_("The server runs without speculation: it could not be started")
_SILENT_REMEDY = N_(
    "The server answers, but not faster. Set the field “Speculation” to none, or read the reason in the "
    "log; a newer build may be able to do it with this model."
)
# Too few tokens say nothing; an orderly end means that nobody looks at a running server.
_ENOUGH = r"accepted / {0,9}(?:[3-9]\d\d|\d{4,9}) generated"
_ENDED = Near(r"cleaning up before exit", after=300)
_ZERO = r"draft acceptance(?: rate)? = 0\.0[0-4]\d{0,6} \( {0,9}\d{1,9} " + _ENOUGH


def _has_heads(facts: Mapping[str, object]) -> bool:
    heads = facts.get("model_mtp_heads")
    return isinstance(heads, int) and heads > 0


def _quantised(facts: Mapping[str, object]) -> bool:
    types = [setting(facts, "cache_type_k"), setting(facts, "cache_type_v")]
    return any(isinstance(kind, str) and kind not in ("f16", "bf16", "f32") for kind in types)


def _shorter_drafts(found: Found) -> Iterable[Change]:
    """Draft two tokens; where no more are drafted already, none."""
    drafted = number(found.facts, "draft_max")
    if drafted is not None and drafted <= 2:
        return [Change("speculation", "none")]
    return [Change("draft_max", 2)]


_VISION_TITLE = N_("This build crashes when MTP and a vision projector are used together")
_VISION_REMEDY = N_(
    "Set the field “Speculation” to none, or take the vision projector out; a newer build of the "
    "fork can do both."
)

MTP_START_RULES = (
    Rule(
        "mtp_heads_missing",
        (
            r"context type MTP requested but model doesn't contain MTP layers",
            r"_MTP requires nextn_predict_layers > 0",
        ),
        _HEADS_TITLE,
        _HEADS_REMEDY,
        _NO_MTP,
        explains=_EFFECTS,
    ),
    Rule(
        "mtp_heads_missing",
        (r"MTP not supported for trunk architecture '(?P<architecture>[^']{0,60})'",),
        _HEADS_TITLE,
        _HEADS_REMEDY,
        _NO_MTP,
        when=lambda facts: not _has_heads(facts),
        explains=_EFFECTS,
    ),
    Rule(
        "mtp_architecture",
        (r"MTP not supported for trunk architecture '(?P<architecture>[^']{0,60})'",),
        N_("This build can do MTP, but not with models of the kind %(architecture)s"),
        N_(
            "Set the field “Speculation” to none, or choose a build that knows MTP for this model (upstream)."
        ),
        _NO_MTP,
        when=_has_heads,
        explains=_EFFECTS,
    ),
    Rule(
        "mtp_one_slot",
        (r"MTP currently supports only n_parallel=1; got (?P<slots>\d{1,6})",),
        N_("This build does MTP with one slot only, the profile has %(slots)s"),
        N_("Set the field “Slots” to 1, set “Speculation” to none, or choose an upstream build."),
        put("parallel", 1),
        explains=_EFFECTS,
    ),
    Rule(
        "mtp_gguf_old_build",
        (r"error loading model: missing tensor '(?P<tensor>blk\.\d{1,4}\.ssm_\w+\.weight)'",),
        N_("This build is too old for a model with MTP heads"),
        N_(
            "It takes the MTP heads for a layer of the model and misses its tensors (%(tensor)s). The file "
            "is not damaged. Use a build from May 2026 or later (of a fork: the branch with MTP), or a "
            "file of the model without MTP."
        ),
        when=lambda facts: facts.get("model_mtp_heads") != 0,
        explains=(*_EFFECTS, "missing_tensor"),
    ),
    Rule(
        "spec_type_renamed",
        (
            r"unknown speculative type: (?P<type>(?:draft-)?mtp)\b",
            r"unknown speculative decoding type without draft model",
        ),
        N_("This build calls MTP by another name"),
        N_(
            "Take --spec-type out of the extra arguments and set the field “Speculation” to MTP: the panel "
            "writes the name that the build knows (draft-mtp upstream, mtp in forks). If it is set so "
            "already, read the build's options again on its page."
        ),
        put("speculation", "mtp"),
        explains=_EFFECTS,
    ),
    Rule(
        "spec_type_unknown",
        (r"unknown speculative type: (?P<type>\S{1,60})",),
        N_("This build does not know the kind of speculation “%(type)s”"),
        N_("Correct --spec-type in the extra arguments: the log lists below what the build knows."),
        rank=COMMON,
        explains=_EFFECTS,
        unless=(r"type: (?:draft-)?mtp\b",),
    ),
    Rule(
        "mtp_with_embeddings",
        (r"missing result_norm/result_embd tensor",),
        N_("MTP and embeddings do not work together in this build"),
        N_(
            "Take --embedding or --embeddings out of the extra arguments (and LLAMA_ARG_EMBEDDINGS out of "
            "the environment), or set the field “Speculation” to none."
        ),
        _NO_MTP,
        explains=_EFFECTS,
    ),
    Rule(
        "mtp_flag_missing_ik",
        (r"MTP speculative stage requested, but the server was not started with MTP support",),
        N_("MTP is asked for, but was not switched on for loading the model"),
        N_(
            "ik_llama.cpp needs “--multi-token-prediction” (-mtp) in the extra arguments, and a file of "
            "the model with MTP heads; or take the speculative stage out."
        ),
        _NO_MTP,
        explains=_EFFECTS,
    ),
    Rule(
        "mtp_vision",
        (r"speculative decoding is not supported by multimodal, it will be disabled",),
        _VISION_TITLE,
        _VISION_REMEDY,
        _NO_MTP,
        with_=(Near(r"Segmentation fault", after=40),),
        explains=_EFFECTS,
    ),
    Rule(
        "mtp_vision",
        (r"speculative decoding is not supported by multimodal, it will be disabled",),
        _VISION_TITLE,
        _VISION_REMEDY,
        _NO_MTP,
        exit_codes=(-11, 139),
        explains=_EFFECTS,
    ),
    Rule(
        "draft_vocab_mismatch",
        (
            r"draft model (?:vocab type|vocab|special tokens) must (?:closely )?match target",
            r"target and draft vocabs are not compatible",
        ),
        N_("The draft model has another vocabulary than the model"),
        N_(
            "Choose a draft model of the same family (same tokenizer), or take it out of the extra arguments."
        ),
        explains=(*_EFFECTS, "speculation_off"),
    ),
    Rule(
        "mtp_context_failed",
        (r"failed to create MTP context",),
        N_("The part of the server that drafts (MTP) could not be started"),
        N_(
            "The lines above in the log say why; most often GPU memory is short. Choose a smaller context or "
            "fewer draft tokens, or set the field “Speculation” to none."
        ),
        _NO_MTP,
        rank=GENERIC,
        explains=("model_not_loaded", "speculation_off"),
    ),
    Rule(
        "speculation_off",
        (
            r"failed to initialize speculative decoding context: (?P<why>.{0,200})",
            r"speculative decoding not supported by this context",
        ),
        _SILENT_TITLE,
        _SILENT_REMEDY,
        _NO_MTP,
        rank=NOTE,
        needs_failure=False,
        passing=True,
    ),
)

_MTP_RUN_RULES = (
    Rule(
        "mtp_vision",
        (r"non-consecutive token position (?P<place>\d{1,9}) after (?P=place) for sequence \d+",),
        N_("This build cannot handle pictures together with MTP"),
        N_(
            "It repeats the same place without end and uses up memory. Set the field “Speculation” to none "
            "for a profile with a vision projector, or use a newer build."
        ),
        _NO_MTP,
        with_=(Near(r"processing image", before=6, required=False),),
    ),
    Rule(
        "mtp_zero_acceptance_kv",
        (_ZERO,),
        N_("No drafts are accepted, and the KV cache is quantised: a known bug of earlier builds"),
        N_("Use a newer build; until then leave “KV cache type K” and “KV cache type V” empty (f16)."),
        plain_cache,
        rank=NOTE,
        with_=(Near(r"llama_kv_cache: .{0,200}K \((?!f16|bf16|f32)\w+\)", before=300),),
        unless_near=(_ENDED,),
        explains=("mtp_low_acceptance",),
        passing=True,
    ),
    Rule(
        "mtp_zero_acceptance_kv",
        (_ZERO,),
        N_("No drafts are accepted, and the KV cache is quantised: a known bug of earlier builds"),
        N_("Use a newer build; until then leave “KV cache type K” and “KV cache type V” empty (f16)."),
        plain_cache,
        rank=NOTE,
        when=_quantised,
        unless_near=(_ENDED,),
        explains=("mtp_low_acceptance",),
        passing=True,
    ),
    Rule(
        "mtp_low_acceptance",
        (r"draft acceptance(?: rate)? = (?P<rate>0\.[0-4]\d{0,6}) \( {0,9}\d{1,9} " + _ENOUGH,),
        N_("Few drafts are accepted (%(rate)s): MTP costs more than it gains"),
        N_(
            "Set “Draft tokens” to 2 and “Least draft probability” to 0.6, then compare the speed with "
            "“Speculation” none."
        ),
        _shorter_drafts,
        rank=NOTE,
        unless_near=(_ENDED,),
        passing=True,
    ),
)

MTP_RULES: tuple[Rule, ...] = unless_stopped(*unquoted(*MTP_START_RULES, *_MTP_RUN_RULES))
