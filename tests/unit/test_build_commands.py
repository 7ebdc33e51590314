"""The commands of a build, really run: git, CMake with both generators, and the program that comes out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from jobs.domain import mirror as git
from jobs.domain.buildspec import BuildInputs
from jobs.domain.cmake import commands, compile_argv, configure_argv
from jobs.domain.programs import Program, Toolchain
from jobs.domain.trees import tree_of

PROJECT = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.14)
project("llama.cpp" CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
option(BUILD_SHARED_LIBS "shared" OFF)
option(GGML_NATIVE "native" OFF)
option(GGML_CCACHE "ccache" OFF)
add_library(ggml ggml.cpp)
foreach (NAME llama-bench llama-fit-params llama-quantize)
    add_executable(${NAME} main.cpp)
    target_link_libraries(${NAME} ggml)
endforeach()
add_executable(llama-server main.cpp)
target_link_libraries(llama-server ggml)
target_compile_definitions(llama-server PRIVATE VERSION="b${LLAMA_BUILD_NUMBER}-${LLAMA_BUILD_COMMIT}")
""",
    "ggml.cpp": "int answer() { return 42; }\n",
    "main.cpp": """\
#include <cstdio>
#ifndef VERSION
#define VERSION ""
#endif
int answer();
int main() { puts(VERSION); return answer() - 42; }
""",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A git repository with a project that looks like a llama.cpp from outside."""
    folder = tmp_path / "origin"
    folder.mkdir()
    for name, text in PROJECT.items():
        (folder / name).write_text(text)
    for words in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "first"],
        ["tag", "b1"],
        ["branch", "feature/mtp"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def run(argv: list[str], cwd: Path) -> str:
    """Run a command with nothing from the outside but PATH, and return what it prints."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", **git.ENVIRONMENT}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("ninja", [True, False], ids=["ninja", "make"])
def test_the_commands_really_build_a_program_that_can_be_moved(
    source: Path, tmp_path: Path, ninja: bool
) -> None:
    programs = {"ninja": Program("ninja")} if ninja else {}
    if not shutil.which("ninja" if ninja else "make"):
        pytest.skip("the generator's program is missing")
    mirror, checkout, build = (str(tmp_path / name) for name in ("mirror.git", "source", "build"))
    commit = run(["git", "rev-parse", "HEAD"], source).strip()
    inputs = BuildInputs(str(source), local=True, ref="feature/mtp")
    tree = tree_of({"CMakeLists.txt": PROJECT["CMakeLists.txt"]})
    run(git.init_argv(mirror), tmp_path)
    steps = commands(
        inputs, Toolchain(programs=programs, cores=2), tree, mirror, checkout, build, commit=commit, number=5
    )
    said = {step.name: run(step.argv, tmp_path) for step in steps}
    assert ("[1/" in said["compile"]) is ninja
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in [tmp_path / "build/bin/llama-server", *(tmp_path / "build/bin").glob("lib*.so*")]:
        shutil.copy2(path, moved)
    shutil.rmtree(build)
    assert run([str(moved / "llama-server")], tmp_path).strip() == f"b5-{commit[:9]}"


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_several_programs_are_compiled_by_one_command_and_no_others(
    source: Path, tmp_path: Path, generator: str
) -> None:
    toolchain = Toolchain(programs={"ninja": Program("ninja")} if generator == "Ninja" else {})
    build = tmp_path / "build"
    run(configure_argv(BuildInputs("/"), str(source), str(build), tree=None, toolchain=toolchain), tmp_path)
    assert f"CMAKE_GENERATOR:INTERNAL={generator}" in (build / "CMakeCache.txt").read_text()
    run(compile_argv(str(build), 2, ("llama-server", "llama-bench", "llama-fit-params")), tmp_path)
    made = {path.name for path in (build / "bin").iterdir()}
    assert {"llama-server", "llama-bench", "llama-fit-params"} <= made
    assert "llama-quantize" not in made


@pytest.mark.parametrize("ref", ["", "feature/mtp", "b1", "main"])
def test_until_the_commit_is_known_the_checkout_takes_what_was_fetched(
    source: Path, tmp_path: Path, ref: str
) -> None:
    mirror, checkout = str(tmp_path / "mirror.git"), str(tmp_path / "source")
    run(git.init_argv(mirror), tmp_path)
    inputs = BuildInputs(str(source), local=True, ref=ref)
    for step in commands(inputs, Toolchain(), None, mirror, checkout, "/b")[:2]:
        run(step.argv, tmp_path)
    assert (tmp_path / "source/CMakeLists.txt").read_text() == PROJECT["CMakeLists.txt"]


def test_a_full_commit_is_fetched_although_no_branch_leads_to_it(source: Path, tmp_path: Path) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    commit = run(["git", *author, "commit-tree", "HEAD^{tree}", "-m", "aside"], source).strip()
    mirror, checkout = str(tmp_path / "mirror.git"), str(tmp_path / "source")
    run(git.init_argv(mirror), tmp_path)
    inputs = BuildInputs(str(source), local=True, ref=commit)
    for step in commands(inputs, Toolchain(), None, mirror, checkout, "/b")[:2]:
        run(step.argv, tmp_path)
    assert run(["git", "-C", checkout, "rev-parse", "HEAD"], tmp_path).strip() == commit


def test_a_git_address_reaches_no_folder_of_the_host(source: Path, tmp_path: Path) -> None:
    mirror = str(tmp_path / "mirror.git")
    run(git.init_argv(mirror), tmp_path)
    argv = commands(BuildInputs(str(source)), Toolchain(), None, mirror, "/s", "/b")[0].argv
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "transport 'file' not allowed" in done.stderr
