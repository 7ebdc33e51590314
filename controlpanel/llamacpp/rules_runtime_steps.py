"""Rules for steps of a model that failed while a server served: the KV cache, batches, sleep."""

from __future__ import annotations

from collections.abc import Iterable

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Change, Found, Near, Rule
from controlpanel.llamacpp.rules_runtime_facts import SERVING, larger_context, number, one_slot

_FULL = (
    r"failed to find free space in the KV cache, retrying with smaller .{0,80}n_batch = 1\b",
    r"Context size has been exceeded\.",
    r"failed to decode the batch: KV cache is full",
    r"Input prompt is too big compared to KV size",
)


def _room_for_all(found: Found) -> Iterable[Change]:
    yield from larger_context(found)
    count = number(found.facts, "parallel")
    if count is not None and count > 1:
        yield Change("parallel", count // 2)


STEP_RULES = (
    Rule(
        "kv_cache_full",
        _FULL,
        N_("The KV cache is full: the conversations together need more than the context"),
        N_(
            "Slots share one KV cache, so several long conversations fill it at once, and all of them lose "
            "their request. Raise the context size, or use fewer slots."
        ),
        _room_for_all,
        with_=(
            Near(r"failed to find a memory slot for batch of size", before=12, required=False),
            Near(r"failed to prepare attention \w*\s?ubatches", before=12, required=False),
        ),
        explains=("step_failed",),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "kv_position_bug",
        (
            r"in the input batch have inconsistent sequence positions",
            r"it is required that the sequence positions remain consecutive",
            r"error: Invalid input batch\.",
        ),
        N_("The server lost count of positions in its KV cache (a fault of this build)"),
        N_(
            "Neither the request nor the profile is wrong. Use a newer build, or the one before. Until then "
            "one slot without prompt cache and without reuse of caches often works."
        ),
        lambda found: [*one_slot(found), Change("cache_ram", 0)],
        explains=("step_failed",),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "compute_memory_short",
        (
            r"failed to allocate compute graph\b",
            r"failed to allocate output buffer of size",
            r"(?:graph_compute|process_ubatch|decode): failed to allocate (?:graph|compute buffers)",
            r"failed to allocate memory for prompt cache state",
        ),
        N_("Memory ran out while the server worked on a request"),
        N_(
            "Lower the micro-batch size or the context size, and leave 1 GiB of each card free. If it is the "
            "prompt cache that needs the memory, lower its size."
        ),
        lambda found: [Change("ubatch", 256)],
        with_=(Near(SERVING, before=60),),
        explains=("step_failed",),
        passing=True,
    ),
    Rule(
        "reload_failed",
        (r"failed to reload model after sleeping",),
        N_("The server could not load its model again after it had slept"),
        N_(
            "Another program probably took the memory meanwhile, or the model's file is gone. Free the "
            "memory, or turn off sleeping for this profile."
        ),
        lambda found: [Change("sleep_idle", None)],
        passing=True,
    ),
    Rule(
        "step_failed",
        (
            r"\b(?:pre_|post_)?decode\(\) failed: (?P<reason>.+)",
            r"error: Compute error\.",
            r"llama_decode: failed to decode, ret = -\d",
            r"failed to compute graph, compute status: -?\d",
            r"failed to process speculative batch",
        ),
        N_("The model could not compute a step"),
        N_(
            "The lines above may say why. If this comes back, try the profile without speculation and with "
            "one slot, then a newer build: most often it is a fault of the build."
        ),
        rank=COMMON,
        unless=(r"Context size has been exceeded|Invalid input batch",),
        passing=True,
    ),
)
