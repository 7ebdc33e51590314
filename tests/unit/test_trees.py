"""Source trees of llama.cpp, read from small copies of what their CMake files say."""

from __future__ import annotations

import time

import pytest

from jobs.domain.trees import MAX_TEXT, Tree, not_llama, tree_of, tree_with

# A fork of spring 2026: tools, the older choice of cache types, a page that is part of the source
FORK = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.14...3.28) # for add_link_options
project("llama.cpp" C CXX)
    option(LLAMA_WASM_SINGLE_FILE "embed" OFF)
option(BUILD_SHARED_LIBS "build shared libraries" ${BUILD_SHARED_LIBS_DEFAULT})
option(LLAMA_BUILD_TESTS    "llama: build tests"          ${LLAMA_STANDALONE})
option(LLAMA_BUILD_TOOLS    "llama: build tools"          ${LLAMA_STANDALONE})
option(LLAMA_BUILD_EXAMPLES "llama: build examples"       ${LLAMA_STANDALONE})
option(LLAMA_BUILD_WEBUI    "llama: build the page"       ON)
if (NOT DEFINED LLAMA_BUILD_NUMBER)
    set(LLAMA_BUILD_NUMBER ${BUILD_NUMBER})
endif()
set(LLAMA_BIN_INSTALL_DIR     ${CMAKE_INSTALL_BINDIR}     CACHE PATH "Location of binary  files")
""",
    "ggml/CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.14...3.28)
set(GGML_VERSION_MAJOR 0)
option(GGML_CCACHE "ggml: use ccache if available"                   ON)
option(GGML_CUDA                            "ggml: use CUDA"                                  OFF)
set   (GGML_CUDA_PEER_MAX_BATCH_SIZE "128" CACHE STRING
                                            "ggml: max. batch size for using peer access")
option(GGML_CUDA_FA_ALL_QUANTS              "ggml: compile all quants for FlashAttention"     OFF)
# option(GGML_GONE "ggml: no more" OFF)
option(GGML_HIP                             "ggml: use HIP"                                   OFF)
""",
    "ggml/src/ggml-cuda/CMakeLists.txt": "cmake_minimum_required(VERSION 3.18)\nfind_package(CUDAToolkit)\n",
    "tools/server/CMakeLists.txt": """\
set(TARGET server-context)
add_library(${TARGET} STATIC server-task.cpp)
set(TARGET llama-server)
add_executable(${TARGET} ${TARGET_SRCS})
""",
    "tools/mtmd/CMakeLists.txt": """\
add_executable(llama-llava-cli    deprecation-warning.cpp)
set(TARGET llama-mtmd-cli)
add_executable         (${TARGET} mtmd-cli.cpp)
""",
}
# The server among the examples, as in ik_llama.cpp
OLD_LAYOUT = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.14)
project("llama.cpp" C CXX)
option(LLAMA_BUILD_TESTS    "llama: build tests"          ${LLAMA_STANDALONE})
option(LLAMA_BUILD_EXAMPLES "llama: build examples"       ${LLAMA_STANDALONE})
option(LLAMA_CURL "llama: use libcurl to download model from an URL" OFF)
""",
    "ggml/CMakeLists.txt": """\
option(GGML_CUDA_FA_ALL_QUANTS              "ggml: compile all quants for FlashAttention"     OFF)
option(GGML_HIPBLAS                         "ggml: use hipBLAS"                               OFF)
""",
    "examples/server/CMakeLists.txt": "set(TARGET llama-server)\nadd_executable(${TARGET} ${TARGET_SRCS})\n",
}


def test_the_options_of_a_fork_are_found() -> None:
    tree = tree_of(FORK)
    assert {
        "BUILD_SHARED_LIBS",
        "LLAMA_BUILD_WEBUI",
        "LLAMA_BUILD_NUMBER",
        "LLAMA_BIN_INSTALL_DIR",
        "GGML_CUDA",
        "GGML_CUDA_PEER_MAX_BATCH_SIZE",
    } <= tree.options
    assert not {"GGML_GONE", "GGML_VERSION_MAJOR", "LLAMA_STANDALONE", "LLAMA_BUILD_UI"} & tree.options
    assert tree.cuda_fa == "all"
    assert not tree.server_in_examples


def test_the_programs_are_found_under_the_name_they_are_given_before() -> None:
    assert tree_of(FORK).targets == {"llama-server", "llama-llava-cli", "llama-mtmd-cli"}


def test_what_only_cuda_needs_of_cmake_is_kept_apart() -> None:
    tree = tree_of(FORK)
    assert (tree.cmake_minimum, tree.cmake_cuda) == ("3.14", "3.18")


def test_the_highest_demand_on_cmake_counts() -> None:
    texts = {**FORK, "ggml/CMakeLists.txt": "cmake_minimum_required( VERSION 3.9.1 )"}
    assert tree_of(texts).cmake_minimum == "3.14"
    texts["tools/CMakeLists.txt"] = "CMAKE_MINIMUM_REQUIRED(VERSION 3.28)"
    assert tree_of(texts).cmake_minimum == "3.28"


def test_a_server_among_the_examples_is_noticed_also_from_the_options_alone() -> None:
    tree = tree_of(OLD_LAYOUT)
    assert tree.server_in_examples
    known = tree_with(sorted(tree.options))
    assert known is not None
    assert known.server_in_examples
    assert known.cuda_fa == "all"
    assert known.targets == frozenset()
    assert tree_with([]) is None


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ('set(GGML_CUDA_FA_QUANTS "q4_0-q4_0;f16-f16" CACHE STRING "ggml: pairs")', "list"),
        ('option(GGML_CUDA_FA_ALL_QUANTS "ggml: all" OFF)', "all"),
        ("", "none"),
    ],
)
def test_the_choice_of_cache_types_is_told_by_the_options(option: str, kind: str) -> None:
    assert tree_of({"ggml/CMakeLists.txt": option}).cuda_fa == kind


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({}, "no CMakeLists.txt"),
        ({"tools/server/CMakeLists.txt": "add_executable(llama-server a.cpp)"}, "no CMakeLists.txt"),
        ({"CMakeLists.txt": 'project("zlib" C)\nadd_executable(minigzip a.c)'}, "no llama-server"),
        ({"CMakeLists.txt": "# add_executable(llama-server a.cpp)"}, "no llama-server"),
    ],
)
def test_a_source_that_is_no_llama_is_told_why(texts: dict[str, str], words: str) -> None:
    assert words in str(not_llama(texts))


@pytest.mark.parametrize("texts", [FORK, OLD_LAYOUT])
def test_a_llama_is_one(texts: dict[str, str]) -> None:
    assert not_llama(texts) is None


@pytest.mark.parametrize(
    "piece",
    ["set(A ", "option(", "set(TARGET ", "cmake_minimum_required(VERSION 1", " ", "#", "(", "set(A x "],
)
def test_a_hostile_file_takes_bounded_time(piece: str) -> None:
    text = piece * (2 * MAX_TEXT // len(piece))
    began = time.perf_counter()
    tree = tree_of({"CMakeLists.txt": text})
    assert time.perf_counter() - began < 5
    assert isinstance(tree, Tree)
