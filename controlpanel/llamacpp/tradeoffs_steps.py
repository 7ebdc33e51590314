"""Settings that take less memory step by step, the mildest step first, and what each step costs a user.

Nothing is judged here: a step may free nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.memory_cache import PLAIN_TYPES
from controlpanel.llamacpp.tradeoffs_trial import Trial
from controlpanel.llamacpp.tradeoffs_types import Loss, Part

_HARDLY = N_("Quality: hardly measurable.")
_A_LITTLE = N_("Quality: a little less exact over long texts.")
_PLAINLY = N_("Quality: plainly less exact over long texts; check it with your own questions.")
# Pairs for which every CUDA build has its fast kernels; those of q4_1, q5_0 and q5_1 must be asked for.
_CACHES = (
    ("q8_0", "q8_0", _HARDLY),
    ("q8_0", "turbo4", _HARDLY),
    ("q8_0", "turbo3", _A_LITTLE),
    ("q4_0", "q4_0", _PLAINLY),
    ("turbo3", "turbo3", _PLAINLY),
)
_DRAFT_TEXT = N_("Draft tokens: %(new)s instead of %(old)s")
_MANY_DRAFTS, _USUAL_DRAFTS = 4, 3
_DRAFTS = (2, 1)
_UBATCHES = (512, 256, 128)


def flash_steps(trial: Trial) -> list[Part]:
    """Return flash attention, where it is off."""
    if trial.used.flash_attn:
        return []
    label = Message(N_("Flash attention on"))
    cost = Message(N_("Nothing on cards that have it; on others the server says so when it starts."))
    return [Part("flash_attn", {"flash_attn": "on"}, Loss.NONE, label, cost)]


def cache_steps(trial: Trial) -> list[Part]:
    """Return types of the KV cache, with flash attention where they need it."""
    used, steps = trial.used, []
    for type_k, type_v, cost in _CACHES:
        changes = _changed(trial, {"cache_type_k": type_k, "cache_type_v": type_v})
        if not used.flash_attn and type_v not in PLAIN_TYPES:
            changes["flash_attn"] = "on"
        label = _instead(N_("KV cache %(new)s instead of %(old)s"), _pair(type_k, type_v), _now(trial))
        steps.append(Part("cache_types", changes, Loss.QUALITY, label, Message(cost)))
    return steps


def draft_type_steps(trial: Trial) -> list[Part]:
    """Return types of the cache of the drafting layers."""
    used = trial.used
    if not used.mtp:
        return []
    changes = _changed(trial, {"draft_type_k": "q8_0", "draft_type_v": "q8_0"})
    if not used.flash_attn:
        changes["flash_attn"] = "on"
    old = _pair(used.draft_type_k, used.draft_type_v)
    label = _instead(N_("Draft KV cache %(new)s instead of %(old)s"), "q8_0", old)
    cost = Message(N_("Speed: a few drafts more may be rejected; answers stay the same."))
    return [Part("draft_types", changes, Loss.SPEED, label, cost)]


def long_draft_steps(trial: Trial) -> list[Part]:
    """Return drafts of the usual length, where they are longer than anybody needs."""
    now = trial.used.draft_max
    if not trial.used.mtp or now <= _MANY_DRAFTS:
        return []
    cost = Message(N_("Nothing as a rule: longer drafts are rarely right to their end."))
    label = _instead(_DRAFT_TEXT, _USUAL_DRAFTS, now)
    return [Part("draft_max", {"draft_max": _USUAL_DRAFTS}, Loss.NONE, label, cost)]


def draft_steps(trial: Trial, least: int = 1) -> list[Part]:
    """Return drafts shorter than usual, of at least some tokens."""
    now = trial.used.draft_max
    cost = Message(N_("Speed: fewer tokens per step; answers stay the same."))
    return [
        Part("draft_max", {"draft_max": count}, Loss.SPEED, _instead(_DRAFT_TEXT, count, now), cost)
        for count in (_DRAFTS if trial.used.mtp else ())
        if least <= count < now
    ]


def ubatch_steps(trial: Trial, least: int = 1) -> list[Part]:
    """Return smaller micro-batches of at least some tokens."""
    now = trial.used.ubatch
    cost = Message(N_("Speed: long prompts are read more slowly; answers come as fast as before."))
    text = N_("Micro-batch %(new)s instead of %(old)s")
    return [
        Part("ubatch", {"ubatch": size}, Loss.SPEED, _instead(text, size, now), cost)
        for size in _UBATCHES
        if least <= size < now
    ]


def projector_steps(trial: Trial) -> list[Part]:
    """Return the vision projector in main memory."""
    if trial.mmproj is None or not trial.used.mmproj_offload:
        return []
    label = Message(N_("Vision projector in main memory"))
    cost = Message(N_("Speed: pictures are read much more slowly; text is as fast as before."))
    return [Part("projector", {"mmproj_offload": "off"}, Loss.SPEED, label, cost)]


def unified_steps(trial: Trial) -> list[Part]:
    """Return one cache for all slots, where each has its own."""
    if trial.used.streams == 1:
        return []
    label = Message(N_("One KV cache for all slots"))
    cost = Message(N_("Speed: a little less with several conversations; a long one takes the others' room."))
    return [Part("unified", {"kv_unified": "on"}, Loss.SPEED, label, cost)]


def slot_steps(trial: Trial) -> list[Part]:
    """Return fewer slots; they go on sharing one cache if they did."""
    used, steps = trial.used, []
    cost = Message(N_("Fewer conversations at the same time: the others wait."))
    count = used.slots // 2
    while count:
        changes: dict[str, object] = {"parallel": count}
        if used.streams == 1 and count > 1:
            changes |= _changed(trial, {"kv_unified": "on"})
        label = _instead(N_("Slots: %(new)s instead of %(old)s"), count, used.slots)
        steps.append(Part("slots", changes, Loss.ABILITY, label, cost))
        count //= 2
    return steps


def speculation_steps(trial: Trial) -> list[Part]:
    """Return the server without MTP; what is set for drafts goes with it."""
    if not trial.used.mtp:
        return []
    keys = ("speculation", "draft_max", "draft_min", "draft_p_min", "draft_type_k", "draft_type_v")
    changes = {key: None for key in keys if trial.settings.get(key) is not None}
    label = Message(N_("No speculation (MTP)"))
    cost = Message(N_("Speed: answers come more slowly without drafts, but stay the same."))
    return [Part("speculation", changes, Loss.ABILITY, label, cost)]


def expert_part(layers: int) -> Part:
    """Return the experts of the first layers in main memory."""
    label = Message(N_("Experts of the first %(new)s layers in main memory"), {"new": layers})
    cost = Message(N_("Speed: answers come more slowly, the more so the more layers."))
    return Part("experts", {"n_cpu_moe": layers}, Loss.SLOW, label, cost)


def all_experts() -> Part:
    """Return the experts of all layers in main memory."""
    label = Message(N_("All experts in main memory"))
    cost = Message(N_("Speed: answers come much more slowly."))
    return Part("experts", {"cpu_moe": "on"}, Loss.SLOW, label, cost)


def layer_part(trial: Trial, layers: int) -> Part:
    """Return fewer layers on the cards."""
    old: object = trial.used.gpu_layers
    text = N_("GPU layers: %(new)s instead of %(old)s")
    label = _instead(text, layers, Message(N_("all")) if old is None else old)
    cost = Message(N_("Speed: much slower, as the processor computes the other layers."))
    return Part("gpu_layers", {"gpu_layers": layers}, Loss.LAST, label, cost)


def context_part(trial: Trial, tokens: int, now: int) -> Part:
    """Return another context size, in tokens for all slots together."""
    label = _instead(N_("Context size %(new)s instead of %(old)s"), f"{tokens:,}", f"{now:,}")
    params: dict[str, object] = {"count": f"{abs(tokens - now):,}"}
    if tokens > now:
        cost = Message(N_("Nothing but memory: %(count)s more tokens for all slots together."), params)
        return Part("context_up", {"ctx_size": tokens}, Loss.NONE, label, cost)
    cost = Message(N_("Length: %(count)s fewer tokens for all slots together."), params)
    return Part("context", {"ctx_size": tokens}, Loss.ABILITY, label, cost)


def _changed(trial: Trial, values: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if trial.settings.get(key) != value}


def _instead(text: str, new: object, old: object) -> Message:
    return Message(text, {"new": new, "old": old})


def _now(trial: Trial) -> str:
    return _pair(trial.used.type_k, trial.used.type_v)


def _pair(type_k: str, type_v: str) -> str:
    return type_k if type_k == type_v else f"{type_k}/{type_v}"
