"""Finds names such as architectures and tensor types in the libraries of a build, without running it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from jobs.adapters.probe import BUNDLED, LIBRARIES

MAX_BYTES = 4 * 1024**3

_BLOCK = 8 * 1024 * 1024
# Compute kernels: hundreds of MiB of code that names no model.
_KERNELS = ("libggml-cuda", "libggml-hip", "libggml-vulkan", "libggml-cpu")


def words_in_build(binary: Path, words: Collection[str]) -> frozenset[str] | None:
    """Return which of the words stand in the build as texts of C; None when it cannot be read to its end."""
    missing = {word: word.encode() + b"\x00" for word in words}
    overlap = max((len(raw) for raw in missing.values()), default=1)
    budget = MAX_BYTES
    try:
        for path in _files(binary):
            tail = b""
            with path.open("rb") as stream:
                while missing and (block := stream.read(_BLOCK)):
                    budget -= len(block)
                    if budget < 0:
                        return None
                    text = tail + block
                    missing = {word: raw for word, raw in missing.items() if raw not in text}
                    tail = block[-overlap:]
    except OSError:
        return None
    return frozenset(words) - missing.keys()


def _files(binary: Path) -> Iterator[Path]:
    """Yield the binary, which may contain everything, and the libraries beside it, each once."""
    binary = binary.resolve(strict=True)
    seen: set[Path] = set()
    folders = (binary.parent, binary.parent.with_name("lib"))
    names = [
        binary,
        *(path for folder in folders for name in LIBRARIES for path in sorted(folder.glob(name))),
    ]
    if binary.name == BUNDLED:
        spec = importlib.util.find_spec("xllamacpp")
        for place in (spec.submodule_search_locations or []) if spec else []:
            names += sorted(Path(place).rglob("*.so*"))
    for path in names:
        real = path.resolve()
        if real in seen or path.name.startswith(_KERNELS) or not _readable(real):
            continue
        seen.add(real)
        yield real


def _readable(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0 and os.access(path, os.R_OK)
