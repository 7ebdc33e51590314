"""A small CMake project in a real git repository that builds in seconds like llama.cpp does in minutes.

Its llama-server answers --help, --version and --list-devices with the words of a real one. Branches:
main; newer (one commit ahead); `error` does not compile; `cuda` fails to configure as CUDA without a toolkit
does; `plain` has CMake but no server; `empty` has no CMake.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data"
HELP = DATA / "help" / "upstream-b11434.txt"

TOP = """\
cmake_minimum_required(VERSION 3.14...3.28)
project("llama.cpp" C CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
option(BUILD_SHARED_LIBS "build shared libraries" ON)
option(LLAMA_BUILD_SERVER "llama: build server" ON)
option(LLAMA_USE_PREBUILT_UI "llama: download the page of the server" ON)
if (LLAMA_USE_PREBUILT_UI)
    message(FATAL_ERROR "this build would download something")
endif()
add_subdirectory(ggml)
add_subdirectory(src)
add_subdirectory(tools/server)
add_subdirectory(tools/bench)
"""
GGML = """\
option(GGML_NATIVE "ggml: optimize the build for the current system" ON)
option(GGML_CCACHE "ggml: use ccache if available" ON)
option(GGML_CUDA "ggml: use CUDA" OFF)
set(GGML_CUDA_FA_QUANTS "" CACHE STRING "ggml: KV cache types for flash attention")
add_library(ggml ggml.c)
"""
CUDA = """
message(STATUS "CUDA Toolkit found")
message(FATAL_ERROR "No CMAKE_CUDA_COMPILER could be found.")
"""
OTHER = """\
cmake_minimum_required(VERSION 3.14)
project("other" C)
add_subdirectory(ggml)
"""
LLAMA = """\
add_library(llama llama.cpp)
target_link_libraries(llama PUBLIC ggml)
"""
SERVER = """\
set(TARGET llama-server)
add_executable(${TARGET} server.cpp)
target_compile_definitions(${TARGET} PRIVATE NUMBER="${LLAMA_BUILD_NUMBER}" COMMIT="${LLAMA_BUILD_COMMIT}")
target_link_libraries(${TARGET} PRIVATE llama)
"""
BENCH = """\
set(TARGET llama-bench)
add_executable(${TARGET} bench.cpp)
target_link_libraries(${TARGET} PRIVATE llama)
"""
MAIN = """\
#include <cstdio>
#include <cstring>
extern "C" int llama_answer();
static const char * const help[] = {
#include "help.inc"
};
int main(int argc, char ** argv) {
    if (llama_answer() != 42) return 3;
    const char * flag = argc > 1 ? argv[1] : "";
    if (!strcmp(flag, "--version")) {
        fprintf(stderr, "version: 0.6.0-dev (build %s, commit %s)\\n", NUMBER, COMMIT);
    } else if (!strcmp(flag, "--list-devices")) {
        puts("Available devices:\\n  (none)");
    } else {
        for (const char * line : help) puts(line);
    }
    return 0;
}
"""
FILES = {
    "CMakeLists.txt": TOP,
    "ggml/CMakeLists.txt": GGML,
    "ggml/ggml.c": "int ggml_answer(void) { return 42; }\n",
    "src/CMakeLists.txt": LLAMA,
    "src/llama.cpp": 'extern "C" {\nint ggml_answer();\nint llama_answer() { return ggml_answer(); }\n}\n',
    "tools/server/CMakeLists.txt": SERVER,
    "tools/server/server.cpp": MAIN,
    "tools/bench/CMakeLists.txt": BENCH,
    "tools/bench/bench.cpp": 'extern "C" int llama_answer();\nint main() { return llama_answer() - 42; }\n',
}


def make_repository(folder: Path) -> Path:
    """Make the repository in a folder that is created, and return it."""
    write_tree(folder)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "first")
    git(folder, "tag", "b1")
    branch(folder, "newer", {"src/more.c": "int more;\n"})
    branch(folder, "error", {"src/llama.cpp": "int llama_answer() { return not_declared_anywhere; }\n"})
    branch(folder, "cuda", {"ggml/CMakeLists.txt": GGML + CUDA})
    branch(
        folder,
        "plain",
        {name: None for name in FILES if name.startswith("tools/")} | {"CMakeLists.txt": OTHER},
    )
    branch(folder, "empty", {name: None for name in FILES if name.endswith("CMakeLists.txt")})
    return folder


def project() -> dict[str, str]:
    """Return the files of the project by their names in it."""
    lines = HELP.read_text(encoding="utf-8").splitlines()
    quoted = ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    return {**FILES, "tools/server/help.inc": quoted + "\n"}


def write_tree(folder: Path) -> None:
    """Write the files of the project, without git."""
    for name, text in project().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def branch(folder: Path, name: str, changes: dict[str, str | None]) -> None:
    """Add a branch from main with changed files; None removes one."""
    git(folder, "checkout", "--quiet", "-b", name, "main")
    for path, text in changes.items():
        if text is None:
            (folder / path).unlink()
        else:
            (folder / path).write_text(text)
    commit(folder, name)
    git(folder, "checkout", "--quiet", "main")


def commit(folder: Path, message: str) -> None:
    """Commit everything."""
    git(folder, "add", "--all")
    git(
        folder,
        "-c",
        "user.name=Test",
        "-c",
        "user.email=test@example.org",
        "commit",
        "--quiet",
        "-m",
        message,
    )


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, away from the settings of whoever runs the tests."""
    env = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


TOOL = """\
#!/bin/sh
# Stands before the real program: while the folder has hold-<step>, the step does not begin its work.
step=
case " $* " in
    *" fetch "*) step=fetch ;;
    *" worktree add "*) step=checkout ;;
    *" --target help "*) ;;
    *" --build "*) step=compile ;;
    *" -S "*) step=configure ;;
esac
if [ -n "$step" ]; then
    echo $$ > "{folder}/at-$step"
    echo $step >> "{folder}/steps"
    while [ -e "{folder}/hold-$step" ]; do sleep 0.1; done
fi
exec {program} "$@"
"""


class SlowTools:
    """git and cmake that can be held at a step; `path` is to stand first in PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "bin"
        self.path.mkdir(parents=True)
        for name in ("git", "cmake"):
            program = shutil.which(name)
            assert program, f"{name} is missing"
            tool = self.path / name
            tool.write_text(TOOL.replace("{folder}", str(folder)).replace("{program}", program))
            tool.chmod(0o755)

    def hold(self, *steps: str) -> None:
        """Let the steps wait from now on."""
        for step in steps:
            (self.folder / f"hold-{step}").touch()

    def release(self, step: str) -> None:
        """Let a step go on."""
        (self.folder / f"hold-{step}").unlink(missing_ok=True)

    def pid(self, step: str) -> int | None:
        """The process that came to a step last, None before the first."""
        try:
            return int((self.folder / f"at-{step}").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def times(self, step: str) -> int:
        """How often the step was begun."""
        path = self.folder / "steps"
        return path.read_text().split().count(step) if path.exists() else 0

    def forget(self, step: str) -> None:
        """As if nothing had come to the step yet."""
        (self.folder / f"at-{step}").unlink(missing_ok=True)
