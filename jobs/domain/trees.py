"""What a source tree of llama.cpp can be configured with, read from its CMake files without running them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from controlpanel.lib.text import N_, Message
from jobs.domain.buildspec import SERVER
from jobs.domain.versions import numbers

ROOT = "CMakeLists.txt"
# Paths and glob patterns below the source folder
SCANNED = (
    ROOT,
    "ggml/CMakeLists.txt",
    "ggml/src/CMakeLists.txt",
    "ggml/src/ggml-cuda/CMakeLists.txt",
    "common/CMakeLists.txt",
    "tools/CMakeLists.txt",
    "tools/*/CMakeLists.txt",
    "examples/CMakeLists.txt",
    "examples/*/CMakeLists.txt",
)
MAX_TEXT = 256 * 1024  # characters of one file that are looked at
MAX_TEXTS = 200

_COMMENT = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)
_OPTION = re.compile(r"\b(?:cmake_dependent_)?option\s{0,20}\(\s{0,200}([A-Za-z]\w{1,99})", re.IGNORECASE)
_CACHED = re.compile(r"\bset\s{0,20}\(\s{0,200}([A-Za-z]\w{1,99})\s[^()]{0,500}?\sCACHE\s", re.IGNORECASE)
_OVERRIDABLE = re.compile(r"\bNOT\s{1,20}DEFINED\s{1,20}((?:LLAMA|GGML)_\w{1,99})")
_MINIMUM = re.compile(
    r"\bcmake_minimum_required\s{0,20}\(\s{0,200}VERSION\s{1,20}(\d{1,4}(?:\.\d{1,4}){1,3})", re.IGNORECASE
)
_TARGET = re.compile(
    r"\bset\s{0,20}\(\s{0,20}TARGET\s{1,20}([\w.-]{1,100})\s{0,20}\)"
    r"|\badd_executable\s{0,20}\(\s{0,200}(\$\{TARGET\}|[\w.-]{1,100})",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Tree:
    """A source tree.

    `options` are the names that a -D can set. `cmake_minimum` is what every build needs ("3.14"),
    `cmake_cuda` what a CUDA build needs; "" not known. `cuda_fa` says which cache types of flash attention
    can be chosen: pairs of them ("list"), none or all ("all"), or nothing ("none"). `targets` are the
    programs; empty when they are not known.
    """

    options: frozenset[str]
    cmake_minimum: str = ""
    cuda_fa: Literal["list", "all", "none"] = "none"
    targets: frozenset[str] = frozenset()
    cmake_cuda: str = ""

    @property
    def server_in_examples(self) -> bool:
        """True for trees that keep llama-server among the examples, as all did until 2025."""
        return "LLAMA_BUILD_EXAMPLES" in self.options and "LLAMA_BUILD_TOOLS" not in self.options


def tree_of(texts: Mapping[str, str]) -> Tree:
    """Return what the CMake files say; `texts` maps paths that SCANNED finds to their contents."""
    options: set[str] = set()
    targets: set[str] = set()
    minimum = cuda_minimum = ""
    for path in sorted(texts)[:MAX_TEXTS]:
        text = _COMMENT.sub("", texts[path][:MAX_TEXT])
        for pattern in (_OPTION, _CACHED, _OVERRIDABLE):
            options.update(pattern.findall(text))
        targets.update(_targets(text))
        needed = [*_MINIMUM.findall(text)]
        # Below ggml/src the requirement stands in what only CUDA builds read.
        cuda_minimum = _newest([cuda_minimum, *needed])
        if not path.startswith("ggml/src/"):
            minimum = _newest([minimum, *needed])
    return Tree(
        options=frozenset(name for name in options if not name.upper().startswith("CMAKE_")),
        cmake_minimum=minimum,
        cuda_fa=_cuda_fa(options),
        targets=frozenset(targets),
        cmake_cuda=cuda_minimum,
    )


def tree_with(options: Iterable[str]) -> Tree | None:
    """Return a tree of which only the options are known; None for no options, which means not known."""
    known = frozenset(options)
    return Tree(known, cuda_fa=_cuda_fa(known)) if known else None


def not_llama(texts: Mapping[str, str]) -> Message | None:
    """Say why a source cannot be built here, None when it is a llama.cpp."""
    if ROOT not in texts:
        text = N_("There is no CMakeLists.txt at the top of this source: it is not a llama.cpp to build.")
        return Message(text)
    if SERVER not in tree_of(texts).targets:
        text = N_(
            "This source builds with CMake, but it makes no llama-server. "
            "Check the repository and the branch; a llama.cpp from before June 2024 is too old."
        )
        return Message(text)
    return None


def _cuda_fa(options: Iterable[str]) -> Literal["list", "all", "none"]:
    known = set(options)
    if "GGML_CUDA_FA_QUANTS" in known:
        return "list"
    return "all" if "GGML_CUDA_FA_ALL_QUANTS" in known else "none"


def _targets(text: str) -> set[str]:
    """Return the programs of one file; most of them name theirs in a variable first."""
    found: set[str] = set()
    named = ""
    for variable, executable in _TARGET.findall(text):
        if variable:
            named = variable
        elif executable != "${TARGET}":
            found.add(executable)
        elif named:
            found.add(named)
    return found


def _newest(versions: Iterable[str]) -> str:
    return max(versions, key=numbers, default="")
