"""How far a build is, from lines that ninja, make and git really print."""

from __future__ import annotations

import pytest

from jobs.domain.progress import Progress, build_progress, git_progress


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["[12/222] Building CXX object src/CMakeFiles/llama.dir/llama-model.cpp.o"],
            Progress(12, 222, "src/llama-model.cpp"),
        ),
        (
            ["[221/222] Linking CXX executable bin/llama-server", "/usr/bin/ld: warning"],
            Progress(221, 222, "Linking llama-server"),
        ),
        (
            ["[30/222] Linking CXX shared library bin/libggml-base.so.0.10.2"],
            Progress(30, 222, "Linking libggml-base.so.0.10.2"),
        ),
        (
            [
                "[  1%] Building C object ggml/src/CMakeFiles/ggml-base.dir/ggml.c.o",
                "[ 12%] Building CUDA object ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/fattn.cu.o",
            ],
            Progress(12, 100, "ggml/src/ggml-cuda/fattn.cu"),
        ),
        (["[100%] Built target llama-server"], Progress(100, 100, "Built target llama-server")),
        (
            ["\x1b[32m[ 50%] \x1b[1mBuilding CXX object a.dir/b.cpp.o\x1b[0m"],
            Progress(50, 100, "a.dir/b.cpp"),
        ),
        (
            ["[1/3] Building C object a.c.o\r[2/3] Building C object b.c.o\r"],
            Progress(2, 3, "b.c"),
        ),
        (["[3/7] Generating build-info.cpp\n"], Progress(3, 7, "Generating build-info.cpp")),
    ],
)
def test_the_newest_count_of_a_build_is_found(lines: list[str], expected: Progress) -> None:
    assert build_progress(lines) == expected


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["-- Configuring done"],
        ["[9/3] too many"],
        ["[0/0] nothing"],
        ["[120%] more"],
        ["note: [1/2] elsewhere in a line"],
    ],
)
def test_other_lines_are_no_count_of_a_build(lines: list[str]) -> None:
    assert build_progress(lines) is None


def test_a_long_command_is_cut() -> None:
    found = build_progress(["[1/2] cd /x && " + "y" * 5000])
    assert found is not None
    assert len(found.text) == 200


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [
                "remote: Enumerating objects: 1000, done.",
                "remote: Counting objects: 100% (1000/1000), done.\n",
                "Receiving objects:  44% (440/1000), 1.10 MiB | 2.20 MiB/s\r"
                "Receiving objects:  45% (450/1000), 1.20 MiB | 2.20 MiB/s\r",
            ],
            Progress(450, 1000, "Receiving objects, 1.20 MiB, 2.20 MiB/s"),
        ),
        (["Resolving deltas: 100% (600/600), done."], Progress(600, 600, "Resolving deltas")),
        (["remote: Compressing objects:  10% (1/10)"], Progress(1, 10, "Compressing objects")),
        (
            ["Receiving objects: 100% (3/3), 273 bytes | 273.00 KiB/s, done."],
            Progress(3, 3, "Receiving objects, 273 bytes, 273.00 KiB/s"),
        ),
        (["Updating files:  51% (1275/2500)"], Progress(1275, 2500, "Updating files")),
    ],
)
def test_the_newest_count_of_git_is_found(lines: list[str], expected: Progress) -> None:
    assert git_progress(lines) == expected


@pytest.mark.parametrize(
    "lines", [[], ["From /srv/llama"], ["remote: Total 3 (delta 0)"], ["Receiving objects:   0% (0/0)"]]
)
def test_other_lines_are_no_count_of_git(lines: list[str]) -> None:
    assert git_progress(lines) is None
