"""Rules for the host's memory: the kernel's OOM killer, limits of groups, swapping, defects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, SPECIFIC, Change, Found, Near, Rule
from controlpanel.llamacpp.rules_runtime_facts import Facts, number, smaller_context

_PROCESS = r"(?P<pid>\d+) \((?P<program>[^)]{1,64})\)"
_KILLED = r"(?<!group )Out of memory: Killed process " + _PROCESS
_KILLED_OLD = r"(?<!group )Out of memory: Kill process " + _PROCESS
_GROUP = r"Memory cgroup out of memory: Kill(?:ed)? process " + _PROCESS
_SCORE = Near(r"oom_score_adj[:=]\s?(?P<score>-?\d+)", 0, 3, required=False)
_ASKED = Near(r"invoked oom-killer: ", 60, 0, required=False)


def _smaller_caches(found: Found) -> Iterable[Change]:
    """Halve a prompt cache that is set, else turn it off."""
    size = number(found.facts, "cache_ram")
    if size != 0:
        yield Change("cache_ram", size // 2 if size is not None and size > 0 else 0)


def _no_prompt_cache(found: Found) -> Iterable[Change]:
    yield Change("cache_ram", 0)


def _passed_its_limit(facts: Facts) -> bool:
    return facts.get("over_memory_limit_mib") is not None


def _limit(found: Found) -> Mapping[str, object]:
    """Return the MiB taken and allowed, with thousands apart; "?" for what is not known."""
    sizes = {name: found.facts.get(f"over_memory_{name}_mib") for name in ("used", "limit")}
    return {name: f"{size:,}" if isinstance(size, int) else "?" for name, size in sizes.items()}


def _less_main_memory(found: Found) -> Iterable[Change]:
    yield from _smaller_caches(found)
    yield from smaller_context(found)


MEMORY_RULES = (
    Rule(
        "memory_limit",
        (),
        N_("It took %(used)s MiB of main memory, and its limit is %(limit)s MiB"),
        N_(
            "Make the prompt cache or the context smaller, choose smaller types for a KV cache in main "
            "memory, use fewer slots, or raise the memory limit in the profile. Weights that are mapped from "
            "the file do not count."
        ),
        _less_main_memory,
        # The panel knows it, whatever the log shows.
        rank=SPECIFIC + 1,
        when=_passed_its_limit,
        params=_limit,
        explains=("killed", "group_memory_limit", "host_oom", "host_oom_other", "host_oom_prompt_cache"),
        passing=True,
    ),
    Rule(
        "host_oom_prompt_cache",
        (_KILLED, _KILLED_OLD),
        N_("The host's memory ran out while the server saved a prompt, and the kernel killed it"),
        N_(
            "The prompt cache keeps whole conversations in RAM, and one state may exceed its limit. Set the "
            "prompt cache to 0 or a small size, use fewer context checkpoints, or add memory."
        ),
        _no_prompt_cache,
        with_=(
            Near(r"saving prompt with length (?P<tokens>\d+), total state size", before=60),
            Near(r"oom-kill:", before=4, required=False),
        ),
        explains=("host_oom", "host_oom_other"),
        passing=True,
    ),
    Rule(
        "host_oom",
        (_KILLED, _KILLED_OLD),
        N_("The host's memory ran out, and the kernel killed %(program)s"),
        N_(
            "Weights on the CPU, the prompt cache and checkpoints take RAM. Make the prompt cache smaller, "
            "put more layers on the GPU, choose a smaller model, or end other programs."
        ),
        _smaller_caches,
        with_=(_SCORE, _ASKED),
        unless=(r"Kill(?:ed)? process \d+ \((?!llama)",),
        passing=True,
    ),
    Rule(
        "host_oom_other",
        (_KILLED, _KILLED_OLD),
        N_("The host's memory ran out, and the kernel killed another program: %(program)s"),
        N_(
            "The host has too little memory for all that runs on it. The kernel kills what it thinks is "
            "worth least, next time perhaps a server. Use smaller caches or models, or add memory."
        ),
        with_=(_SCORE, _ASKED),
        unless=(r"Kill(?:ed)? process \d+ \(llama",),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "host_oom",
        (
            r"oom-kill:.{0,400}\btask=(?P<program>llama-[\w-]+)",
            r"systemd-oomd\b.{0,40}Killed .{0,200} due to memory",
            r"earlyoom\b.{0,40}sending SIG\w+ to process \d+ .{0,40}\"(?P<program>llama-[\w-]+)\"",
        ),
        N_("The host's memory ran out, and a server was killed"),
        N_(
            "Weights on the CPU, the prompt cache and checkpoints take RAM. Make the prompt cache smaller, "
            "put more layers on the GPU, choose a smaller model, or end other programs."
        ),
        _smaller_caches,
        unless=(r"CONSTRAINT_MEMCG",),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "group_memory_limit",
        (
            _GROUP,
            r"oom-kill:constraint=CONSTRAINT_MEMCG",
            r"A process of this unit has been killed by the OOM killer",
            r"Failed with result 'oom-kill'",
        ),
        N_("The memory limit of the service or container was reached, and the kernel killed it"),
        N_(
            "The host may have memory left: the limit (MemoryMax of the systemd unit, “--memory” of the "
            "container) is too low for model, caches and page cache. Raise it, or make the prompt cache "
            "smaller."
        ),
        _smaller_caches,
        with_=(_SCORE,),
        explains=("host_oom", "host_oom_other"),
        passing=True,
    ),
    Rule(
        "mmap_thrash",
        (
            r"kswapd\d+\s+\d{2,3}(?:\.\d+)?\s?% ?CPU",
            r"\s(?:[5-9]\d|1\d\d)[.,]\d\s+\d+[.,]\d\s+\S+\s+kswapd\d",
        ),
        N_("The model does not fit into RAM: its weights are read from the disk again and again"),
        N_(
            "Choose a smaller model or quantisation, or put more layers on the GPU. “mlock” helps only where "
            "everything fits; swap makes it worse."
        ),
        with_=(Near(r"_Mapped model buffer size =", before=100, required=False),),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "memory_fragmented",
        (r"llama-\S+: page allocation failure: order:\d+",),
        N_("The kernel found no memory in one piece for the server"),
        N_("Memory is nearly full or in small pieces. Free some, or restart the host."),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "memory_defect",
        (
            r"\[Hardware Error\]: .{0,60}Uncorrected",
            r"EDAC MC\d+: \d+ UE\b",
            r"Memory failure: 0x[\da-f]+: .{0,40}(?:recovery action|Killing)",
        ),
        N_("The host's memory (RAM) has a defect"),
        N_(
            "Run a memory test, turn off overclocking (XMP, EXPO) and replace the module. Models that were "
            "loaded meanwhile may be damaged in memory."
        ),
        passing=True,
    ),
)
