"""What of a CUDA build cannot work with the toolkits, cards and driver of a host."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.problems import Problem, error, warning
from jobs.domain import cuda
from jobs.domain.buildspec import BuildInputs
from jobs.domain.programs import Compiler, Gpu, Nvcc, Toolchain
from jobs.domain.trees import Tree
from jobs.domain.versions import numbers, older

_OLDEST_CMAKE = "3.18"
_NATIVE_CMAKE = "3.24"
_NATIVE_TOOLKIT = "11.6"
# A distribution's own nvcc brings the host compiler it works with.
_DISTRIBUTION = "/usr/bin/nvcc"


def warnings(toolchain: Toolchain, inputs: BuildInputs, tree: Tree | None) -> list[Problem]:
    """Return what cannot or may not work; nothing is said of versions that the tables do not know."""
    nvcc = toolchain.nvcc(inputs.nvcc)
    if nvcc is None and inputs.nvcc:
        text = N_("%(path)s is not among the compilers found on this host: make sure that it is there.")
        return [warning("nvcc", text, path=inputs.nvcc)]
    if nvcc is None:
        text = N_(
            "There is no CUDA toolkit (nvcc) on this host. "
            "Install NVIDIA's toolkit, or choose another backend."
        )
        return [error("backend", text)]
    return [
        *_cmake(toolchain, inputs, nvcc, tree),
        *_architectures(toolchain, inputs, nvcc),
        *_host_compiler(toolchain, inputs, nvcc),
        *_coverage(toolchain, inputs),
        *_driver(toolchain, inputs, nvcc),
        *_mixed(toolchain, nvcc),
    ]


def _cmake(toolchain: Toolchain, inputs: BuildInputs, nvcc: Nvcc, tree: Tree | None) -> list[Problem]:
    have = toolchain.version("cmake")
    need = max((tree.cmake_cuda if tree else "") or _OLDEST_CMAKE, _OLDEST_CMAKE, key=numbers)
    if older(have, need):
        text = N_("The host has CMake %(have)s, and builds with CUDA need %(need)s. Install a newer one.")
        return [error("host", text, have=have, need=need)]
    if cuda.NATIVE not in inputs.architectures:
        return []
    if older(have, _NATIVE_CMAKE):
        text = N_(
            "“native” needs CMake %(need)s, and the host has %(have)s: choose the architectures by number."
        )
        return [error("architectures", text, have=have, need=_NATIVE_CMAKE)]
    if older(nvcc.version, _NATIVE_TOOLKIT):
        text = N_("“native” needs CUDA %(need)s, and this is %(have)s: choose the architectures by number.")
        return [error("architectures", text, have=nvcc.version, need=_NATIVE_TOOLKIT)]
    if not toolchain.gpus:
        text = N_("“native” needs an NVIDIA card, and none is visible: choose the architectures by number.")
        return [error("architectures", text)]
    return []


def _wanted(toolchain: Toolchain, inputs: BuildInputs) -> tuple[str, ...]:
    """Return the architectures to compile for by number, as far as they are known."""
    if inputs.architectures and cuda.NATIVE not in inputs.architectures:
        return inputs.architectures
    return toolchain.architectures


def _architectures(toolchain: Toolchain, inputs: BuildInputs, nvcc: Nvcc) -> list[Problem]:
    problems = []
    for architecture in _wanted(toolchain, inputs):
        if cuda.compiles(nvcc.version, architecture):
            continue
        if cuda.too_old(nvcc.version, architecture):
            text = N_(
                "CUDA %(toolkit)s cannot compile for architecture %(architecture)s (%(cards)s): "
                "that needs CUDA %(need)s or newer."
            )
            need = cuda.added_in(architecture)
        else:
            text = N_(
                "CUDA %(toolkit)s no longer compiles for architecture %(architecture)s (%(cards)s): "
                "that needs a toolkit older than CUDA %(need)s."
            )
            need = cuda.dropped_in(architecture)
        of_card = cuda.base(architecture) in toolchain.architectures
        problems.append(
            error(
                "nvcc" if of_card else "architectures",
                text,
                toolkit=nvcc.version,
                architecture=cuda.base(architecture),
                cards=cuda.names(architecture) or "?",
                need=need,
            )
        )
    return problems


def _host_compiler(toolchain: Toolchain, inputs: BuildInputs, nvcc: Nvcc) -> list[Problem]:
    compiler = toolchain.compiler(inputs.host_compiler)
    if compiler is None or (nvcc.path == _DISTRIBUTION and not inputs.host_compiler):
        return []
    newest = cuda.newest_compiler(nvcc.version, compiler.kind)
    if newest is None or compiler.major <= newest:
        return []
    other = _fitting(toolchain, nvcc)
    if other:
        text = N_(
            "CUDA %(toolkit)s works with %(kind)s up to version %(newest)s, and this is %(major)s: "
            "choose %(other)s."
        )
    else:
        text = N_(
            "CUDA %(toolkit)s works with %(kind)s up to version %(newest)s, and this is %(major)s. "
            "As root, run: %(other)s"
        )
    return [
        error(
            "host_compiler",
            text,
            toolkit=nvcc.version,
            kind=compiler.kind,
            newest=newest,
            major=compiler.major,
            other=other.path if other else f"apt-get install g++-{cuda.newest_compiler(nvcc.version, 'gcc')}",
        )
    ]


def _fitting(toolchain: Toolchain, nvcc: Nvcc) -> Compiler | None:
    """Return the newest compiler of the host that a toolkit takes, gcc before clang."""
    fitting = [
        compiler
        for compiler in toolchain.compilers
        if 0 < compiler.major <= (cuda.newest_compiler(nvcc.version, compiler.kind) or 0)
    ]
    return max(fitting, key=lambda compiler: (compiler.kind == "gcc", compiler.major), default=None)


def _cards(toolchain: Toolchain) -> list[Gpu]:
    """Return the cards whose architecture is known."""
    return [gpu for gpu in toolchain.gpus if gpu.arch.isdigit()]


def _coverage(toolchain: Toolchain, inputs: BuildInputs) -> list[Problem]:
    if not toolchain.gpus:
        if inputs.architectures:
            return []
        text = N_(
            "No NVIDIA card is visible on this host: choose the architectures of the cards to build for."
        )
        return [warning("architectures", text)]
    if not inputs.architectures:
        return []
    left_out = [gpu for gpu in _cards(toolchain) if not cuda.runs_on(inputs.architectures, gpu.arch)]
    if not left_out:
        return []
    text = N_("The build will not run on this host's %(name)s: add architecture %(architecture)s.")
    return [warning("architectures", text, name=left_out[0].name, architecture=left_out[0].arch)]


def _driver(toolchain: Toolchain, inputs: BuildInputs, nvcc: Nvcc) -> list[Problem]:
    need = cuda.minimum_driver(nvcc.version)
    if need and older(toolchain.driver, need):
        text = N_(
            "Programs made with CUDA %(toolkit)s do not start with the driver %(have)s of this host; "
            "they need %(need)s. Choose an older toolkit, or update the driver."
        )
        return [warning("nvcc", text, toolkit=nvcc.version, have=toolchain.driver, need=need)]
    if not older(toolchain.driver_cuda, nvcc.version):
        return []
    wanted = _wanted(toolchain, inputs)
    translated = [
        gpu
        for gpu in _cards(toolchain)
        if wanted and not any(cuda.has_machine_code(architecture, gpu.arch) for architecture in wanted)
    ]
    if not translated:
        return []
    text = N_(
        "The driver of this host knows CUDA %(driver)s and cannot translate code of CUDA %(toolkit)s for the "
        "%(name)s. Add architecture %(architecture)s, choose an older toolkit, or update the driver."
    )
    return [
        warning(
            "architectures",
            text,
            driver=toolchain.driver_cuda,
            toolkit=nvcc.version,
            name=translated[0].name,
            architecture=translated[0].arch,
        )
    ]


def _mixed(toolchain: Toolchain, nvcc: Nvcc) -> list[Problem]:
    other = toolchain.path_nvcc
    if other is None or numbers(other.version) == numbers(nvcc.version):
        return []
    text = N_(
        "This build uses CUDA %(toolkit)s, while PATH finds CUDA %(other)s. CMake is told which one to take; "
        "if compiling or linking fails all the same, choose %(path)s."
    )
    return [warning("nvcc", text, toolkit=nvcc.version, other=other.version, path=other.path)]
