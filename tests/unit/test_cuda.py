"""CUDA's tables: architectures, host compilers and drivers of the toolkits."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from jobs.domain import cuda
from jobs.domain.versions import parse_version

TOOLKITS = sorted(Path("/usr/local").glob("cuda-*/bin/nvcc"))


@pytest.mark.parametrize(
    ("toolkit", "architecture", "expected"),
    [
        ("11.0", "80", True),
        ("11.0", "86", False),
        ("11.1", "86", True),
        ("11.7", "89", False),
        ("11.8", "89", True),
        ("11.8", "90-real", True),
        ("11.8", "35", True),
        ("12.0", "35", False),
        ("12.6", "120", False),
        ("12.8", "120", True),
        ("12.8", "120a-real", True),
        ("12.8", "121", False),
        ("12.9", "121", True),
        ("12.9", "61", True),
        ("12.9", "70-virtual", True),
        ("13.0", "61", False),
        ("13.0", "70", False),
        ("13.0", "75", True),
        ("13.0", "110", True),
        ("12.9", "110", False),
        ("13.0", "native", True),
        ("13.0", "199", True),
    ],
)
def test_a_toolkit_compiles_for_what_came_before_it_and_was_not_dropped(
    toolkit: str, architecture: str, expected: bool
) -> None:
    assert cuda.compiles(toolkit, architecture) is expected


@pytest.mark.parametrize(
    ("toolkit", "gcc", "clang"),
    [
        ("11.0", 9, 9),
        ("11.4", 10, 11),
        ("11.8", 11, 14),
        ("12.0", 12, 14),
        ("12.2", 12, 15),
        ("12.3", 12, 16),
        ("12.4", 13, 17),
        ("12.6.3", 13, 18),
        ("12.9", 14, 19),
        ("13.0", 15, 20),
        ("13.9", None, None),
        ("10.2", None, None),
        ("", None, None),
    ],
)
def test_a_toolkit_takes_compilers_up_to_a_version(toolkit: str, gcc: int | None, clang: int | None) -> None:
    assert cuda.newest_compiler(toolkit, "gcc") == gcc
    assert cuda.newest_compiler(toolkit, "clang") == clang


@pytest.mark.skipif(not TOOLKITS, reason="there is no CUDA toolkit on this machine")
@pytest.mark.parametrize("nvcc", TOOLKITS, ids=str)
def test_the_toolkits_of_this_machine_agree_with_the_tables(nvcc: Path) -> None:
    toolkit = parse_version(subprocess.check_output([nvcc, "--version"], text=True))
    listed = subprocess.check_output([nvcc, "--list-gpu-arch"], text=True).split()
    offered = {word.removeprefix("compute_") for word in listed}
    judged = {architecture for architecture in offered | set(cuda.NAMES) if cuda.added_in(architecture)}
    assert {
        architecture for architecture in judged if cuda.compiles(toolkit, architecture)
    } == offered & judged
    header = (nvcc.parents[1] / "include/crt/host_config.h").read_text(encoding="utf-8")
    newest = cuda.newest_compiler(toolkit, "gcc")
    if newest is not None:
        assert re.search(rf"#if __GNUC__ > {newest}\b", header)
        limit = re.search(r"clang version must be less than (\d+)", header)
        assert limit is not None
        assert cuda.newest_compiler(toolkit, "clang") == int(limit[1]) - 1


def test_each_major_version_has_its_oldest_driver() -> None:
    assert cuda.minimum_driver("11.8") == "450.80.02"
    assert cuda.minimum_driver("12.4") == "525.60.13"
    assert cuda.minimum_driver("13.0") == "580.65.06"
    assert cuda.minimum_driver("99.0") == ""
    assert cuda.minimum_driver("") == ""


@pytest.mark.parametrize("text", ["86", "86-real", "86-virtual", "120", "120a", "120f-real", "native", "90a"])
def test_architectures_as_cmake_writes_them_are_known(text: str) -> None:
    assert cuda.is_architecture(text)


@pytest.mark.parametrize(
    "text", ["", "8.6", "sm_86", "compute_86", "86-fast", "all", "86;89", "8", "1200", "86 ", "86\n", "٨٦"]
)
def test_other_words_are_no_architectures(text: str) -> None:
    assert not cuda.is_architecture(text)


@pytest.mark.parametrize(
    ("architectures", "card", "runs"),
    [
        (("86",), "86", True),
        (("86-real",), "89", True),
        (("86-real",), "80", False),
        (("80-real",), "120", False),
        (("80",), "120", True),
        (("80-virtual",), "90", True),
        (("89",), "86", False),
        (("61-virtual", "75-real"), "86", True),
        (("120a-real",), "120", True),
        (("120a-real",), "121", False),
        (("100",), "120", True),
        (("native",), "86", True),
        ((), "86", False),
    ],
)
def test_code_runs_on_its_own_generation_or_is_translated(
    architectures: tuple[str, ...], card: str, runs: bool
) -> None:
    assert cuda.runs_on(architectures, card) is runs


def test_what_is_offered_has_names_and_a_toolkit() -> None:
    offered = cuda.common_architectures()
    assert sorted(offered, key=int) == list(offered)
    for architecture in offered:
        assert cuda.names(architecture)
        assert cuda.added_in(architecture)
    assert "3090" in cuda.names("86-real")
    assert cuda.names("99") == ""
