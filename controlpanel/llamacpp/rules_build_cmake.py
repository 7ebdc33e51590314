"""Rules for the configure step: CMake, its version, and its options."""

from __future__ import annotations

from collections.abc import Iterable

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Change, Found, Near, Rule
from controlpanel.llamacpp.rules_build_changes import SPECIAL_ARCHITECTURES, common_architectures, define, put


def _cuda_backend(found: Found) -> Iterable[Change]:
    return [Change("definitions", [[found["option"], None]]), Change("backend", "cuda")]


def _known_targets(found: Found) -> Iterable[Change]:
    chosen = found.listed("targets") or ["llama-server"]
    rest = [str(target) for target in chosen if target != found["target"]]
    return [Change("targets", rest)] if rest else []


_ARCH_TITLE = N_("CMake is too old for the GPU architecture “%(arch)s”")
_ARCH_REMEDY = N_(
    "“native” needs CMake 3.24 or newer, names with a letter (120a) need 3.31 or newer. Write the "
    "architectures as plain numbers (86 for an RTX 3090), or install a newer CMake."
)
_OLD_CMAKE_REMEDY = N_(
    "Install a newer CMake on the host (“pip install cmake”, Kitware's apt repository, or snap) and build "
    "again."
)

CMAKE_RULES = (
    Rule(
        "not_cmake",
        (
            r"does not appear to contain CMakeLists\.txt",
            r"CMake Error: The source directory \"[^\"]*\" does not exist",
        ),
        N_("This source cannot be built with CMake: it has no CMakeLists.txt"),
        N_(
            "The repository is not llama.cpp or a fork of it, or this branch holds something else. Check "
            "the repository and the branch."
        ),
    ),
    Rule(
        "cmake_too_old",
        (r"is not one of the following:",),
        _ARCH_TITLE,
        _ARCH_REMEDY,
        common_architectures,
        with_=(
            Near(r"CUDA_ARCHITECTURES:", before=5),
            Near(r"^\s+(?P<arch>" + SPECIAL_ARCHITECTURES + r")\s*$", before=3),
        ),
    ),
    Rule(
        "cmake_too_old",
        (r"Unsupported gpu architecture 'compute_(?P<arch>native|all-major|all)'",),
        _ARCH_TITLE,
        _ARCH_REMEDY,
        common_architectures,
        explains=("cmake_broken_compiler",),
    ),
    Rule(
        "cmake_too_old",
        (r"CMake (?P<wanted>\d[\d.]*) or higher is required\. +You are running version (?P<version>[\d.]+)",),
        N_("CMake %(version)s is too old: this source needs %(wanted)s"),
        _OLD_CMAKE_REMEDY,
    ),
    Rule(
        "cmake_too_old",
        (
            r"Unknown CMake command \"(?:cmake_path|cmake_language|block|FetchContent_MakeAvailable)\"",
            r"Policy \"CMP\d+\" is not known to this version of CMake",
            r"CMake Error: Unknown argument --(?:parallel|target|config)",
        ),
        N_("CMake is too old for this source"),
        _OLD_CMAKE_REMEDY,
    ),
    Rule(
        "cmake_too_new",
        (r"Compatibility with CMake < \d[\d.]* has been removed from CMake",),
        N_("CMake is too new for this old source"),
        N_(
            "Build a newer version of the source, or tell CMake to accept it: CMAKE_POLICY_VERSION_MINIMUM "
            "= 3.5."
        ),
        define(("CMAKE_POLICY_VERSION_MINIMUM", "3.5")),
    ),
    Rule(
        "removed_option",
        (r"^\s+(?P<option>LLAMA_CUBLAS) is deprecated",),
        N_("The option %(option)s was removed"),
        N_("Take %(option)s out of the definitions and choose the backend “CUDA” instead (GGML_CUDA)."),
        _cuda_backend,
        unless_near=(Near(r"^CMake (?:Deprecation )?Warning", before=2),),
    ),
    Rule(
        "makefile_deprecated",
        (
            r"The Makefile build is deprecated\. Use the CMake build instead",
            r"\*\*\* Build system changed",
            r"The Makefile build has been replaced by CMake",
        ),
        N_("This source is no longer built with make"),
        N_("Build it with CMake, as the panel does: cmake -B build, then cmake --build build."),
        explains=("target_unknown",),
    ),
    Rule(
        "target_unknown",
        (
            r"ninja: error: unknown target '(?P<target>[^']+)'",
            r"make(?:\[\d+\])?: \*\*\* No rule to make target '(?P<target>[\w.-]+)'\. +Stop",
        ),
        N_("This source has no program “%(target)s”"),
        N_(
            "Take it out of the list of programs to build. If it is llama-server, this is not llama.cpp, "
            "or a version that names it differently (before mid-2024: server)."
        ),
        _known_targets,
    ),
    Rule(
        "stale_build_folder",
        (
            r"CMakeCache\.txt directory \S+ is different than the directory",
            r"does not match the source \"[^\"]*\" used to generate cache",
            r"Does not match the generator used previously",
        ),
        N_("The build folder was made for other paths or another generator"),
        N_("Delete the build folder and build again; the panel starts each build in an empty one."),
    ),
    Rule(
        "not_configured",
        (
            r"loading 'build\.ninja': No such file or directory",
            r"^Error: could not load cache",
            r"^Error: \S+ is not a directory",
        ),
        N_("The build folder was never configured"),
        N_(
            "The configure step failed or its folder was removed. Build again and read that step's log first."
        ),
        rank=COMMON,
    ),
    Rule(
        "fa_quants_wrong",
        (
            r"^\s+GGML_CUDA_FA_QUANTS(?: must not be empty|: )",
            r"FlashAttention template instance \"(?P<file>[^\"]*)",
        ),
        N_("The list of flash-attention cache types is wrong"),
        N_(
            "Write pairs of types for K and V such as q8_0-q8_0, separated by semicolons, “all”, or "
            "nothing. The list depends on the source: not each pair exists in each fork."
        ),
        put("fa_quants", ""),
    ),
    Rule(
        "options_conflict",
        (r"GGML_NATIVE is not compatible with GGML_BACKEND_DL",),
        N_("Two options contradict each other: GGML_NATIVE and GGML_BACKEND_DL"),
        N_("Build without “for this processor”, or take GGML_BACKEND_DL out of the definitions."),
        put("native", False),
    ),
    Rule(
        "options_conflict",
        (r"(?P<option>GGML_CPU_ALL_VARIANTS|GGML_BACKEND_DIR) requires GGML_BACKEND_DL",),
        N_("The option %(option)s needs GGML_BACKEND_DL"),
        N_("Add GGML_BACKEND_DL = ON to the definitions, or take %(option)s out."),
        define(("GGML_BACKEND_DL", "ON")),
    ),
    Rule(
        "cmake_broken_compiler",
        (
            r"is not able to compile a simple test program",
            r"Compiling the \w+ compiler identification source file",
        ),
        N_("The compiler cannot compile even a small test"),
        N_(
            "Its installation is not complete, or it does not fit its libraries. The lines below in the "
            "log say what it complained of; reinstall the compiler (“apt install --reinstall "
            "build-essential”)."
        ),
        rank=GENERIC,
    ),
)
