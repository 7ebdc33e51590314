"""The commands of a build: exactly what the host runs and what the form shows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from jobs.domain import mirror as git
from jobs.domain.buildspec import BuildInputs
from jobs.domain.programs import Toolchain
from jobs.domain.trees import Tree

NINJA = "Ninja"
MAKEFILES = "Unix Makefiles"

_MIB_PER_JOB = {"cuda": 3072}  # nvcc's largest kernels; everything else is content with less
_MIB_PER_CPU_JOB = 2048
# The build's own page is not ours to use, and newer trees would download it.
_PAGES = ("LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_WEBUI")
_BACKENDS = {
    "cuda": ("GGML_CUDA",),
    "hip": ("GGML_HIP", "GGML_HIPBLAS"),  # by preference: older trees know the second only
    "vulkan": ("GGML_VULKAN",),
}
_CXX = re.compile(r"(?P<before>(?:.*-)?)(?P<name>g\+\+|clang\+\+|c\+\+)(?P<after>(?:-.*)?)")
_C_NAMES = {"g++": "gcc", "clang++": "clang", "c++": "cc"}


@dataclass(frozen=True)
class Step:
    """One command of a build: fetch, checkout, configure or compile."""

    name: str
    argv: list[str]


def default_jobs(cores: int, memory_mib: int | None, backend: str) -> int:
    """Return how many compilers run at once: one per core, as far as their memory suffices."""
    if memory_mib is None:
        return max(1, cores)
    return max(1, min(cores, memory_mib // _MIB_PER_JOB.get(backend, _MIB_PER_CPU_JOB)))


def job_count(inputs: BuildInputs, toolchain: Toolchain) -> int:
    """Return the number of compilers of a build: the asked one, or by memory and cores."""
    return inputs.jobs or default_jobs(toolchain.cores, toolchain.memory_mib, inputs.backend)


def c_compiler(cxx: str) -> str:
    """Return the C compiler beside a C++ compiler: gcc-13 of g++-13; "" when the name does not tell."""
    path = PurePosixPath(cxx)
    found = _CXX.fullmatch(path.name)
    return str(path.with_name(f"{found['before']}{_C_NAMES[found['name']]}{found['after']}")) if found else ""


def configure_argv(
    inputs: BuildInputs,
    source: str,
    build: str,
    *,
    tree: Tree | None,
    toolchain: Toolchain,
    commit: str | None = "",
    number: int = 0,
) -> list[str]:
    """Return the command that writes the build files; without a tree every name of an option is passed.

    `number` counts the commits up to `commit`, which is "" for a source without git. With None, when neither
    is known yet, the source asks git itself.
    """
    settings = [
        ("CMAKE_BUILD_TYPE", "Release"),
        ("BUILD_SHARED_LIBS", "ON"),
        ("CMAKE_BUILD_WITH_INSTALL_RPATH", "ON"),
        ("CMAKE_INSTALL_RPATH", "$ORIGIN"),
        *_parts(tree),
        *_backend(inputs, tree),
        *_compilers(inputs, toolchain),
        *_cuda(inputs, tree, toolchain),
        ("GGML_NATIVE", _switch(inputs.native)),
        *_known(tree, ("GGML_CCACHE", _switch(inputs.ccache))),
        *_version(commit, number),
        *inputs.definitions,
    ]
    generator = NINJA if "ninja" in toolchain.programs else MAKEFILES
    words = ["cmake", "-S", source, "-B", build, "-G", generator]
    return [*words, *(f"-D{key}={value}" for key, value in settings)]


def compile_argv(build: str, jobs: int, targets: Iterable[str]) -> list[str]:
    """Return the command that compiles the programs and the libraries they need."""
    return ["cmake", "--build", build, "--target", *targets, "-j", str(jobs)]


def built_targets(inputs: BuildInputs, tree: Tree | None) -> tuple[str, ...]:
    """Return the asked programs without those that the source does not have."""
    if tree is None or not tree.targets:
        return inputs.targets
    return tuple(target for target in inputs.targets if target in tree.targets)


def commands(
    inputs: BuildInputs,
    toolchain: Toolchain,
    tree: Tree | None,
    mirror: str,
    source: str,
    build: str,
    *,
    commit: str = "",
    number: int = 0,
) -> list[Step]:
    """Return the steps of a build in order.

    `mirror` "" stands for a source folder without git, which is built as it is. As long as nobody knows the
    `commit`, what the ref leads to in the mirror is checked out.
    """
    steps: list[Step] = []
    if mirror:
        wanted = commit or git.names_of(inputs.ref)[-1]
        steps = [
            Step("fetch", git.fetch_argv(mirror, inputs.repository, inputs.ref, local=inputs.local)),
            Step("checkout", git.checkout_argv(mirror, source, wanted)),
        ]
    known = commit or (None if mirror else "")
    configure = configure_argv(
        inputs, source, build, tree=tree, toolchain=toolchain, commit=known, number=number
    )
    compiling = compile_argv(build, job_count(inputs, toolchain), built_targets(inputs, tree))
    return [*steps, Step("configure", configure), Step("compile", compiling)]


def _switch(on: bool) -> str:
    return "ON" if on else "OFF"


def _known(tree: Tree | None, *settings: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the settings that a tree has: CMake complains of others."""
    return [setting for setting in settings if tree is None or setting[0] in tree.options]


def _parts(tree: Tree | None) -> list[tuple[str, str]]:
    examples = tree is not None and tree.server_in_examples
    switches = [("LLAMA_BUILD_TESTS", False), ("LLAMA_BUILD_EXAMPLES", examples), ("LLAMA_BUILD_APP", False)]
    return _known(tree, *((key, _switch(on)) for key, on in switches), *((key, "OFF") for key in _PAGES))


def _version(commit: str | None, number: int) -> list[tuple[str, str]]:
    if commit is None:
        return []
    # Before it looks for git itself: the folder above the source may be a repository of something else.
    return [("LLAMA_BUILD_NUMBER", str(number)), ("LLAMA_BUILD_COMMIT", commit[:9] or "unknown")]


def _backend(inputs: BuildInputs, tree: Tree | None) -> list[tuple[str, str]]:
    names = _BACKENDS.get(inputs.backend, ())
    if not names:
        return []
    name = next((name for name in names if tree is not None and name in tree.options), names[0])
    return [(name, "ON")]


def _compilers(inputs: BuildInputs, toolchain: Toolchain) -> list[tuple[str, str]]:
    settings = []
    if inputs.host_compiler:
        settings.append(("CMAKE_CXX_COMPILER", inputs.host_compiler))
        if plain := c_compiler(inputs.host_compiler):
            settings.append(("CMAKE_C_COMPILER", plain))
    if inputs.backend != "cuda":
        return settings
    found = toolchain.nvcc(inputs.nvcc)
    if nvcc := inputs.nvcc or (found.path if found else ""):
        settings.append(("CMAKE_CUDA_COMPILER", nvcc))
        if root := _toolkit(nvcc):
            settings.append(("CUDAToolkit_ROOT", root))
    if inputs.host_compiler:
        settings.append(("CMAKE_CUDA_HOST_COMPILER", inputs.host_compiler))
    return settings


def _toolkit(nvcc: str) -> str:
    """Return the folder of nvcc's toolkit, "" when a distribution has spread it over the system.

    Without it llama.cpp takes the headers and libraries of the nvcc that PATH finds.
    """
    folder = PurePosixPath(nvcc).parent
    root = str(folder.parent)
    return root if folder.name == "bin" and root not in ("/", "/usr", "/usr/local") else ""


def _cuda(inputs: BuildInputs, tree: Tree | None, toolchain: Toolchain) -> list[tuple[str, str]]:
    if inputs.backend != "cuda":
        return []
    own = (f"{architecture}-real" for architecture in toolchain.architectures)
    architectures = ";".join(inputs.architectures or own)
    settings = [("CMAKE_CUDA_ARCHITECTURES", architectures)] if architectures else []
    if inputs.fa_quants and tree is not None and tree.cuda_fa == "all":
        settings.append(("GGML_CUDA_FA_ALL_QUANTS", "ON"))
    elif inputs.fa_quants:
        settings.append(("GGML_CUDA_FA_QUANTS", inputs.fa_quants))
    return settings
