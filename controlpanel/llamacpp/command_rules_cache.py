"""Rules about the KV cache: its types, its slots, and what is kept of it in the host's memory."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.command_rules_case import Case, Rule
from controlpanel.llamacpp.problems import Problem, error, warning

_MIB = 1024 * 1024
_SMALL_SLOT = 4096
# From this number of heads per KV head on, the fork replaces keys of a turbo type.
_MANY_HEADS = 6
_CACHE_RAM = "--cache-ram"
_CHECKPOINTS = "--ctx-checkpoints"


def _flash_attention_for_quantised_v(case: Case) -> Problem | None:
    """Left alone or on auto, flash attention is turned on where it is needed."""
    if case.settings.get("flash_attn") != "off" or not case.quantised("cache_type_v"):
        return None
    text = N_(
        "The quantised V cache type %(kind)s needs flash attention: set Flash attention to on or auto, "
        "or KV cache type V to f16."
    )
    return error("cache_type_v", text, kind=case.settings["cache_type_v"])


def _turbo_keys_are_replaced(case: Case) -> Problem | None:
    kind = case.settings.get("cache_type_k")
    if not case.caps.turboquant or not isinstance(kind, str) or not kind.startswith("turbo"):
        return None
    gqa = case.model.gqa if case.model else None
    if kind != case.settings.get("cache_type_v") or gqa is None or gqa < _MANY_HEADS:
        return None
    if case.environment.get("TURBO_AUTO_ASYMMETRIC") == "0":
        return None
    text = N_(
        "This model has %(gqa)s heads per KV head, so this build keeps keys as q8_0 and only values as "
        "%(kind)s. Set KV cache type K to q8_0 to say what runs, or add the variable "
        "TURBO_AUTO_ASYMMETRIC=0 for keys of %(kind)s."
    )
    if kind == "turbo2" and case.environment.get("TURBO_LAYER_ADAPTIVE") != "0":
        text = N_(
            "This model has %(gqa)s heads per KV head, so this build keeps keys as q8_0 and only values as "
            "%(kind)s, those of the first two and last two layers as q8_0 too. Set KV cache type K to q8_0 "
            "to say what runs, or add the variables TURBO_AUTO_ASYMMETRIC=0 for keys of %(kind)s and "
            "TURBO_LAYER_ADAPTIVE=0 for %(kind)s in all layers."
        )
    return warning("cache_type_k", text, gqa=gqa, kind=kind)


def _small_slots(case: Case) -> Problem | None:
    size, per_slot = case.number("ctx_size") or case.native, case.per_slot
    if size is None or per_slot is None or per_slot == size or per_slot >= _SMALL_SLOT:
        return None
    text = N_(
        "The slots share the context: each of the %(slots)s gets %(size)s tokens, little for a "
        "conversation. Raise Context size, lower Slots, or set One KV cache for all slots to on."
    )
    return warning("parallel", text, slots=case.slots, size=per_slot)


def _prompt_cache_within_memory(case: Case) -> Problem | None:
    memory, cache = case.host.memory_mib, _cache_ram(case)
    if memory is None or cache is None or 0 <= cache <= memory // 2:
        return None
    if cache < 0:
        text = N_(
            "Without a limit the cache of earlier prompts can fill the host's memory of %(memory)s MiB: give "
            "a number of MiB."
        )
        return warning("cache_ram", text, memory=memory)
    text = N_(
        "The cache of earlier prompts may take %(cache)s MiB, more than half of the host's memory of "
        "%(memory)s MiB: set a lower number, or 0 to turn it off."
    )
    return warning("cache_ram", text, cache=cache, memory=memory)


def _checkpoints_within_memory(case: Case) -> Problem | None:
    """Each checkpoint of a model with recurrent states is a copy of one conversation's states."""
    memory, state = case.host.memory_mib, case.model.state_size if case.model else None
    count = case.number("ctx_checkpoints")
    count = case.default(_CHECKPOINTS) if count is None else count
    if memory is None or not state or not count or not case.caps.has(_CHECKPOINTS):
        return None
    size = count * case.slots * state // _MIB
    if size <= memory // 2:
        return None
    text = N_(
        "%(count)s checkpoints for each of %(slots)s slots take up to %(size)s MiB, more than half of the "
        "host's memory of %(memory)s MiB: set fewer checkpoints or slots."
    )
    return warning("ctx_checkpoints", text, count=count, slots=case.slots, size=size, memory=memory)


def _cache_ram(case: Case) -> int | None:
    cache = case.number("cache_ram")
    return case.default(_CACHE_RAM) if cache is None else cache


RULES: tuple[Rule, ...] = (
    _flash_attention_for_quantised_v,
    _turbo_keys_are_replaced,
    _small_slots,
    _prompt_cache_within_memory,
    _checkpoints_within_memory,
)
