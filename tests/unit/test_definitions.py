"""CMake definitions of people: known ones pass, others are refused or doubted with the right name."""

from __future__ import annotations

import pytest

from controlpanel.llamacpp.problems import Problem
from jobs.domain.definitions import KNOWN, MAX_VALUE, check_definition, known
from jobs.domain.trees import tree_with


def said(problem: Problem | None) -> str:
    assert problem is not None
    assert problem.field == "definitions"
    return str(problem.message)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("GGML_CUDA_FORCE_MMQ", "ON"),
        ("GGML_CUDA_FORCE_CUBLAS", "off"),
        ("GGML_CUDA_PEER_MAX_BATCH_SIZE", "256"),
        ("GGML_CUDA_COMPRESSION_MODE", "balance"),
        ("GPU_TARGETS", "gfx1030;gfx1100"),
        ("GGML_BLAS_VENDOR", "OpenBLAS"),
        ("GGML_AVX512", "OFF"),
        ("LLAMA_OPENSSL", "OFF"),
        ("CMAKE_CXX_FLAGS", "-march=znver4 -O3"),
        ("CMAKE_PREFIX_PATH", "/opt/rocm;/opt/other"),
        ("MY_OWN", ""),
    ],
)
def test_right_definitions_pass(key: str, value: str) -> None:
    assert check_definition(key, value) is None


def test_all_known_options_pass_and_have_a_help() -> None:
    values = {"GGML_CUDA_COMPRESSION_MODE": "size", "GGML_BLAS_VENDOR": "FLAME", "GPU_TARGETS": "gfx1100"}
    values |= {"AMDGPU_TARGETS": "gfx1100", "CMAKE_HIP_ARCHITECTURES": "gfx1100"}
    for key, text in KNOWN.items():
        assert known(key)
        assert text.endswith((".", "…"))
        assert check_definition(key, values.get(key, "1")) is None
    assert not known("CMAKE_CXX_FLAGS")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("LLAMA_MTP", "switched on in the server profile"),
        ("LLAMA_CUBLAS", "the field “Backend”"),
        ("LLAMA_CUDA", "the field “Backend”"),
        ("LLAMA_VULKAN", "the field “Backend”"),
        ("LLAMA_HIPBLAS", "the field “Backend”"),
        ("LLAMA_AVX", "write GGML_AVX."),
        ("LLAMA_AVX2", "write GGML_AVX2."),
        ("LLAMA_AVX512", "write GGML_AVX512."),
        ("LLAMA_AVX512_VNNI", "write GGML_AVX512_VNNI."),
        ("LLAMA_FMA", "write GGML_FMA."),
        ("LLAMA_F16C", "write GGML_F16C."),
        ("LLAMA_RPC", "write GGML_RPC."),
        ("LLAMA_LTO", "write GGML_LTO."),
        ("LLAMA_BLAS", "write GGML_BLAS."),
        ("LLAMA_OPENBLAS", "write GGML_BLAS."),
        ("LLAMA_CUDA_FORCE_MMQ", "write GGML_CUDA_FORCE_MMQ."),
        ("LLAMA_CURL", "LLAMA_OPENSSL"),
        ("LLAMA_NATIVE", "the field “For this machine's own processor”"),
        ("LLAMA_CCACHE", "the field “Compiler cache”"),
        ("LLAMA_METAL", "macOS"),
        ("GGML_METAL", "macOS"),
        ("LLAMA_CLBLAST", "removed"),
        ("GGML_TURBOQUANT", "server profile"),
        ("GGML_CUDNN", "cuDNN"),
        ("GGML_CUDA", "set by the field “Backend”"),
        ("GGML_HIP", "set by the field “Backend”"),
        ("GGML_NATIVE", "set by the field “For this machine's own processor”"),
        ("GGML_CCACHE", "set by the field “Compiler cache”"),
        ("GGML_CUDA_FA_ALL_QUANTS", "set by the field “Flash attention quants”"),
        ("GGML_CUDA_FA_QUANTS", "set by the field “Flash attention quants”"),
        ("CMAKE_CUDA_ARCHITECTURES", "set by the field “CUDA architectures”"),
        ("CUDA_ARCHITECTURES", "the field “CUDA architectures”"),
        ("CMAKE_CUDA_COMPILER", "set by the field “CUDA compiler”"),
        ("CMAKE_CXX_COMPILER", "set by the field “Host compiler”"),
        ("CMAKE_CUDA_HOST_COMPILER", "set by the field “Host compiler”"),
        ("CMAKE_BUILD_TYPE", "The panel sets CMAKE_BUILD_TYPE itself"),
        ("BUILD_SHARED_LIBS", "itself"),
        ("GGML_STATIC", "itself"),
        ("CMAKE_INSTALL_PREFIX", "itself"),
        ("CMAKE_INSTALL_RPATH", "itself"),
        ("CMAKE_RUNTIME_OUTPUT_DIRECTORY", "itself"),
        ("LLAMA_USE_PREBUILT_UI", "itself"),
        ("LLAMA_BUILD_WEBUI", "itself"),
        ("LLAMA_BUILD_SERVER", "itself"),
    ],
)
def test_wrong_names_are_refused_with_the_right_one(key: str, words: str) -> None:
    problem = check_definition(key, "ON")
    assert words in said(problem)
    assert problem is not None
    assert problem.level == "error"


@pytest.mark.parametrize("key", ["", "1A", "A-B", "A B", "A:BOOL", "-DA", "A=B", "Ä", "A" * 101, "A\n"])
def test_names_that_cmake_does_not_take_are_refused(key: str) -> None:
    assert "no name of a CMake option" in said(check_definition(key, "ON"))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("A", "a\nb", "line break"),
        ("A", "a\0b", "line break"),
        ("A", "a\x1bb", "line break"),
        ("A", 'a"b', 'contains “"”'),
        ("A", "a'b", "contains “'”"),
        ("A", "a`b", "contains “`”"),
        ("A", "$ENV{HOME}", "contains “$”"),
        ("A", "a;b", "takes one value"),
        ("A", "a" * (MAX_VALUE + 1), "longer than 500"),
        ("GGML_CUDA_FORCE_MMQ", "maybe", "write ON or OFF"),
        ("GGML_CUDA_FORCE_MMQ", "", "write ON or OFF"),
        ("GGML_CUDA_PEER_MAX_BATCH_SIZE", "many", "many is no value for GGML_CUDA_PEER_MAX_BATCH_SIZE"),
        ("GGML_CUDA_COMPRESSION_MODE", "size -o x", "no value"),
        ("GPU_TARGETS", "gfx1030;native", "no value"),
    ],
)
def test_values_that_break_out_or_mean_nothing_are_refused(key: str, value: str, words: str) -> None:
    problem = check_definition(key, value)
    assert words in said(problem)
    assert problem is not None
    assert problem.level == "error"


def test_a_name_that_is_nearly_known_is_doubted() -> None:
    problem = check_definition("GGML_CUDA_FORCE_MMQS", "ON")
    assert "Did you mean GGML_CUDA_FORCE_MMQ?" in said(problem)
    assert problem is not None
    assert problem.level == "warning"
    assert check_definition("GGML_SOMETHING_ELSE_ENTIRELY", "ON") is None


def test_with_the_tree_known_its_own_options_decide() -> None:
    tree = tree_with(["LLAMA_CURL", "GGML_CUDA_F16", "GGML_AVXVNNI", "GGML_CUDA_FORCE_MMQ"])
    assert check_definition("LLAMA_CURL", "ON", tree) is None
    assert check_definition("GGML_AVXVNNI", "ON", tree) is None
    doubted = check_definition("GGML_AVX_VNNI", "ON", tree)
    assert "Did you mean GGML_AVXVNNI?" in said(doubted)
    assert "CMake would ignore it." in said(check_definition("GGML_LTO", "ON", tree))
    assert "itself" in said(check_definition("BUILD_SHARED_LIBS", "ON", tree))
