"""What a host has for builds, and what of a build cannot work with it."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.problems import Problem, error, warning
from jobs.domain import toolchain_cuda
from jobs.domain.buildspec import BuildInputs
from jobs.domain.cmake import default_jobs
from jobs.domain.programs import Toolchain
from jobs.domain.trees import Tree
from jobs.domain.versions import numbers, older

HOST = "host"  # the field of findings that no field of the form mends
GIB = 1024**3

_OLDEST_CMAKE = "3.15"  # several targets in one command
# Free bytes without which a build fails: the sources with their history, and what the compilers write
_DISK = {"cuda": 3 * GIB, "hip": 3 * GIB}
_CPU_DISK = GIB


def warnings(toolchain: Toolchain, inputs: BuildInputs, tree: Tree | None = None) -> list[Problem]:
    """Return what of a build cannot work on a host (errors) or may not (warnings), most basic first."""
    return [
        *_missing(toolchain, inputs),
        *_cmake(toolchain, tree),
        *_compiler(toolchain, inputs),
        *_backend(toolchain, inputs, tree),
        *_room(toolchain, inputs),
    ]


def _missing(toolchain: Toolchain, inputs: BuildInputs) -> list[Problem]:
    text = N_("%(program)s is missing on this host. As root, run: %(command)s")
    packages = []
    if "git" not in toolchain.programs and not inputs.local:
        packages.append(("git", "git"))
    if "cmake" not in toolchain.programs:
        packages.append(("cmake", "cmake"))
    if not toolchain.compilers:
        packages.append(("g++", "g++"))
    if not {"ninja", "make"} & toolchain.programs.keys():
        packages.append(("ninja", "ninja-build"))
    if inputs.backend == "vulkan" and "glslc" not in toolchain.programs:
        packages.append(("glslc", "glslc libvulkan-dev"))
    return [
        error(
            "backend" if program == "glslc" else HOST,
            text,
            program=program,
            command=f"apt-get install {package}",
        )
        for program, package in packages
    ]


def _cmake(toolchain: Toolchain, tree: Tree | None) -> list[Problem]:
    have = toolchain.version("cmake")
    need = max(tree.cmake_minimum if tree else "", _OLDEST_CMAKE, key=numbers)
    if not older(have, need):
        return []
    text = N_("The host has CMake %(have)s, and this build needs %(need)s. Install a newer one on the host.")
    return [error(HOST, text, have=have, need=need)]


def _compiler(toolchain: Toolchain, inputs: BuildInputs) -> list[Problem]:
    if not inputs.host_compiler or toolchain.compiler(inputs.host_compiler):
        return []
    # Another name of a compiler that was found, or one in a folder of its own: it may well be there.
    text = N_("%(path)s is not among the compilers found on this host: make sure that it is there.")
    return [warning("host_compiler", text, path=inputs.host_compiler)]


def _backend(toolchain: Toolchain, inputs: BuildInputs, tree: Tree | None) -> list[Problem]:
    if inputs.backend == "cuda":
        return toolchain_cuda.warnings(toolchain, inputs, tree)
    if inputs.backend == "hip" and "hipcc" not in toolchain.programs:
        text = N_("AMD's compiler (hipcc) is missing. Install ROCm on the host, or choose another backend.")
        return [error("backend", text)]
    return []


def _room(toolchain: Toolchain, inputs: BuildInputs) -> list[Problem]:
    problems = []
    need = _DISK.get(inputs.backend, _CPU_DISK)
    if toolchain.disk_free is not None and toolchain.disk_free < need:
        text = N_(
            "Only %(free)s GiB of disk are free, and this build needs about %(need)s GiB. Remove old builds."
        )
        free = f"{toolchain.disk_free / GIB:.1f}"
        problems.append(error(HOST, text, free=free, need=need // GIB))
    most = default_jobs(inputs.jobs, toolchain.memory_mib, inputs.backend)
    if inputs.jobs > most:
        text = N_(
            "%(jobs)s compilers at once may need more memory than this host has; "
            "the system then kills some. %(most)s are safe."
        )
        problems.append(warning("jobs", text, jobs=inputs.jobs, most=most))
    return problems
