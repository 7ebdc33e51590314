"""Names of CMake options of llama.cpp and its forks: offered, old, absent, and those that the panel sets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from controlpanel.lib.text import N_

# What operators may set, with what it does
KNOWN: Mapping[str, str] = MappingProxyType(
    {
        "GGML_CUDA_FORCE_MMQ": N_("Use integer kernels instead of cuBLAS: less memory."),
        "GGML_CUDA_FORCE_CUBLAS": N_("Always use cuBLAS: faster prompts on some cards, more memory."),
        "GGML_CUDA_FA": N_("Compile the flash attention kernels of CUDA (normally on)."),
        "GGML_CUDA_GRAPHS": N_("Use CUDA graphs (normally on)."),
        "GGML_CUDA_USE_GRAPHS": N_("Use CUDA graphs, in older sources and ik_llama.cpp (normally on)."),
        "GGML_CUDA_FUSION": N_("Fuse operations of CUDA in ik_llama.cpp: 1 or 0."),
        "GGML_CUDA_F16": N_("Calculate with 16-bit numbers in some kernels of older sources."),
        "GGML_CUDA_NO_VMM": N_("Do not use CUDA's virtual memory, which some drivers and cards lack."),
        "GGML_CUDA_NO_PEER_COPY": N_(
            "Do not copy directly between cards, where that hangs or corrupts data."
        ),
        "GGML_CUDA_PEER_MAX_BATCH_SIZE": N_("Largest batch for which cards access each other: a number."),
        "GGML_CUDA_NCCL": N_("Use NVIDIA's NCCL between several cards, if it is installed."),
        "GGML_NCCL": N_("Use NVIDIA's NCCL between several cards in ik_llama.cpp, if it is installed."),
        "GGML_CUDA_COMPRESSION_MODE": N_("Compression of CUDA's code: none, speed, balance or size."),
        "GGML_IQK_MUL_MAT": N_("Use the fast matrix kernels of ik_llama.cpp (normally on)."),
        "GGML_IQK_FLASH_ATTENTION": N_("Compile ik_llama.cpp's flash attention for the CPU (normally on)."),
        "GGML_IQK_FA_ALL_QUANTS": N_(
            "Compile all cache types of ik_llama.cpp's flash attention for the CPU."
        ),
        "GGML_HIP_GRAPHS": N_("Use HIP graphs on AMD cards."),
        "GGML_HIP_NO_VMM": N_("Do not use HIP's virtual memory (normally on)."),
        "GGML_HIP_ROCWMMA_FATTN": N_("Use rocWMMA for flash attention on AMD cards; it must be installed."),
        "GGML_HIP_MMQ_MFMA": N_("Use the matrix units of AMD's CDNA cards (normally on)."),
        "GGML_HIP_RCCL": N_("Use AMD's RCCL between several cards, if it is installed."),
        "GPU_TARGETS": N_("AMD architectures to compile for, such as gfx1030;gfx1100."),
        "AMDGPU_TARGETS": N_("AMD architectures to compile for, in older sources."),
        "CMAKE_HIP_ARCHITECTURES": N_("AMD architectures to compile for, by CMake's own name."),
        "GGML_LTO": N_("Optimise across files while linking: slower build, slightly faster programs."),
        "GGML_OPENMP": N_("Use OpenMP threads on the CPU (normally on)."),
        "GGML_LLAMAFILE": N_("Use llamafile's matrix kernels on the CPU (normally on)."),
        "GGML_CPU_REPACK": N_("Repack weights while loading for faster CPU kernels (normally on)."),
        "GGML_CPU_ALL_VARIANTS": N_("Build the CPU backend for all processors; needs GGML_BACKEND_DL."),
        "GGML_BACKEND_DL": N_("Load backends as libraries while running."),
        "GGML_BLAS": N_("Use a BLAS library for prompts on the CPU; it must be installed."),
        "GGML_BLAS_VENDOR": N_("Which BLAS library: OpenBLAS, Intel10_64lp, FLAME…"),
        "GGML_RPC": N_("Build the backend that reaches other hosts."),
        "GGML_SCHED_MAX_COPIES": N_("Copies of inputs for pipelining over several cards: a number."),
        "GGML_SSE42": N_("Use SSE 4.2."),
        "GGML_AVX": N_("Use AVX."),
        "GGML_AVX2": N_("Use AVX2."),
        "GGML_AVX_VNNI": N_("Use AVX-VNNI."),
        "GGML_AVX512": N_("Use AVX-512."),
        "GGML_AVX512_VBMI": N_("Use AVX-512 VBMI."),
        "GGML_AVX512_VNNI": N_("Use AVX-512 VNNI."),
        "GGML_AVX512_BF16": N_("Use AVX-512 BF16."),
        "GGML_AMX_TILE": N_("Use AMX tiles."),
        "GGML_AMX_INT8": N_("Use AMX with 8-bit integers."),
        "GGML_AMX_BF16": N_("Use AMX with BF16."),
        "GGML_BMI2": N_("Use BMI2."),
        "GGML_FMA": N_("Use FMA."),
        "GGML_F16C": N_("Use F16C."),
        "GGML_ALL_WARNINGS": N_("Show the compiler's warnings in ggml."),
        "LLAMA_ALL_WARNINGS": N_("Show the compiler's warnings in llama.cpp."),
        "LLAMA_OPENSSL": N_("Let the programs download over HTTPS; needs libssl-dev (normally on)."),
    }
)

_NUMBER = r"\d{1,6}"
_AMD = r"gfx[0-9a-f]{3,5}(;gfx[0-9a-f]{3,5}){0,15}"
# The values of options of KNOWN that are no switches
VALUES = {
    "GGML_CUDA_PEER_MAX_BATCH_SIZE": _NUMBER,
    "GGML_SCHED_MAX_COPIES": _NUMBER,
    "GGML_CUDA_FUSION": _NUMBER,
    "GGML_CUDA_COMPRESSION_MODE": "none|speed|balance|size",
    "GGML_BLAS_VENDOR": r"[A-Za-z0-9_]{1,40}",
    "GPU_TARGETS": _AMD,
    "AMDGPU_TARGETS": _AMD,
    "CMAKE_HIP_ARCHITECTURES": _AMD,
}
# Options whose value is a list with “;”
LISTS = frozenset({"GPU_TARGETS", "AMDGPU_TARGETS", "CMAKE_HIP_ARCHITECTURES", "CMAKE_PREFIX_PATH"})

# Options that fields of the form set, by the labels of these
BACKEND = N_("Backend")
ARCHITECTURES = N_("CUDA architectures")
NVCC = N_("CUDA compiler")
HOST_COMPILER = N_("Host compiler")
NATIVE = N_("For this machine's own processor")
CCACHE = N_("Compiler cache")
FA_QUANTS = N_("Flash attention quants")
FIELDS = {
    **dict.fromkeys(("GGML_CUDA", "GGML_HIP", "GGML_HIPBLAS", "GGML_VULKAN"), BACKEND),
    "CMAKE_CUDA_ARCHITECTURES": ARCHITECTURES,
    **dict.fromkeys(
        ("CMAKE_CUDA_COMPILER", "CUDAToolkit_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "CUDAToolkit_BIN_DIR"), NVCC
    ),
    **dict.fromkeys(("CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "CMAKE_CUDA_HOST_COMPILER"), HOST_COMPILER),
    "GGML_NATIVE": NATIVE,
    "GGML_CCACHE": CCACHE,
    **dict.fromkeys(("GGML_CUDA_FA_QUANTS", "GGML_CUDA_FA_ALL_QUANTS"), FA_QUANTS),
}
# Options that every build of the panel sets, or that would keep it from finding what was built
MANAGED = frozenset(
    {
        "CMAKE_BUILD_TYPE",
        "CMAKE_CONFIGURATION_TYPES",
        "CMAKE_GENERATOR",
        "CMAKE_MAKE_PROGRAM",
        "CMAKE_COMMAND",
        "BUILD_SHARED_LIBS",
        "GGML_STATIC",
        "CMAKE_INSTALL_PREFIX",
        "CMAKE_INSTALL_RPATH",
        "CMAKE_INSTALL_RPATH_USE_LINK_PATH",
        "CMAKE_BUILD_RPATH",
        "CMAKE_BUILD_RPATH_USE_ORIGIN",
        "CMAKE_BUILD_WITH_INSTALL_RPATH",
        "CMAKE_SKIP_RPATH",
        "CMAKE_SKIP_BUILD_RPATH",
        "CMAKE_SKIP_INSTALL_RPATH",
        "CMAKE_RUNTIME_OUTPUT_DIRECTORY",
        "CMAKE_LIBRARY_OUTPUT_DIRECTORY",
        "CMAKE_ARCHIVE_OUTPUT_DIRECTORY",
        "CMAKE_RUNTIME_OUTPUT_DIRECTORY_RELEASE",
        "CMAKE_LIBRARY_OUTPUT_DIRECTORY_RELEASE",
        "EXECUTABLE_OUTPUT_PATH",
        "LIBRARY_OUTPUT_PATH",
        "LLAMA_STANDALONE",
        "LLAMA_BUILD_COMMON",
        "LLAMA_BUILD_TOOLS",
        "LLAMA_BUILD_SERVER",
        "LLAMA_BUILD_TESTS",
        "LLAMA_BUILD_EXAMPLES",
        "LLAMA_BUILD_APP",
        "LLAMA_BUILD_UI",
        "LLAMA_USE_PREBUILT_UI",
        "LLAMA_BUILD_WEBUI",
        "LLAMA_BUILD_NUMBER",
        "LLAMA_BUILD_COMMIT",
    }
)
# Old names that are not today's with another beginning
RENAMED = {
    "LLAMA_CUBLAS": "GGML_CUDA",
    "GGML_CUBLAS": "GGML_CUDA",
    "LLAMA_HIPBLAS": "GGML_HIP",
    "LLAMA_OPENBLAS": "GGML_BLAS",
    "LLAMA_BLAS_VENDOR": "GGML_BLAS_VENDOR",
    "LLAMA_CUDA_FA_ALL_QUANTS": "GGML_CUDA_FA_QUANTS",
    "GGML_FA_ALL_QUANTS": "GGML_CUDA_FA_QUANTS",
    "LLAMA_AVXVNNI": "GGML_AVX_VNNI",
    "GGML_AVXVNNI": "GGML_AVX_VNNI",
    "LLAMA_SERVER_SSL": "LLAMA_OPENSSL",
    "GGML_CUDA_ARCHITECTURES": "CMAKE_CUDA_ARCHITECTURES",
    "CUDA_ARCHITECTURES": "CMAKE_CUDA_ARCHITECTURES",
    "LLAMA_CUDA_NVCC": "CMAKE_CUDA_COMPILER",
}
_MTP = N_(
    "there is no such option. Every build whose source has multi-token prediction can do it; "
    "it is switched on in the server profile."
)
_TURBO = N_(
    "there is no such option. TurboQuant's cache types are in every CUDA build of a source that has them; "
    "they are chosen in the server profile."
)
_CURL = N_("ignored by today's sources. Downloads over HTTPS come from LLAMA_OPENSSL.")
_MAC = N_("this works on macOS only.")
_GONE = N_("this backend was removed from llama.cpp. Vulkan works on the same cards.")
# Options that do not exist, or do nothing
ABSENT = {
    **dict.fromkeys(("LLAMA_MTP", "GGML_MTP", "LLAMA_BUILD_MTP", "LLAMA_SPECULATIVE"), _MTP),
    **dict.fromkeys(("LLAMA_TURBOQUANT", "GGML_TURBOQUANT", "GGML_CUDA_TURBOQUANT"), _TURBO),
    **dict.fromkeys(("LLAMA_CURL", "GGML_CURL"), _CURL),
    **dict.fromkeys(
        ("LLAMA_METAL", "GGML_METAL", "LLAMA_METAL_EMBED_LIBRARY", "GGML_METAL_EMBED_LIBRARY"), _MAC
    ),
    **dict.fromkeys(("LLAMA_CLBLAST", "GGML_CLBLAST", "LLAMA_KOMPUTE", "GGML_KOMPUTE"), _GONE),
    **dict.fromkeys(("LLAMA_CUDNN", "GGML_CUDNN", "GGML_CUDA_CUDNN"), N_("llama.cpp does not use cuDNN.")),
    **dict.fromkeys(
        ("LLAMA_FLASH_ATTN", "LLAMA_FLASH_ATTENTION", "GGML_FLASH_ATTN"),
        N_("there is no such option. Flash attention is switched on in the server profile."),
    ),
}
