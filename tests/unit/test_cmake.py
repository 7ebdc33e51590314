"""The commands of a build as lists of words, and what is wrong with its inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlpanel.llamacpp.problems import errors
from jobs.domain import mirror as git
from jobs.domain.buildcheck import check_inputs, differences
from jobs.domain.buildspec import BuildInputs
from jobs.domain.cmake import (
    c_compiler,
    commands,
    configure_argv,
    default_jobs,
    job_count,
)
from jobs.domain.programs import Gpu, Nvcc, Program, Toolchain
from jobs.domain.trees import Tree, tree_with

URL = "https://github.com/ggml-org/llama.cpp.git"
INPUTS = BuildInputs(URL)
CUDA = BuildInputs(URL, backend="cuda")
NVCC = "/usr/local/cuda-12.4/bin/nvcc"
HOST = Toolchain(
    programs={"ninja": Program("/usr/bin/ninja", "1.11")},
    nvccs=(Nvcc(NVCC, "12.4"), Nvcc("/usr/local/cuda-11.8/bin/nvcc", "11.8", on_path=True)),
    gpus=(Gpu("RTX 4090", "89"), Gpu("RTX 3090", "86"), Gpu("RTX 3090", "86")),
    cores=16,
    memory_mib=32 * 1024,
)
LISTS = Tree(
    frozenset(
        {"GGML_CUDA", "GGML_CUDA_FA_QUANTS", "GGML_CCACHE", "LLAMA_BUILD_TOOLS", "LLAMA_USE_PREBUILT_UI"}
    ),
    cuda_fa="list",
    targets=frozenset({"llama-server", "llama-bench"}),
)


def configured(
    inputs: BuildInputs, tree: Tree | None = None, toolchain: Toolchain = HOST, **version: object
) -> dict[str, str]:
    """The definitions of the configure command, by name."""
    argv = configure_argv(inputs, "/s", "/b", tree=tree, toolchain=toolchain, **version)  # type: ignore[arg-type]
    words = [word.removeprefix("-D") for word in argv if word.startswith("-D")]
    pairs = [word.partition("=")[::2] for word in words]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize(
    ("cores", "memory", "backend", "jobs"),
    [
        (16, 64 * 1024, "cpu", 16),
        (16, 16 * 1024, "cpu", 8),
        (16, 16 * 1024, "cuda", 5),
        (2, 64 * 1024, "cuda", 2),
        (8, 1024, "cuda", 1),
        (0, 0, "cpu", 1),
        (4, None, "cuda", 4),
    ],
)
def test_compilers_run_as_cores_and_memory_allow(
    cores: int, memory: int | None, backend: str, jobs: int
) -> None:
    assert default_jobs(cores, memory, backend) == jobs


def test_a_chosen_number_of_compilers_is_taken() -> None:
    assert job_count(INPUTS, HOST) == 16
    assert job_count(replace(INPUTS, jobs=3), HOST) == 3


@pytest.mark.parametrize(
    ("cxx", "c"),
    [
        ("/usr/bin/g++-13", "/usr/bin/gcc-13"),
        ("/usr/bin/g++", "/usr/bin/gcc"),
        ("/usr/bin/c++", "/usr/bin/cc"),
        ("/usr/lib/llvm-17/bin/clang++", "/usr/lib/llvm-17/bin/clang"),
        ("/usr/bin/clang++-17", "/usr/bin/clang-17"),
        ("/opt/x86_64-linux-gnu-g++-12", "/opt/x86_64-linux-gnu-gcc-12"),
        ("/opt/my-compiler", ""),
        ("/opt/g++/icpx", ""),
    ],
)
def test_the_c_compiler_is_the_one_beside(cxx: str, c: str) -> None:
    assert c_compiler(cxx) == c


def test_a_build_is_a_release_with_libraries_that_may_be_moved() -> None:
    argv = configure_argv(INPUTS, "/s", "/b", tree=None, toolchain=HOST)
    assert argv[:7] == ["cmake", "-S", "/s", "-B", "/b", "-G", "Ninja"]
    found = configured(INPUTS)
    assert found["CMAKE_BUILD_TYPE"] == "Release"
    assert found["BUILD_SHARED_LIBS"] == "ON"
    assert found["CMAKE_BUILD_WITH_INSTALL_RPATH"] == "ON"
    assert found["CMAKE_INSTALL_RPATH"] == "$ORIGIN"
    assert found["GGML_NATIVE"] == found["GGML_CCACHE"] == "ON"
    assert not {"GGML_CUDA", "CMAKE_CUDA_ARCHITECTURES", "CMAKE_CUDA_COMPILER"} & found.keys()
    assert configured(replace(INPUTS, native=False, ccache=False))["GGML_NATIVE"] == "OFF"


def test_without_ninja_make_is_used() -> None:
    argv = configure_argv(INPUTS, "/s", "/b", tree=None, toolchain=Toolchain())
    assert argv[5:7] == ["-G", "Unix Makefiles"]


def test_nothing_is_downloaded_and_nothing_built_that_is_not_asked_for() -> None:
    names = {"LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_WEBUI", "LLAMA_BUILD_TESTS"}
    names |= {"LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_APP"}
    found = configured(INPUTS)
    assert {found[name] for name in names} == {"OFF"}
    assert names & configured(INPUTS, LISTS).keys() == {"LLAMA_USE_PREBUILT_UI"}


def test_a_server_among_the_examples_is_built() -> None:
    tree = tree_with(["LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_TESTS"])
    assert configured(INPUTS, tree)["LLAMA_BUILD_EXAMPLES"] == "ON"
    tree = tree_with(["LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_TOOLS"])
    assert configured(INPUTS, tree)["LLAMA_BUILD_EXAMPLES"] == "OFF"


def test_the_version_is_told_when_it_is_known() -> None:
    found = configured(INPUTS, commit="67f38aa53a35dba17e82a489322a16df2100ce6f", number=9123)
    assert (found["LLAMA_BUILD_COMMIT"], found["LLAMA_BUILD_NUMBER"]) == ("67f38aa53", "9123")
    found = configured(INPUTS)
    assert (found["LLAMA_BUILD_COMMIT"], found["LLAMA_BUILD_NUMBER"]) == ("unknown", "0")
    assert "LLAMA_BUILD_COMMIT" not in configured(INPUTS, commit=None)


def test_cuda_is_built_for_the_cards_of_the_host_with_the_nvcc_of_path() -> None:
    found = configured(CUDA)
    assert found["GGML_CUDA"] == "ON"
    assert found["CMAKE_CUDA_ARCHITECTURES"] == "86-real;89-real"
    assert found["CMAKE_CUDA_COMPILER"] == "/usr/local/cuda-11.8/bin/nvcc"
    assert found["CUDAToolkit_ROOT"] == "/usr/local/cuda-11.8"
    assert "CMAKE_CUDA_HOST_COMPILER" not in found


def test_chosen_architectures_and_compilers_are_passed_on() -> None:
    inputs = replace(
        CUDA, architectures=("75", "86-real"), nvcc=NVCC, host_compiler="/usr/bin/g++-13", native=False
    )
    found = configured(inputs)
    assert found["CMAKE_CUDA_ARCHITECTURES"] == "75;86-real"
    assert (found["CMAKE_CUDA_COMPILER"], found["CUDAToolkit_ROOT"]) == (NVCC, "/usr/local/cuda-12.4")
    assert found["CMAKE_CXX_COMPILER"] == found["CMAKE_CUDA_HOST_COMPILER"] == "/usr/bin/g++-13"
    assert found["CMAKE_C_COMPILER"] == "/usr/bin/gcc-13"


def test_without_cards_and_toolkits_the_source_and_cmake_decide() -> None:
    found = configured(CUDA, toolchain=Toolchain())
    names = {"CMAKE_CUDA_ARCHITECTURES", "CMAKE_CUDA_COMPILER", "CUDAToolkit_ROOT"}
    assert not names & found.keys()
    found = configured(replace(CUDA, nvcc="/usr/bin/nvcc"), toolchain=Toolchain())
    assert found["CMAKE_CUDA_COMPILER"] == "/usr/bin/nvcc"
    assert "CUDAToolkit_ROOT" not in found


def test_architectures_and_nvcc_mean_nothing_to_other_backends() -> None:
    found = configured(replace(INPUTS, backend="vulkan", architectures=("86",), nvcc=NVCC, fa_quants="all"))
    assert found["GGML_VULKAN"] == "ON"
    assert not [name for name in found if "CUDA" in name]


def test_hip_has_another_name_in_older_sources() -> None:
    hip = replace(INPUTS, backend="hip")
    assert configured(hip)["GGML_HIP"] == "ON"
    assert configured(hip, tree_with(["GGML_HIP", "GGML_HIPBLAS"]))["GGML_HIP"] == "ON"
    old = configured(hip, tree_with(["GGML_HIPBLAS"]))
    assert old["GGML_HIPBLAS"] == "ON"
    assert "GGML_HIP" not in old


def test_cache_types_are_chosen_by_the_option_that_the_source_has() -> None:
    everything = replace(CUDA, fa_quants="all")
    assert configured(everything, LISTS)["GGML_CUDA_FA_QUANTS"] == "all"
    older = configured(everything, tree_with(["GGML_CUDA_FA_ALL_QUANTS"]))
    assert older["GGML_CUDA_FA_ALL_QUANTS"] == "ON"
    assert "GGML_CUDA_FA_QUANTS" not in older
    pairs = "q8_0-q4_0;f16-f16"
    assert configured(replace(CUDA, fa_quants=pairs), LISTS)["GGML_CUDA_FA_QUANTS"] == pairs
    assert "GGML_CUDA_FA_QUANTS" not in configured(CUDA, LISTS)


def test_own_definitions_come_last() -> None:
    inputs = replace(INPUTS, definitions=(("GGML_LTO", "ON"), ("CMAKE_CXX_FLAGS", "-O3 -g")))
    argv = configure_argv(inputs, "/s", "/b", tree=None, toolchain=HOST)
    assert argv[-2:] == ["-DGGML_LTO=ON", "-DCMAKE_CXX_FLAGS=-O3 -g"]


def test_the_steps_of_a_build_are_in_order() -> None:
    steps = commands(replace(INPUTS, ref="b1"), HOST, LISTS, "/m", "/s", "/b")
    assert [step.name for step in steps] == ["fetch", "checkout", "configure", "compile"]
    assert steps[0].argv == git.fetch_argv("/m", URL, "b1", local=False)
    assert steps[1].argv == git.checkout_argv("/m", "/s", "b1")
    assert not [word for word in steps[2].argv if "LLAMA_BUILD_COMMIT" in word]
    known = commands(INPUTS, HOST, LISTS, "/m", "/s", "/b", commit="0" * 40, number=7)
    assert known[1].argv[-1] == "0" * 40
    assert "-DLLAMA_BUILD_NUMBER=7" in known[2].argv


def test_what_the_source_lacks_is_not_compiled() -> None:
    step = commands(INPUTS, HOST, LISTS, "/m", "/s", "/b")[-1]
    assert step.argv == ["cmake", "--build", "/b", "--target", "llama-server", "llama-bench", "-j", "16"]
    step = commands(INPUTS, HOST, None, "/m", "/s", "/b")[-1]
    assert step.argv[4:-2] == ["llama-server", "llama-bench", "llama-fit-params"]


def test_a_folder_without_git_is_configured_as_it_is() -> None:
    steps = commands(BuildInputs("/srv/llama", local=True), HOST, LISTS, "", "/srv/llama", "/b")
    assert [step.name for step in steps] == ["configure", "compile"]
    assert "-DLLAMA_BUILD_COMMIT=unknown" in steps[0].argv


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"repository": "file:///etc"}, "repository", "not over file"),
        ({"repository": "llama", "local": True}, "repository", "full path"),
        ({"repository": "/a\nb", "local": True}, "repository", "full path"),
        ({"ref": "-b"}, "ref", "does not begin"),
        ({"backend": "metal"}, "backend", "no backend metal"),
        ({"backend": "cuda", "architectures": ("sm_86",)}, "architectures", "sm_86 is no CUDA architecture"),
        ({"backend": "cuda", "architectures": ("native", "86")}, "architectures", "stands alone"),
        ({"backend": "cuda", "architectures": ("86",) * 33}, "architectures", "at most 32"),
        ({"nvcc": "nvcc"}, "nvcc", "full path"),
        ({"host_compiler": "/usr/bin/g++;x"}, "host_compiler", "full path"),
        ({"jobs": -1}, "jobs", "from 1 to 512"),
        ({"jobs": 513}, "jobs", "from 1 to 512"),
        ({"targets": ("llama-server", "all")}, "targets", "does not build all"),
        ({"targets": ("llama-bench",)}, "targets", "Without llama-server"),
        ({"targets": ()}, "targets", "Without llama-server"),
        ({"backend": "cuda", "fa_quants": "q8_0"}, "fa_quants", "pairs of cache types"),
        ({"backend": "cuda", "fa_quants": "q8_0-q4_0; -DX=1"}, "fa_quants", "pairs of cache types"),
        ({"definitions": (("LLAMA_MTP", "ON"),)}, "definitions", "LLAMA_MTP"),
        ({"definitions": (("GGML_LTO", "ON"), ("GGML_LTO", "OFF"))}, "definitions", "set twice"),
        ({"definitions": tuple((f"A{i}", "") for i in range(65))}, "definitions", "At most 64"),
    ],
)
def test_wrong_inputs_are_named_by_their_field(changed: dict[str, object], field: str, words: str) -> None:
    found = errors(check_inputs(replace(INPUTS, **changed), None))  # type: ignore[arg-type]
    assert [problem.field for problem in found] == [field]
    assert words in str(found[0].message)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"ref": "67f38aa"},
        {"repository": "/srv/llama.cpp", "local": True},
        {"backend": "cuda", "architectures": ("native",)},
        {"backend": "cuda", "architectures": ("86", "120a-real"), "fa_quants": "q8_0-turbo4_0;f16-f16"},
        {"backend": "cuda", "fa_quants": "all"},
        {"backend": "cpu", "architectures": ("nonsense",), "fa_quants": "nonsense"},
        {"jobs": 512},
    ],
)
def test_right_inputs_pass(changed: dict[str, object]) -> None:
    assert check_inputs(replace(INPUTS, **changed), None) == []  # type: ignore[arg-type]


def test_the_source_decides_which_cache_types_can_be_chosen() -> None:
    pairs, everything = replace(CUDA, fa_quants="q8_0-q4_0"), replace(CUDA, fa_quants="all")
    older, without = tree_with(["GGML_CUDA_FA_ALL_QUANTS"]), tree_with(["GGML_CUDA"])
    assert check_inputs(pairs, LISTS)[0].level == "warning"  # of a target only
    assert [problem.field for problem in errors(check_inputs(pairs, older))] == ["fa_quants"]
    assert check_inputs(everything, older) == []
    assert [problem.field for problem in errors(check_inputs(everything, without))] == ["fa_quants"]


def test_a_program_that_the_source_lacks_is_a_warning() -> None:
    (problem,) = check_inputs(INPUTS, LISTS)
    assert (problem.level, problem.field) == ("warning", "targets")
    assert "llama-fit-params" in str(problem.message)


def test_differences_are_told_field_by_field() -> None:
    new = replace(INPUTS, ref="b2", architectures=("86", "89"), definitions=(("GGML_LTO", "ON"),), jobs=4)
    assert differences(INPUTS, new) == [
        ("ref", "", "b2"),
        ("architectures", "", "86, 89"),
        ("jobs", "0", "4"),
        ("definitions", "", "GGML_LTO=ON"),
    ]
    assert differences(INPUTS, INPUTS) == []
