"""What a diagnosis changes in the inputs of a build, and what it has to know of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from controlpanel.llamacpp.rule_types import Change
from jobs.domain.buildspec import SERVER, BuildInputs
from jobs.domain.cmake import job_count
from jobs.domain.definitions import set_by_the_panel
from jobs.domain.programs import Toolchain

_LISTS = ("architectures", "targets")
_TEXTS = ("ref", "backend", "nvcc", "fa_quants")
_SWITCHES = ("native", "ccache")


def facts(inputs: BuildInputs, toolchain: Toolchain | None) -> dict[str, object]:
    """Return what the rules of the area "build" make their changes fit to."""
    found: dict[str, object] = {"architectures": inputs.architectures, "targets": inputs.targets}
    if toolchain is not None:
        found["gpu_architectures"] = toolchain.architectures
        found["nvccs"] = [{"path": nvcc.path, "version": nvcc.version} for nvcc in toolchain.nvccs]
    return found


def mended(inputs: BuildInputs, changes: Iterable[Change], toolchain: Toolchain | None) -> BuildInputs:
    """Return the inputs with the changes in them; a change that does not fit the inputs is left out."""
    for change in changes:
        value = _value(inputs, change, toolchain or Toolchain())
        if value is not None:
            inputs = replace(inputs, **{change.field: value})
    return inputs


def _value(inputs: BuildInputs, change: Change, toolchain: Toolchain) -> Any:
    field, value = change.field, change.value
    if field == "jobs":
        return max(1, job_count(inputs, toolchain) // 2) if value == "half" else None
    if field == "definitions" and isinstance(value, list | tuple):
        return _definitions(inputs.definitions, dict(value))
    if field == "host_compiler" and isinstance(value, str):
        return _compiler(value, toolchain)
    if field in _LISTS and isinstance(value, list | tuple):
        listed = tuple(map(str, value))
        return listed if field != "targets" or SERVER in listed else None
    if field in _TEXTS and isinstance(value, str):
        return value
    return value if field in _SWITCHES and isinstance(value, bool) else None


def _definitions(
    old: tuple[tuple[str, str], ...], change: Mapping[str, str | None]
) -> tuple[tuple[str, str], ...]:
    """Return definitions with some added or replaced, and without those that the change sets to None."""
    kept = [(key, value) for key, value in old if key not in change]
    added = [(key, value) for key, value in change.items() if value is not None and not set_by_the_panel(key)]
    return (*kept, *added)


def _compiler(name: str, toolchain: Toolchain) -> str:
    """Return the path of a compiler that is meant by its name; not installed yet, its usual one."""
    if not name or name.startswith("/"):
        return name
    paths = (compiler.path for compiler in toolchain.compilers)
    return next((path for path in paths if PurePosixPath(path).name == name), f"/usr/bin/{name}")
