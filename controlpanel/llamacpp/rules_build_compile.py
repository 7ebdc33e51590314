"""Rules for the compile step: errors in sources, headers and links that are not the host's resources."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Rule
from controlpanel.llamacpp.rules_build_changes import define, put

_SOURCE = r"(?:\d+>)?(?P<file>(?:[A-Za-z]:)?[^\s:(]+\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|hip|m|mm|comp|inc))"
# Headers of the system, the compiler and the toolkits: an error there is no fault of the tree.
_SYSTEM = (
    r"^\s*(?:/usr/(?:local/)?(?:include|lib\d*|cuda[^/]*)/"
    r"|/opt/(?:cuda|rocm|nvidia|intel|conda|miniconda)[-\w.]*/(?:\S*/)?(?:include|lib\d*|targets)/"
    r"|\S*(?:/include/c\+\+/|/lib/gcc/|/include/crt/|/targets/[^/\s]+/include/))"
)
_HOST_FAULT = (
    r"No space left|Permission denied|Disk quota|Killed|internal compiler error|Cannot allocate memory"
)
# Named by rules of their own, or part of packages.
_FOREIGN_HEADER = (
    r"(?:catastrophic error: cannot open source file \"|fatal error: '?)(?:openssl|curl|vulkan|spirv|hip"
    r"|hipblas|rocblas|nccl|numa|cublas|cuda|cub|CL|mkl|cblas|openblas|sycl|rpc|infiniband|sys|linux|bits|gnu|std\w+"
    r"|atomic|filesystem|charconv|span|string_view|optional|variant)[\w./]*[\"']?(?::| file not found|$)"
)

_MISSES = r"undefined reference to [`'‘\"]?"
# Names of functions that only the tree itself defines.
_OWN = (
    r"(?:void |int |float |bool )?(?:(?:ggml|gguf|llama|common|quantize|dequantize|mtmd|clip|iqk|server)_\w+"
    r"|\w*[Tt]urbo\w*)"
)
_BUG_REMEDY = N_(
    "The error is in a file of the repository, not on this host. Choose another commit or branch (the one "
    "before, or a newer one that mends it), build from an empty folder, or report the line to the fork's "
    "authors. Definitions that turn on rarely used code can cause it, too."
)


COMPILE_RULES = (
    Rule(
        "missing_header",
        (
            r"fatal error: '?(?P<header>(?:openssl|nccl|numa|CL|mkl|cblas|openblas|sycl|infiniband|sys|linux"
            r"|bits|gnu|std\w+|atomic)[\w./]*)'?(?:: No such file| file not found)",
        ),
        N_("A header of the system or of a library is missing: %(header)s"),
        N_(
            "Install the development package that holds %(header)s (“apt-file search %(header)s” names it; "
            "for openssl/ssl.h it is libssl-dev, for the system's own build-essential), or turn off the "
            "option that needs it."
        ),
        explains=("fork_source_bug",),
    ),
    Rule(
        "compiler_too_old",
        (
            r"unrecognized command[- ]line option ['‘\"]-std=(?P<std>(?:c|gnu)\+\+\w+)",
            r"error: invalid value '(?P<std>(?:c|gnu)\+\+\w+)' in '-std=",
            r"requires the language dialect \"(?P<std>C(?:XX)?\d\d)\"",
            r"fatal error: '?(?:filesystem|charconv|span|string_view|optional|variant)'?(?:: No| file not)",
            r"#error This file requires compiler and library support",
            r"error: ['‘]filesystem['’] (?:is not a namespace|in namespace|has not been declared)",
        ),
        N_("The C++ compiler is too old for this source"),
        N_("Install a newer one (gcc 11 or later, “apt install g++-12”) and choose it as host compiler."),
        explains=("fork_source_bug", "cmake_broken_compiler"),
    ),
    Rule(
        "warnings_as_errors",
        (r"cc1\w*: all warnings being treated as errors", r"\[-Werror,-W[\w-]+\]"),
        N_("A warning of the compiler is treated as an error"),
        N_(
            "The source has a warning with this compiler. Take LLAMA_FATAL_WARNINGS and "
            "GGML_FATAL_WARNINGS out of the definitions; if they are not there, the fork sets it itself: "
            "try another version of it or of the compiler."
        ),
        define(("LLAMA_FATAL_WARNINGS", None), ("GGML_FATAL_WARNINGS", None)),
        explains=("fork_source_bug",),
    ),
    Rule(
        "cpu_flags_mismatch",
        (r"inlining failed in call to .{0,40}always_inline",),
        N_("The options for the processor's instructions do not fit together"),
        N_(
            "A definition such as GGML_AVX512 asks for code that the chosen processor flags do not allow. "
            "Take the GGML_AVX…, GGML_FMA and GGML_F16C rows out of the definitions."
        ),
        explains=("fork_source_bug",),
    ),
    Rule(
        "mixed_system_libraries",
        (
            r"undefined reference to .{0,300}@(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+",
            r"version .(?:GLIBC|GLIBCXX)_[\d.]+' not found",
        ),
        N_("Libraries of two systems are mixed"),
        N_(
            "A library that is linked was built for a newer C or C++ library than the compiler uses; most "
            "often conda's. Start the panel outside of conda (“conda deactivate”), or choose the compiler "
            "that belongs to the library."
        ),
        explains=("undefined_reference",),
    ),
    Rule(
        "binary_too_large",
        (r"relocation truncated to fit: ",),
        N_("The CUDA library grew too large to be linked"),
        N_(
            "Too much GPU code for one file. Build for fewer architectures, and leave the list of "
            "flash-attention cache types empty."
        ),
        put("fa_quants", ""),
    ),
    Rule(
        "fork_source_bug",
        (
            r"^\s*" + _SOURCE + r":\d+:(?:\d+:)? (?:fatal )?error: ",
            r"^\s*" + _SOURCE + r"\(\d+(?:,\d+)?\) ?: (?:catastrophic |fatal )?error(?: [A-Z]+\d+)?: ",
            r"^\s*" + _SOURCE + r": error [A-Z]+\d+: ",
            r"No rule to make target '(?P<file>[^']+\.\w+)', needed by",
            r"'(?P<file>[^']+\.\w+)', needed by '[^']*', missing and no known rule to make it",
            r"ptxas (?:error|fatal) +: (?!Value|Unsupported)",
            r"^\s+Cannot find source file:",
            r"^\s+No SOURCES given to target:",
        ),
        N_("The source itself does not compile"),
        _BUG_REMEDY,
        rank=COMMON,
        unless=(_SYSTEM, _HOST_FAULT, _FOREIGN_HEADER, r"#error "),
        explains=("undefined_reference",),
    ),
    Rule(
        "fork_source_bug",
        (_MISSES + r"(?P<symbol>" + _OWN + r")", r"error: undefined symbol: (?P<symbol>" + _OWN + r")"),
        N_("The source cannot be linked: it misses its own function %(symbol)s"),
        _BUG_REMEDY,
        rank=COMMON,
        explains=("undefined_reference",),
    ),
    Rule(
        "missing_library",
        (r"cannot find -l(?P<library>[\w+.-]+)", r"unable to find library -l(?P<library>[\w+.-]+)"),
        N_("A library to link with is missing: %(library)s"),
        N_(
            "Install the development package of %(library)s on the host, or turn off the option that needs "
            "it."
        ),
        rank=COMMON,
        unless=(r"-l(?:cuda|curl)(?![\w-])",),
    ),
    Rule(
        "undefined_reference",
        (
            _MISSES + r"(?P<symbol>[^`'’\"]+)",
            r"error: undefined symbol: (?P<symbol>\S+)",
            r"undefined symbols? for architecture",
        ),
        N_("The linker misses the function %(symbol)s"),
        N_(
            "A library is missing, or of another version than its headers. Install it, and build again "
            "from an empty folder."
        ),
        rank=COMMON,
    ),
)
