"""Rules for CUDA builds: the toolkit must be there, and fit the GPU architectures."""

from __future__ import annotations

from collections.abc import Mapping

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import Found, Near, Rule
from controlpanel.llamacpp.rules_build_changes import (
    SPECIAL_ARCHITECTURES,
    common_architectures,
    last_toolkit,
    nvcc_path,
    older_architecture,
    without_dropped,
)

_FIRST_TOOLKIT = {
    "75": "10.0", "80": "11.0", "86": "11.1", "87": "11.4", "88": "13.0", "89": "11.8", "90": "11.8",
    "100": "12.8", "103": "12.9", "110": "13.0", "120": "12.8", "121": "12.9",
}  # fmt: skip
_KNOWN = f"(?P<arch>{'|'.join(_FIRST_TOOLKIT)})[af]?"
# 101 became 110 with CUDA 13.
_DROPPED = r"(?P<arch>[235]\d|6[012]|7[02]|101)[af]?"
_EFFECT = ("cmake_broken_compiler", "nvcc_not_found", "fork_source_bug")


def _toolkits(found: Found) -> Mapping[str, object]:
    last = last_toolkit(found["arch"])
    return {"first": _FIRST_TOOLKIT.get(found["arch"], ""), "last": f"{last[0]}.{last[1]}"}


_NVCC_TITLE = N_("nvcc, the CUDA compiler, was not found")
_NVCC_REMEDY = N_(
    "Install the full CUDA toolkit on the host (the driver and the runtime package are not enough), then "
    "choose its nvcc in the form, for example /usr/local/cuda/bin/nvcc. Or build for the CPU."
)
_TOOLKIT_ROOT = Near(
    r"Found CUDAToolkit: (?P<root>/\S+?)(?:/targets/[^/]+)?/include\b", 40, 0, required=False
)
_OLD_TITLE = N_("The CUDA toolkit is too old for GPU architecture %(arch)s")
_OLD_REMEDY = N_(
    "Architecture %(arch)s needs CUDA %(first)s or newer: install such a toolkit and choose its nvcc. As a "
    "stop-gap, build for an older architecture: newer cards then translate the code at their first start."
)
_EMPTY_REMEDY = N_(
    "Write the architectures of the cards into the form as numbers: 75 (RTX 20), 86 (RTX 30), 89 (RTX 40), "
    "90 (H100, H200), 120 (RTX 50). Without a GPU on this host “native” finds nothing."
)

CUDA_RULES = (
    Rule(
        "nvcc_not_found",
        (
            r"No CMAKE_CUDA_COMPILER could be found",
            r"Compiler: CMAKE_CUDA_COMPILER-NOTFOUND",
            r"Failed to find nvcc",
            r"^\s+Could not find `?nvcc",
            r"^\s+Could NOT find CUDA(?:Toolkit)? \(missing: ",
            r"\bnvcc: (?:command )?not found",
            r"^\s*CUDA Toolkit not found",
            r"CMAKE_CUDA_COMPILER not set, after EnableLanguage",
        ),
        _NVCC_TITLE,
        _NVCC_REMEDY,
        nvcc_path,
        with_=(_TOOLKIT_ROOT, Near(r"^CMake Error at ", 3, 0, required=False)),
        explains=("cmake_broken_compiler", "missing_package"),
    ),
    Rule(
        "nvcc_not_found",
        (r"is not a full path (?:and was not found|to an existing compiler)",),
        _NVCC_TITLE,
        N_("There is no nvcc at %(wrong)s. Correct the path in the form, or install that toolkit."),
        nvcc_path,
        with_=(Near(r"\bCMAKE_CUDA_COMPILER:", before=5), Near(r"^\s+(?P<wrong>[^\s:]+)\s*$", before=3)),
        explains=("cmake_broken_compiler",),
    ),
    Rule(
        "empty_cuda_arch",
        (
            r"Unsupported gpu architecture '(?:compute|sm)_'",
            r"Unsupported gpu architecture '(?:compute|sm)_[A-Z]",
            r"CMAKE_CUDA_ARCHITECTURES must be non-empty",
            r"CUDA_ARCHITECTURES is set to \"native\", but no GPU was detected",
            r"CUDA_ARCHITECTURES is empty for target",
        ),
        N_("No GPU architecture is known to build for"),
        _EMPTY_REMEDY,
        common_architectures,
        explains=("cmake_broken_compiler",),
    ),
    Rule(
        "bad_cuda_arch",
        (r"is not one of the following:",),
        N_("“%(arch)s” is no GPU architecture"),
        _EMPTY_REMEDY,
        common_architectures,
        with_=(Near(r"CUDA_ARCHITECTURES:", before=5), Near(r"^\s+(?P<arch>[^\s:]+)\s*$", before=3)),
        unless_near=(Near(r"^\s+" + SPECIAL_ARCHITECTURES + r"\s*$", before=3),),
    ),
    Rule(
        "toolkit_too_new_for_gpu",
        (
            r"Unsupported gpu architecture '(?:compute|sm)_" + _DROPPED + "'",
            r"Value '(?:compute|sm)_" + _DROPPED + r"' is not defined for option",
        ),
        N_("The CUDA toolkit is too new: it no longer builds for GPU architecture %(arch)s"),
        N_(
            "CUDA %(last)s is the last one for architecture %(arch)s (CUDA 13 dropped all cards before the "
            "RTX 20 series). Install that toolkit beside the other and choose its nvcc, or take this "
            "architecture out of the list."
        ),
        without_dropped,
        explains=_EFFECT,
        params=_toolkits,
    ),
    Rule(
        "toolkit_too_old_for_gpu",
        (
            r"Unsupported gpu architecture '(?:compute|sm)_" + _KNOWN + "'",
            r"Value '(?:compute|sm)_" + _KNOWN + r"' is not defined for option",
        ),
        _OLD_TITLE,
        _OLD_REMEDY,
        older_architecture,
        explains=_EFFECT,
        params=_toolkits,
    ),
    Rule(
        "toolkit_too_old_for_gpu",
        (
            r"Unsupported gpu architecture '(?:compute|sm)_(?P<arch>\d+)[af]?'",
            r"Value '(?:compute|sm)_(?P<arch>\d+)[af]?' is not defined for option",
        ),
        N_("The CUDA toolkit does not know GPU architecture %(arch)s"),
        N_(
            "Check the number: 86 is an RTX 30, 89 an RTX 40, 120 an RTX 50. If it is right, the card is "
            "newer than the toolkit: install the newest one and choose its nvcc."
        ),
        older_architecture,
        unless=("_(?:" + _DROPPED + "|" + _KNOWN.replace("<arch>", "<known>") + ")'",),
        explains=_EFFECT,
    ),
    Rule(
        "toolkit_too_old_for_gpu",
        (r"Value 'native' is not defined for option",),
        N_("The CUDA toolkit is too old to find the host's own GPU architecture"),
        _EMPTY_REMEDY,
        common_architectures,
        explains=("cmake_broken_compiler",),
    ),
    Rule(
        "source_needs_newer_gpu",
        (r"' requires \.target sm_(?P<needed>\d+)",),
        N_("The source needs GPU architecture %(needed)s or newer"),
        N_(
            "Take the older architectures out of the list. A card that is older cannot run this source with "
            "CUDA."
        ),
    ),
    Rule(
        "toolkit_too_old",
        (
            r"requires the language dialect \"CUDA\d\d\"",
            r"nvcc fatal +: Unknown option '-*(?:forward-unknown|extended-lambda|threads|diag-suppress)",
            r"identifier \"(?:cuda[A-Z]|CUBLAS_|CU_|CUDA_R_|CUmem|__nv_(?:fp|bf)|cublas)\w+\" is undefined",
            r"nvcc fatal +: Value 'c\+\+\d\d' is not defined for option 'std'",
            r"fatal error: '?(?:cuda_fp8|cuda_bf16)\.h'?(?::| file not found)",
        ),
        N_("The CUDA toolkit is too old for this source"),
        N_("Install a newer CUDA toolkit (12 or later) and choose its nvcc."),
        explains=("missing_header", "fork_source_bug"),
    ),
)
