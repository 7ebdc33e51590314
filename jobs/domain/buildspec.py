"""What a build is made from, as one value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SERVER = "llama-server"
TARGETS = (SERVER, "llama-bench", "llama-fit-params", "llama-quantize", "llama-cli", "llama-mtmd-cli")
DEFAULT_TARGETS = (SERVER, "llama-bench", "llama-fit-params")


@dataclass(frozen=True)
class BuildInputs:
    """The inputs of one build.

    `repository` is an address, or a folder where `local` is true. `ref` "" is the default branch.
    `backend`: cuda, cpu, vulkan or hip. `architectures` of CUDA as CMake writes them ("86"), () the host's
    own. `nvcc` and `host_compiler` are paths, "" found by CMake. `jobs` 0: by memory and cores. `fa_quants`:
    "" the tree's default, "all", or a list such as "q8_0-q4_0;f16-f16".
    """

    repository: str
    local: bool = False
    ref: str = ""
    backend: str = "cpu"
    architectures: tuple[str, ...] = ()
    nvcc: str = ""
    host_compiler: str = ""
    jobs: int = 0
    targets: tuple[str, ...] = DEFAULT_TARGETS
    fa_quants: str = ""
    native: bool = True
    ccache: bool = True
    definitions: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a JSON column."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BuildInputs:
        """Rebuild what to_dict returned, also after a trip through JSON."""
        known = {field.name for field in dataclasses.fields(cls)}
        plain: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in data.items() if key in known
        }
        plain["definitions"] = tuple((key, value) for key, value in data.get("definitions", ()))
        return cls(**plain)
