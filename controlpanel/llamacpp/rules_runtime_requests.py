"""Rules for requests that a server refused while it went on: too long, of a wrong form, not decodable."""

from __future__ import annotations

from collections.abc import Iterable

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Change, Found, Near, Rule
from controlpanel.llamacpp.rules_runtime_facts import (
    Facts,
    context_is_divided,
    larger_context,
    number,
    one_slot,
    slot_is_far_below,
    slots,
)

_TOO_LONG = (
    r"request \((?P<tokens>\d+) tokens\) exceeds the available context size \((?P<n_ctx>\d+) tokens\)",
    r"the request exceeds the available context size",
    r"\"type\": ?\"exceed_context_size_error\"",
    r"\"exceed_context_size_error\", ?\"n_prompt_tokens\"",
)
_SMALL_DEFAULT = r"n_ctx_slot = (?P<slot>512|2048|4096)\b"
_DIVIDED_TITLE = N_("Each slot has only a part of the context, and a request was longer than its part")
_DIVIDED_REMEDY = N_(
    "The context size is divided among the slots. Use one slot, turn on “One KV cache for all slots”, or "
    "set the context size to what one conversation needs times the number of slots."
)


def _size_is_unknown(facts: Facts) -> bool:
    return number(facts, "ctx_size") is None and "n_ctx" not in facts


def _slot_is_smaller_than_asked(facts: Facts) -> bool:
    return slot_is_far_below(facts, slots(facts))


def _undivided(found: Found) -> Iterable[Change]:
    yield from one_slot(found)
    yield Change("kv_unified", "on")


def _micro_batch(found: Found) -> Iterable[Change]:
    """Make both batches as large as the input, in whole steps of 512."""
    if found["tokens"]:
        size = -(-int(found["tokens"][:9]) // 512) * 512
        yield Change("batch", size)
        yield Change("ubatch", size)


_REFUSED_REMEDY = N_(
    "The server refused the request and goes on. Raise the context size as far as memory allows "
    "(smaller KV cache types make room), or shorten the conversation."
)

REQUEST_RULES = (
    Rule(
        "context_overflow",
        (_TOO_LONG[0],),
        N_("A request has %(tokens)s tokens, a slot holds %(n_ctx)s"),
        _REFUSED_REMEDY,
        larger_context,
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "context_overflow",
        (*_TOO_LONG[1:], r"input \(\d+ tokens\) is larger than the max context size"),
        N_("A request is longer than the context of a slot"),
        _REFUSED_REMEDY,
        larger_context,
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "context_divided_by_parallel",
        _TOO_LONG[:3],
        _DIVIDED_TITLE,
        _DIVIDED_REMEDY,
        _undivided,
        rank=COMMON,
        with_=(
            Near(r"n_slots = (?:[2-9]|\d\d+), n_ctx_slot = \d+, kv_unified = 'false'", before=200),
            Near(r"new prompt, n_ctx_slot = ", before=4, required=False),
        ),
        explains=("context_overflow", "config_not_applied"),
        passing=True,
    ),
    Rule(
        "context_divided_by_parallel",
        _TOO_LONG[:3],
        _DIVIDED_TITLE,
        _DIVIDED_REMEDY,
        _undivided,
        rank=COMMON,
        when=context_is_divided,
        explains=("context_overflow", "config_not_applied"),
        passing=True,
    ),
    Rule(
        "config_not_applied",
        _TOO_LONG[:3],
        N_("The server runs with a much smaller context than the profile asks for"),
        N_(
            "The log's first lines say why: the context was capped to what the model was trained for, made "
            "smaller to fit the memory, or the setting did not reach the server. Compare the command line "
            "with “n_ctx_slot” in the log."
        ),
        rank=COMMON,
        with_=(Near(r"n_ctx_slot = (?P<slot>\d+)", before=8, required=False),),
        when=_slot_is_smaller_than_asked,
        explains=("context_overflow",),
        passing=True,
    ),
    Rule(
        "config_not_applied",
        _TOO_LONG[:2],
        N_("A slot holds only %(slot)s tokens, which looks like a default"),
        N_(
            "No context size reached the server, or a wrapper passes its own. Set the context size in the "
            "profile and look for “--ctx-size” in the command line of the running server."
        ),
        larger_context,
        rank=COMMON,
        with_=(Near(_SMALL_DEFAULT, before=8),),
        when=_size_is_unknown,
        explains=("context_overflow",),
        passing=True,
    ),
    Rule(
        "context_full_no_shift",
        (
            r"error: context shift is disabled",
            r"context shift cannot be used for shared prompt",
            r"model configuration does not support K-shift",
        ),
        N_("A conversation filled the context, and old parts cannot be dropped"),
        N_(
            "Raise the context size, or begin a new conversation. “--context-shift” among the extra "
            "arguments drops the oldest part instead; not every model and cache type can do that."
        ),
        larger_context,
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "embedding_ubatch",
        (r"input \((?P<tokens>\d+) tokens\) is too large to process\. increase the physical batch size",),
        N_("An input for embeddings has %(tokens)s tokens, more than one micro-batch holds"),
        N_(
            "Embeddings and rankings need the whole input in one micro-batch: set batch size and micro-batch "
            "size to the longest input. A larger context changes nothing."
        ),
        _micro_batch,
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "embedding_ubatch",
        (
            r"input is too large to process\. increase the physical batch size",
            r"questions? and its options \(\d+ tokens\) are too large to process\. increase the batch",
        ),
        N_("An input for embeddings is longer than one micro-batch"),
        N_(
            "Embeddings and rankings need the whole input in one micro-batch: set batch size and micro-batch "
            "size to the longest input. A larger context changes nothing."
        ),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "template_role_order",
        (
            r"conversation roles must alternate",
            r"Jinja Exception.{0,200}[Ss]ystem (?:role|message) (?:not supported|must be)",
        ),
        N_("The model's chat template refuses the order of the messages"),
        N_(
            "The client sends two messages of the same role in a row, or a system message where the template "
            "allows none. Merge them in the client, or give the server a more tolerant template with "
            "“--chat-template-file” among the extra arguments."
        ),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "image_not_readable",
        (
            r"Failed to load image or audio file",
            r"failed to decode buffer as either image/audio",
            r"failed to decode (?:image|webp) b(?:ytes|uffer)",
            r"Failed to download image",
        ),
        N_("A picture or sound of a request could not be read"),
        N_(
            "It is damaged, of a kind that the server does not know, or its address could not be fetched. "
            "Send it as PNG or JPEG inside of the request (base64)."
        ),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "image_step_failed",
        (
            r"failed to process (?:image|mtmd chunk)\b",
            r"failed to decode mtmd chunk, idx = ",
            r": failed to encode image",
        ),
        N_("The server could not take a picture into the conversation"),
        N_(
            "Most often the context is too small for the picture's tokens, or memory ran out while it was "
            "encoded. Raise the context size, or limit the tokens per picture."
        ),
        larger_context,
        rank=COMMON,
        passing=True,
    ),
)
