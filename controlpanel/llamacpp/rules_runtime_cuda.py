"""Rules for CUDA errors of a server that has loaded its model: memory, faults of kernels."""

from __future__ import annotations

from collections.abc import Iterable

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Change, Found, Near, Rule
from controlpanel.llamacpp.rules_runtime_facts import SERVING, SMALLER, number, setting, smaller_context

_MEMORY = (
    r"CUDA error: out of memory",
    r"cudaMalloc failed: out of memory",
    r"CUBLAS_STATUS_ALLOC_FAILED",
)
_PLACE = Near(r"current device: (?P<device>\d+), in function (?P<function>\w+)", after=3, required=False)
_ANSWERED = Near(r"(?:print_timing|eval time =)", before=120)
_PICTURE = Near(r"(?:processing image|encoding image|image slice encoded|mtmd_)", before=30)
_EFFECT = ("cuda_error", "step_failed", "assertion_failed", "crashed")
_OTHERS = (
    "out of memory|an illegal memory access|misaligned address|unspecified launch failure|"
    "an illegal instruction|device-side assert|no kernel image|the launch timed out|"
    "uncorrectable ECC|driver shutting down|CUDA-capable device|provided PTX|"
    "CUDA driver version|unsupported display driver|GPU is lost|invalid device ordinal"
)


def _less_memory(found: Found) -> Iterable[Change]:
    ubatch = number(found.facts, "ubatch")
    yield Change("ubatch", max(64, ubatch // 2) if ubatch else 256)
    yield from smaller_context(found)


def _whole_layers(found: Found) -> Iterable[Change]:
    """Split by layers where the profile splits in another way."""
    if setting(found.facts, "split_mode") in ("row", "tensor"):
        yield Change("split_mode", "layer")


_SERVING = Near(SERVING, before=120)
_MEMORY_REMEDY = N_(
    "Loading left almost no memory, and work on a request needs some on top. Keep 1 to 2 GiB of each card "
    "free: lower the context size or the micro-batch size, move layers or the draft model to another card, "
    "and leave the warm-up on, so that it shows at the start."
)
_FAULT_REMEDY = N_(
    "Almost always a fault of this build that needs certain settings. Use a newer build, or the one before; "
    "if it comes back, turn off what is special about the profile (split by rows or tensors, speculation, "
    "quantised KV cache), one at a time. If it happens with every build, test the card."
)

CUDA_ERROR_RULES = (
    Rule(
        "oom_vision_encoder",
        _MEMORY,
        N_("The GPU ran out of memory while a picture was encoded"),
        N_(
            "A picture needs memory on top of what the model takes. Limit the tokens per picture, keep the "
            "projector off the GPU, or lower the context size."
        ),
        lambda found: [Change("mmproj_offload", "off"), Change("ctx_size", SMALLER)],
        with_=(_PICTURE, _PLACE),
        explains=(*_EFFECT, "oom_first_request", "oom_while_serving"),
        when=lambda facts: facts.get("mmproj") is not False,
        passing=True,
    ),
    Rule(
        "oom_first_request",
        _MEMORY,
        N_("The GPU ran out of memory at the first request"),
        _MEMORY_REMEDY,
        _less_memory,
        with_=(_SERVING, _PLACE),
        unless_near=(_ANSWERED,),
        explains=_EFFECT,
        passing=True,
    ),
    Rule(
        "oom_while_serving",
        _MEMORY,
        N_("The GPU ran out of memory while the server worked"),
        N_(
            "A longer prompt than before needed more memory for work, or another program took some. Lower "
            "the micro-batch size or the context size, so that 1 to 2 GiB of each card stay free."
        ),
        _less_memory,
        with_=(_ANSWERED, _PLACE),
        explains=(*_EFFECT, "oom_first_request"),
        passing=True,
    ),
    Rule(
        "illegal_memory_access",
        (r"CUDA error: an illegal memory access was encountered",),
        N_("A GPU kernel read or wrote outside of its memory"),
        _FAULT_REMEDY,
        _whole_layers,
        with_=(_PLACE,),
        explains=_EFFECT,
        passing=True,
    ),
    Rule(
        "misaligned_address",
        (r"CUDA error: misaligned address",),
        N_("A GPU kernel used an address that it must not use (misaligned)"),
        _FAULT_REMEDY,
        _whole_layers,
        with_=(_PLACE,),
        explains=_EFFECT,
        passing=True,
    ),
    Rule(
        "kernel_launch_failed",
        (
            r"CUDA error: unspecified launch failure",
            r"CUDA error: an illegal instruction was encountered",
            r"CUDA error: device-side assert triggered",
            r"CUDA error: invalid (?:argument|configuration argument|resource handle)",
            r"CUDA error: too many resources requested for launch",
        ),
        N_("A GPU kernel failed while the server worked"),
        _FAULT_REMEDY,
        _whole_layers,
        with_=(_PLACE,),
        explains=_EFFECT,
        passing=True,
    ),
    Rule(
        "cublas_failed",
        (
            r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|NOT_SUPPORTED|ARCH_MISMATCH|INVALID_VALUE)",
            r"CUDA error: the requested functionality is not supported",
        ),
        N_("cuBLAS, the GPU's library for matrices, failed"),
        N_(
            "It often follows from memory that is almost full, or from a cuBLAS that does not belong to the "
            "build's CUDA. Leave 1 GiB of each card free; keep other CUDA versions out of LD_LIBRARY_PATH."
        ),
        with_=(_PLACE,),
        explains=_EFFECT,
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "nccl_failed",
        (r"NCCL error: (?P<reason>.+)", r"\bncclInternalError\b", r"\bncclUnhandledCudaError\b"),
        N_("The cards could not exchange data (NCCL)"),
        N_(
            "Split by layers instead of by tensors, or build without NCCL. In a container, give it more "
            "shared memory (--shm-size=1g)."
        ),
        lambda found: [Change("split_mode", "layer")],
        explains=_EFFECT,
        passing=True,
    ),
    Rule(
        "cuda_error",
        (r"CUDA error: (?P<error>[A-Za-z].{3,150})",),
        N_("CUDA reported: %(error)s"),
        N_(
            "The panel does not know more about this error. Look at the kernel's messages of the same minute "
            "(“dmesg”), and try a newer build or driver."
        ),
        with_=(_SERVING, _PLACE),
        rank=GENERIC,
        unless=(f"CUDA error: (?:{_OTHERS})",),
        explains=("crashed", "assertion_failed"),
        passing=True,
    ),
)
