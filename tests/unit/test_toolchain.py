"""What a host has for builds: read from what programs print, and compared with what a build needs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controlpanel.llamacpp.problems import Problem
from jobs.domain.buildspec import BuildInputs
from jobs.domain.programs import Compiler, Gpu, Nvcc, Program, Toolchain
from jobs.domain.toolchain import GIB, warnings
from jobs.domain.trees import Tree
from jobs.domain.versions import parse_version

URL = "https://github.com/ggml-org/llama.cpp.git"
CPU = BuildInputs(URL)
CUDA = BuildInputs(URL, backend="cuda")
OLD = Nvcc("/usr/local/cuda-11.8/bin/nvcc", "11.8")
NEW = Nvcc("/usr/local/cuda-12.8/bin/nvcc", "12.8", on_path=True)
NEWEST = Nvcc("/usr/local/cuda-13.0/bin/nvcc", "13.0")
GCC = Compiler("/usr/bin/g++", "gcc", "13.2.0", 13)
HOST = Toolchain(
    programs={
        name: Program(f"/usr/bin/{name}", version)
        for name, version in {"git": "2.39.5", "cmake": "3.28.3", "ninja": "1.11.1", "make": "4.3"}.items()
    },
    compilers=(GCC,),
    nvccs=(NEW,),
    driver="570.86.10",
    driver_cuda="12.8",
    gpus=(Gpu("NVIDIA GeForce RTX 3090", "86"),),
    cores=16,
    memory_mib=64 * 1024,
    disk_free=100 * GIB,
    disk_total=500 * GIB,
    glibc="2.39",
)


def found(toolchain: Toolchain, inputs: BuildInputs, tree: Tree | None = None) -> list[tuple[str, str]]:
    """Level and field of each finding."""
    return [(problem.level, problem.field) for problem in warnings(toolchain, inputs, tree)]


def only(problems: list[Problem]) -> str:
    (problem,) = problems
    return str(problem.message)


def without(*names: str) -> Toolchain:
    """The host without some of its programs."""
    kept = {name: program for name, program in HOST.programs.items() if name not in names}
    return replace(HOST, programs=kept)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("git version 2.39.5", "2.39.5"),
        ("cmake version 3.25.1\n\nCMake suite maintained and supported by Kitware", "3.25.1"),
        ("cmake version 4.0.0-rc1", "4.0.0"),
        ("1.11.1\n", "1.11.1"),
        ("GNU Make 4.3\nBuilt for x86_64-pc-linux-gnu\nLicense GPLv3+: GNU GPL version 3 or later", "4.3"),
        ("ccache version 4.8.2\nFeatures: file-storage", "4.8.2"),
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022", "12.2.0"),
        ("g++-13 (Ubuntu 13.1.0-8ubuntu1~22.04) 13.1.0", "13.1.0"),
        ("g++ (GCC) 14.2.1 20240912 (Red Hat 14.2.1-3)", "14.2.1"),
        ("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu", "14.0.6"),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)", "18.1.3"),
        ("clang version 17.0.6 (https://github.com/llvm/llvm-project 6009708b4367)", "17.0.6"),
        (
            "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2024 NVIDIA Corporation\n"
            "Cuda compilation tools, release 12.4, V12.4.131\nBuild cuda_12.4.r12.4/compiler.34097967_0",
            "12.4",
        ),
        ("shaderc v2023.8 v2023.8-dev\nspirv-tools v2024.1", "2023.8"),
        ("HIP version: 6.0.32830-d62f6a171\nAMD clang version 17.0.0", "6.0.32830"),
        ("ldd (Debian GLIBC 2.36-9+deb12u7) 2.36", "2.36"),
        ("580.95.05", "580.95.05"),
        ("13", "13"),
        ("no number here", ""),
        ("", ""),
    ],
)
def test_versions_are_read_from_what_programs_print(text: str, version: str) -> None:
    assert parse_version(text) == version


def test_a_toolchain_survives_a_json_column() -> None:
    assert Toolchain.from_dict(json.loads(json.dumps(HOST.to_dict()))) == HOST
    assert Toolchain.from_dict({}) == Toolchain()


def test_a_toolchain_of_another_version_is_read_as_far_as_it_is_known() -> None:
    data = json.loads(json.dumps(HOST.to_dict()))
    data["new_fact"] = data["nvccs"][0]["new_fact"] = data["programs"]["git"]["new_fact"] = 1
    del data["glibc"], data["nvccs"][0]["on_path"]
    read = Toolchain.from_dict(data)
    assert read == replace(HOST, glibc="", nvccs=(replace(NEW, on_path=False),))


def test_the_nvcc_of_path_is_taken_unless_another_is_chosen() -> None:
    host = replace(HOST, nvccs=(OLD, NEW))
    assert host.nvcc() == host.path_nvcc == NEW
    assert host.nvcc(OLD.path) == OLD
    assert host.nvcc("/elsewhere/nvcc") is None
    assert replace(HOST, nvccs=(OLD,)).nvcc() == OLD
    assert Toolchain().nvcc() is None


def test_the_cards_tell_their_architectures_once() -> None:
    cards = (Gpu("B", "120"), Gpu("A", "86"), Gpu("A", "86"), Gpu("?", ""))
    assert replace(HOST, gpus=cards).architectures == ("86", "120")


@pytest.mark.parametrize("inputs", [CPU, CUDA, replace(CUDA, architectures=("86",), jobs=8)])
def test_a_host_with_everything_has_no_findings(inputs: BuildInputs) -> None:
    assert warnings(HOST, inputs) == []


@pytest.mark.parametrize(
    ("toolchain", "inputs", "words"),
    [
        (without("git"), CPU, "git is missing on this host. As root, run: apt-get install git"),
        (without("cmake"), CPU, "apt-get install cmake"),
        (replace(HOST, compilers=()), CPU, "apt-get install g++"),
        (without("ninja", "make"), CPU, "apt-get install ninja-build"),
        (HOST, replace(CPU, backend="vulkan"), "apt-get install glslc libvulkan-dev"),
        (HOST, replace(CPU, backend="hip"), "Install ROCm"),
        (replace(HOST, nvccs=()), CUDA, "no CUDA toolkit"),
    ],
)
def test_a_missing_program_is_named_with_what_to_install(
    toolchain: Toolchain, inputs: BuildInputs, words: str
) -> None:
    problems = warnings(toolchain, inputs)
    assert words in only(problems)
    assert problems[0].level == "error"
    assert problems[0].field == ("host" if inputs == CPU else "backend")


def test_what_is_not_needed_is_not_missed() -> None:
    assert warnings(without("ninja"), CPU) == []
    assert warnings(without("git"), BuildInputs("/srv/llama", local=True)) == []
    assert warnings(replace(HOST, nvccs=(), gpus=(), driver=""), CPU) == []


@pytest.mark.parametrize(
    ("have", "tree", "inputs", "expected"),
    [
        ("3.16.3", None, CPU, []),
        ("3.14.0", None, CPU, [("error", "host")]),
        ("3.16.3", Tree(frozenset(), "3.14", cmake_cuda="3.18"), CPU, []),
        ("3.16.3", Tree(frozenset(), "3.14", cmake_cuda="3.18"), CUDA, [("error", "host")]),
        ("3.16.3", None, CUDA, [("error", "host")]),
        ("3.25.1", Tree(frozenset(), "3.28"), CPU, [("error", "host")]),
        ("3.22.1", None, replace(CUDA, architectures=("native",)), [("error", "architectures")]),
        ("3.24.0", None, replace(CUDA, architectures=("native",)), []),
        ("", Tree(frozenset(), "3.28"), CPU, []),
    ],
)
def test_cmake_has_to_be_new_enough(
    have: str, tree: Tree | None, inputs: BuildInputs, expected: list[tuple[str, str]]
) -> None:
    host = replace(HOST, programs={**HOST.programs, "cmake": Program("/usr/bin/cmake", have)})
    assert found(host, inputs, tree) == expected


def test_native_needs_a_card_and_a_toolkit_that_knows_it() -> None:
    native = replace(CUDA, architectures=("native",))
    assert found(replace(HOST, gpus=()), native) == [("error", "architectures")]
    old = replace(HOST, nvccs=(replace(OLD, version="11.4"),), compilers=(replace(GCC, major=10),))
    assert "needs CUDA 11.6" in only(warnings(old, native))


@pytest.mark.parametrize(
    ("nvcc", "card", "inputs", "field", "words"),
    [
        (NEW, "121", CUDA, "nvcc", "needs CUDA 12.9 or newer"),
        (NEWEST, "61", CUDA, "nvcc", "older than CUDA 13.0"),
        (NEWEST, "86", replace(CUDA, architectures=("86", "70")), "architectures", "V100"),
        (NEW, "86", replace(CUDA, architectures=("86", "121a-real")), "architectures", "DGX Spark"),
        (NEW, "121", replace(CUDA, architectures=("native",)), "nvcc", "architecture 121"),
    ],
)
def test_a_toolkit_that_cannot_compile_for_a_card_is_an_error(
    nvcc: Nvcc, card: str, inputs: BuildInputs, field: str, words: str
) -> None:
    host = replace(HOST, nvccs=(nvcc,), gpus=(Gpu("Card", card),), driver="590.10", driver_cuda="13.1")
    problems = warnings(host, inputs)
    assert [(problem.level, problem.field) for problem in problems] == [("error", field)]
    assert words in str(problems[0].message)


def test_a_gcc_that_the_toolkit_does_not_take_is_an_error_that_names_another() -> None:
    gcc11 = Compiler("/usr/bin/g++-11", "gcc", "11.4.0", 11)
    clang = Compiler("/usr/bin/clang++-14", "clang", "14.0.6", 14)
    host = replace(HOST, nvccs=(replace(OLD, on_path=True),), compilers=(GCC, clang, gcc11))
    (problem,) = warnings(host, CUDA)
    assert (problem.level, problem.field) == ("error", "host_compiler")
    assert str(problem.message) == (
        "CUDA 11.8 works with gcc up to version 11, and this is 13: choose /usr/bin/g++-11."
    )
    assert warnings(host, replace(CUDA, host_compiler=gcc11.path)) == []
    assert warnings(host, CPU) == []
    assert "choose /usr/bin/clang++-14" in only(warnings(replace(host, compilers=(GCC, clang)), CUDA))
    assert "apt-get install g++-11" in only(warnings(replace(host, compilers=(GCC,)), CUDA))


def test_a_chosen_compiler_that_is_too_new_is_an_error_too() -> None:
    gcc15 = Compiler("/usr/bin/g++-15", "gcc", "15.1.0", 15)
    host = replace(HOST, compilers=(GCC, gcc15))
    assert found(host, replace(CUDA, host_compiler=gcc15.path)) == [("error", "host_compiler")]


def test_nothing_is_said_of_versions_that_nobody_knows() -> None:
    future = replace(NEW, version="15.0")
    host = replace(HOST, nvccs=(future,), compilers=(replace(GCC, major=20),), driver="", driver_cuda="")
    assert warnings(host, replace(CUDA, architectures=("86",))) == []


def test_a_distribution_s_nvcc_brings_its_own_compiler() -> None:
    packaged = Nvcc("/usr/bin/nvcc", "11.8", on_path=True)
    assert warnings(replace(HOST, nvccs=(packaged,)), CUDA) == []


def test_compilers_that_were_not_found_are_doubted() -> None:
    inputs = replace(CUDA, nvcc="/opt/nvcc", host_compiler="/opt/g++")
    assert found(HOST, inputs) == [("warning", "host_compiler"), ("warning", "nvcc")]


def test_a_card_that_the_build_leaves_out_is_named() -> None:
    problems = warnings(HOST, replace(CUDA, architectures=("89-real",)))
    assert "NVIDIA GeForce RTX 3090: add architecture 86" in only(problems)
    assert found(replace(HOST, gpus=()), CUDA) == [("warning", "architectures")]
    assert warnings(replace(HOST, gpus=()), replace(CUDA, architectures=("86",))) == []


def test_a_card_of_unknown_architecture_is_passed_over() -> None:
    host = replace(HOST, gpus=(Gpu("Card", ""),), driver="535.54.03", driver_cuda="12.2")
    assert warnings(host, replace(CUDA, architectures=("80-virtual",))) == []


def test_a_driver_older_than_the_toolkit_is_a_warning() -> None:
    host = replace(HOST, nvccs=(replace(NEWEST, on_path=True),))
    (problem,) = warnings(host, CUDA)
    assert (problem.level, problem.field) == ("warning", "nvcc")
    assert "driver 570.86.10" in str(problem.message)
    assert "580.65.06" in str(problem.message)


def test_within_a_major_version_an_older_driver_matters_for_translated_code_only() -> None:
    host = replace(HOST, driver="535.54.03", driver_cuda="12.2")
    assert warnings(host, CUDA) == []
    assert warnings(host, replace(CUDA, architectures=("80-real",))) == []
    problems = warnings(host, replace(CUDA, architectures=("80-virtual",)))
    assert "cannot translate" in only(problems)
    assert found(host, replace(CUDA, architectures=("80-virtual",))) == [("warning", "architectures")]


def test_a_toolkit_other_than_path_s_is_told() -> None:
    host = replace(HOST, nvccs=(OLD, NEW), compilers=(replace(GCC, major=11),))
    problems = warnings(host, replace(CUDA, nvcc=OLD.path))
    assert "PATH finds CUDA 12.8" in only(problems)
    assert found(host, replace(CUDA, nvcc=OLD.path)) == [("warning", "nvcc")]
    assert warnings(host, replace(CUDA, nvcc=NEW.path)) == []


def test_a_full_disk_is_an_error() -> None:
    host = replace(HOST, disk_free=2 * GIB)
    assert found(host, CUDA) == [("error", "host")]
    assert found(host, CPU) == []
    assert "Only 0.5 GiB" in only(warnings(replace(HOST, disk_free=GIB // 2), CPU))
    assert warnings(replace(HOST, disk_free=None), CUDA) == []


def test_more_compilers_than_the_memory_holds_are_a_warning() -> None:
    host = replace(HOST, memory_mib=16 * 1024)
    assert found(host, replace(CUDA, jobs=6)) == [("warning", "jobs")]
    assert "5 are safe" in only(warnings(host, replace(CUDA, jobs=6)))
    assert found(host, replace(CUDA, jobs=5)) == []
    assert found(host, CUDA) == []
    assert found(host, replace(CPU, jobs=9)) == [("warning", "jobs")]
    assert found(replace(HOST, memory_mib=None), replace(CPU, jobs=99)) == []
