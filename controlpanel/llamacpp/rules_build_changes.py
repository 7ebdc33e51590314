"""Form fields of a build config that mend a failed build, and the values they get.

Facts that make a value fit the host, all optional: `architectures` and `targets` (lists as in the form),
`gpu_architectures` (of the host's cards), `nvccs` (list of {"path", "version"}).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from controlpanel.llamacpp.rule_types import Change, Found

# Values of CMAKE_CUDA_ARCHITECTURES that only a newer CMake takes.
SPECIAL_ARCHITECTURES = r"(?:native|all|all-major|(?:\S*;)?\d+[af](?:-real|-virtual)?(?:;\S*)?)"
# Runs on all cards since Turing (newer ones translate the last one at the first start), and every toolkit
# since 11.1 compiles it.
_COMMON_ARCHITECTURES = ("75", "80", "86")
_LAST_TOOLKIT = {"20": (8, 0), "21": (8, 0), "30": (10, 2), "32": (10, 2), "35": (11, 8), "37": (11, 8)}


def define(*rows: tuple[str, str | None]) -> Callable[[Found], Iterable[Change]]:
    """Return a builder that adds definitions, or removes those whose value is None."""
    return lambda found: [Change("definitions", [list(row) for row in rows])]


def put(field: str, value: object) -> Callable[[Found], Iterable[Change]]:
    """Return a builder that sets one field to one value."""
    return lambda found: [Change(field, value)]


def common_architectures(found: Found) -> Iterable[Change]:
    """Set the architectures of the host's cards, or where they are unknown those that fit most cards."""
    own = found.listed("gpu_architectures")
    return [Change("architectures", [str(a) for a in own or _COMMON_ARCHITECTURES])]


def older_architecture(found: Found) -> Iterable[Change]:
    """Leave out the architecture that the toolkit does not know yet, or take an older one for it."""
    older = {"75": [], "80": ["75"], "86": ["80"]}.get(found["arch"], ["86"])
    wanted = _other_architectures(found) or older
    return [Change("architectures", wanted)] if wanted else []


def without_dropped(found: Found) -> Iterable[Change]:
    """Leave out the architecture that the toolkit dropped, or where none is left take an older toolkit."""
    others = _other_architectures(found)
    if others:
        return [Change("architectures", others)]
    last = last_toolkit(found["arch"])
    if found.listed("nvccs") is None:
        return [Change("nvcc", f"/usr/local/cuda-{last[0]}.{last[1]}/bin/nvcc")]
    path = _newest_nvcc(found, last)
    return [Change("nvcc", path)] if path else []


def nvcc_path(found: Found) -> Iterable[Change]:
    """Name the host's nvcc, or where it usually is; leave it to CMake when the given path was wrong."""
    if found["wrong"] or found.listed("nvccs") is not None:
        path = _newest_nvcc(found)
        return [Change("nvcc", path)] if path or found["wrong"] else []
    return [Change("nvcc", f"{found['root'] or '/usr/local/cuda'}/bin/nvcc")]


def last_toolkit(architecture: str) -> tuple[int, int]:
    """Return the last CUDA toolkit that compiles an architecture which later ones dropped."""
    return _LAST_TOOLKIT.get(architecture, (12, 9))


def _other_architectures(found: Found) -> list[str]:
    chosen = found.listed("architectures") or []
    return [str(a) for a in chosen if str(a).split("-")[0].rstrip("af") != found["arch"]]


def _newest_nvcc(found: Found, last: tuple[int, int] = (999, 0)) -> str:
    """Return the path of the newest nvcc up to a version, "" when none is known."""
    known = [nvcc for nvcc in found.listed("nvccs") or [] if isinstance(nvcc, Mapping)]
    fitting = [(_version(nvcc), str(nvcc.get("path", ""))) for nvcc in known if _version(nvcc) <= last]
    return max(fitting, default=((0, 0), ""))[1]


def _version(nvcc: Mapping[str, object]) -> tuple[int, int]:
    match = re.match(r"(\d{1,4})\.(\d{1,4})", str(nvcc.get("version", "")))
    return (int(match[1]), int(match[2])) if match else (0, 0)
