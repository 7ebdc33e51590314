"""Rules for memory that a server does not get while it starts: weights, KV cache, computation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Change, Found, Near, Rule
from controlpanel.llamacpp.rules_build_changes import put
from controlpanel.llamacpp.rules_runtime_facts import SMALLER, number, setting

_DEFAULT_UBATCH = 512
_LEAST_UBATCH = 64
_REQUEST = r"allocating (?P<size>[\d.]{1,20}) MiB on device (?P<device>\d{1,3}): cudaMalloc failed"
# The request that failed stands right above the line that says what it was for.
_ON_DEVICE = Near(_REQUEST, before=3)
_RETRIES = Near(r"retrying without pipeline parallelism", after=4)
_EFFECTS = ("oom_gpu", "oom_host", "model_not_loaded")


def fewer_layers(found: Found) -> Iterable[Change]:
    """Let the build choose what goes onto the GPUs, where the profile says it."""
    known = isinstance(found.facts.get("settings"), Mapping)
    for field, value in (("gpu_layers", "auto"), ("tensor_split", None)):
        if not known or setting(found.facts, field) not in (None, value):
            yield Change(field, value)


def less_work(found: Found) -> Iterable[Change]:
    """Turn flash attention on; where it is, halve the micro-batch; else take a smaller context."""
    if setting(found.facts, "flash_attn") == "off":
        return [Change("flash_attn", "on")]
    half = (number(found.facts, "ubatch") or _DEFAULT_UBATCH) // 2
    return [Change("ubatch", half)] if half >= _LEAST_UBATCH else [Change("ctx_size", SMALLER)]


_WEIGHTS_REMEDY = N_(
    "Put fewer layers on the GPU (field “GPU layers”, or auto), shift “Tensor split” towards the GPU with "
    "more room, keep experts of a mixture model on the CPU, choose a smaller quantisation, or end other "
    "programs that use the GPU."
)
_KV_REMEDY = N_(
    "Choose a smaller context, fewer slots, or a smaller type for the KV cache (q8_0 with flash attention "
    "on). The page computes the largest context that fits."
)
_COMPUTE_REMEDY = N_(
    "Turn flash attention on, lower “Micro-batch size” (256), or choose a smaller context. Leave 1 to 2 "
    "GiB of each GPU free."
)
_WEIGHTS = (r"unable to allocate (?P<buffer>(?!CPU|CUDA_Host)\w{1,40}) buffer",)
_KV = (
    r"failed to allocate buffer for (?:kv|rs) cache",
    r"llama_kv_cache_init\(\) failed for self-attention cache",
)
_COMPUTE = (
    r"failed to initialize the context: failed to allocate compute",
    r"ggml_gallocr_reserve_n\w{0,20}: failed to allocate (?P<buffer>\w{1,40}) buffer of size",
    r"failed to allocate compute buffers",
)

MEMORY_RULES = (
    Rule(
        "oom_model_buffer",
        _WEIGHTS,
        N_("The model's weights do not fit into the memory of GPU %(device)s (%(size)s MiB asked)"),
        _WEIGHTS_REMEDY,
        fewer_layers,
        with_=(_ON_DEVICE,),
        explains=_EFFECTS,
    ),
    Rule(
        "oom_model_buffer",
        _WEIGHTS,
        N_("The model's weights do not fit into GPU memory (%(buffer)s)"),
        _WEIGHTS_REMEDY,
        fewer_layers,
        explains=_EFFECTS,
    ),
    Rule(
        "oom_kv_cache",
        _KV,
        N_("The KV cache does not fit into the memory of GPU %(device)s (%(size)s MiB asked)"),
        _KV_REMEDY,
        put("ctx_size", SMALLER),
        with_=(_ON_DEVICE,),
        explains=(*_EFFECTS, "mtp_context_failed"),
    ),
    Rule(
        "oom_kv_cache",
        _KV,
        N_("The KV cache does not fit into memory"),
        _KV_REMEDY,
        put("ctx_size", SMALLER),
        explains=(*_EFFECTS, "mtp_context_failed"),
    ),
    Rule(
        "oom_compute_buffer",
        _COMPUTE,
        N_("The work buffers do not fit into the memory of GPU %(device)s (%(size)s MiB asked)"),
        _COMPUTE_REMEDY,
        less_work,
        with_=(_ON_DEVICE,),
        unless_near=(_RETRIES,),
        explains=(*_EFFECTS, "mtp_context_failed"),
    ),
    Rule(
        "oom_compute_buffer",
        _COMPUTE,
        N_("The work buffers do not fit into memory"),
        _COMPUTE_REMEDY,
        less_work,
        unless_near=(_RETRIES,),
        explains=(*_EFFECTS, "mtp_context_failed"),
    ),
    Rule(
        "oom_compute_buffer_mla",
        (_REQUEST,),
        N_("The work buffers of the attention do not fit into GPU %(device)s (%(size)s MiB asked)"),
        N_(
            "With ik_llama.cpp and this kind of model (MLA) they grow with the context. Add “-amb 256” to "
            "the extra arguments, or lower “Micro-batch size” or the context."
        ),
        less_work,
        with_=(Near(r"llama_init_from_model: +\w+ compute buffer size", before=4),),
        explains=("oom_gpu", "oom_compute_buffer"),
    ),
    Rule(
        "oom_gpu",
        (_REQUEST,),
        N_("GPU %(device)s has too little free memory (%(size)s MiB asked)"),
        N_(
            "End other programs that use the GPU, choose a smaller context or a smaller type for the KV "
            "cache, or put fewer layers on the GPU."
        ),
        put("ctx_size", SMALLER),
        rank=COMMON,
        unless_near=(_RETRIES,),
    ),
    Rule(
        "oom_gpu",
        (
            r"CUDA error: out of memory",
            r"cudaMalloc failed: out of memory",
            r"ErrorOutOfDeviceMemory",
            r"ggml_vulkan: Device memory allocation of size \d+ failed",
        ),
        N_("The GPU has too little free memory"),
        N_(
            "End other programs that use the GPU, choose a smaller context or a smaller type for the KV "
            "cache, or put fewer layers on the GPU."
        ),
        put("ctx_size", SMALLER),
        rank=COMMON,
        unless=(r"pinned memory",),
        unless_near=(_RETRIES,),
    ),
    Rule(
        "oom_host",
        (
            r"ggml_aligned_malloc: insufficient memory \(attempted to allocate (?P<size>[\d.]+) MB\)",
            r"instance of 'std::bad_alloc'",
            r"unable to allocate (?:CPU\w{0,20}|CUDA_Host) buffer",
        ),
        N_("The host has too little main memory for this server, or a limit forbids it"),
        N_(
            "Free main memory, or raise the limit of the service or container (MemoryMax, ulimit -v). A "
            "smaller model, a smaller context, or more layers on the GPU need less of it; the load mode "
            "mmap keeps the weights out of the limit."
        ),
        rank=COMMON,
        explains=("aborted", "model_not_loaded"),
    ),
)
