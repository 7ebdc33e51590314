"""Rules for CUDA builds: host compiler, C library, headers and libraries must fit the toolkit."""

from __future__ import annotations

from collections.abc import Iterable

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Change, Found, Near, Rule
from controlpanel.llamacpp.rules_build_changes import define

_CUDA_HEADERS = r"(?:crt/|cuda[-_\w./]*/include|/targets/|math_functions\.h)"
_EFFECT = ("cmake_broken_compiler", "nvcc_not_found", "fork_source_bug")


def _allowed_compiler(found: Found) -> Iterable[Change]:
    if found["gcc"]:
        return [Change("host_compiler", f"g++-{found['gcc']}")]
    if found["clang"]:
        return [Change("host_compiler", f"clang++-{int(found['clang']) - 1}")]
    return []


_HOST_TITLE = N_("The host's C++ compiler is too new for this CUDA toolkit")
_LIBCUDA_TITLE = N_("The CUDA driver library (libcuda) was not found when linking")
_LIBCUDA_REMEDY = N_(
    "This host has no NVIDIA driver on the linker's path, as is usual in containers. Either let the "
    "program look for the library when it starts (CMAKE_EXE_LINKER_FLAGS = -Wl,--allow-shlib-undefined), "
    "or build without the driver's virtual memory (GGML_CUDA_NO_VMM = ON), or install the driver or the "
    "toolkit's stubs."
)

TOOLKIT_RULES = (
    Rule(
        "host_compiler_too_new",
        (r"unsupported GNU version! +gcc versions later than (?P<gcc>\d+)",),
        _HOST_TITLE,
        N_(
            "This toolkit works with gcc up to version %(gcc)s. Install it (“apt install g++-%(gcc)s”) and "
            "choose g++-%(gcc)s as host compiler, or use a newer CUDA toolkit."
        ),
        _allowed_compiler,
        explains=_EFFECT,
    ),
    Rule(
        "host_compiler_too_new",
        (r"unsupported (?:HOS |Grace )?clang version!.{0,120}?(?:less than |16\.x to )(?P<clang>\d+)",),
        _HOST_TITLE,
        N_(
            "This toolkit does not take this clang. Install an older one or g++, choose it as host "
            "compiler, or use a newer CUDA toolkit."
        ),
        _allowed_compiler,
        explains=_EFFECT,
    ),
    Rule(
        "host_compiler_too_new",
        (
            r"unsupported (?:Microsoft Visual Studio|Intel ICX compiler|pgc\+\+)\S* ",
            r"include/c\+\+/\d[\w./+-]*(?:\(\d+\)|:\d+:\d+): error: (?:identifier|parameter packs)",
            r"/lib/gcc/\S+/include/\S+\(\d+\): error: ",
            r"error: identifier \"__builtin_\w+\" is undefined",
            r"error: identifier \"_Float(?:16|32|64|128)x?\" is undefined",
        ),
        _HOST_TITLE,
        N_(
            "Update the CUDA toolkit, or install an older C++ compiler that it takes (for CUDA 12: g++-12) "
            "and choose it as host compiler."
        ),
        explains=_EFFECT,
    ),
    Rule(
        "glibc_vs_cuda_headers",
        (
            r"error: exception specification is incompatible with that of previous function",
            r" has a different exception specifier",
            r"error: identifier \"__(?:Float|SV)\w+_t\" is undefined",
        ),
        N_("The system's C library is newer than this CUDA toolkit supports"),
        N_(
            "Both declare the same functions of mathematics, in different ways. Use a CUDA toolkit that "
            "supports this glibc, or build in a container with an older distribution (Ubuntu 24.04). "
            "Another gcc does not help."
        ),
        with_=(Near(_CUDA_HEADERS, before=4, after=4, required=False),),
        unless=(r"^(?!.*(?:mathcalls|math_functions|math-vector|/bits/|/include/(?:c\+\+/)?\S*math))",),
        explains=(*_EFFECT, "host_compiler_too_new"),
    ),
    Rule(
        "cuda_toolkits_mixed",
        (
            r"Unsupported \.version (?P<wanted>[\d.]+); current version is",
            r"' newer than toolkit \(",
            r"nvcc fatal +: Unknown option '-?-?compress-mode",
            r"fatbinary fatal +: Unknown option ",
            r"#error -- incompatible CUDA runtime API",
            r"undefined reference to .__cudaRegister\w*",
        ),
        N_("Parts of two CUDA toolkits are mixed"),
        N_(
            "nvcc, its helpers or the headers come from different versions. Choose one nvcc by its full "
            "path (such as /usr/local/cuda-12.8/bin/nvcc), and take other toolkits out of PATH, CPATH, "
            "CUDA_HOME and conda's environment. Build again from an empty folder."
        ),
        explains=("cmake_broken_compiler", "undefined_reference"),
    ),
    Rule(
        "link_missing_libcuda",
        (r"undefined reference to [`'‘\"]?cu(?:Mem|Device|Ctx|Get|Init|Driver|Stream|Module|Launch)\w*",),
        _LIBCUDA_TITLE,
        _LIBCUDA_REMEDY,
        define(("CMAKE_EXE_LINKER_FLAGS", "-Wl,--allow-shlib-undefined")),
        explains=("undefined_reference",),
    ),
    Rule(
        "link_missing_libcuda",
        (
            r"undefined symbol: cu(?:Mem|Device|Ctx|Get|Init|Driver|Stream|Module|Launch)\w*",
            r"cannot find -lcuda\b(?!rt)",
            r"unable to find library -lcuda\b",
            r"^\s+CUDA::cuda_driver\s*$",
        ),
        _LIBCUDA_TITLE,
        _LIBCUDA_REMEDY,
        define(("GGML_CUDA_NO_VMM", "ON")),
        rank=COMMON + 5,
        explains=("undefined_reference", "missing_library", "cuda_toolkit_incomplete"),
    ),
    Rule(
        "cuda_toolkit_incomplete",
        (
            r"^\s+CUDA::(?P<part>cublas|cublasLt|cudart|cublas_static|cudart_static|culibos|nvrtc|nvml)\s*$",
            r"cannot find -l(?P<part>cublas|cublasLt|cudart|culibos|nvrtc)(?:_static)?\b",
            r"fatal error: '?(?P<part>cuda_runtime|cublas_v2|cuda_fp16|cuda|cub/cub)\.(?:h|cuh)'?(?::| file)",
        ),
        N_("A part of the CUDA toolkit is missing: %(part)s"),
        N_(
            "Only some packages of the toolkit are installed. Install the whole one (“apt install "
            "cuda-toolkit-12-9” from NVIDIA's repository, or libcublas-dev and cuda-cudart-dev of the same "
            "version) and build again."
        ),
        explains=("missing_library", "missing_header", "fork_source_bug"),
    ),
    Rule(
        "msvc_cuda_integration_missing",
        (r"No CUDA toolset found",),
        N_("Visual Studio lacks the CUDA integration"),
        N_(
            "Run the CUDA installer again with “Visual Studio Integration”, or build with Ninja. The panel "
            "itself builds on Linux."
        ),
        explains=("cmake_broken_compiler",),
    ),
)
