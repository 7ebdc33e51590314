"""The programs of a host that builds are made with, as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

PROGRAMS = ("git", "cmake", "ninja", "make", "ccache", "glslc", "hipcc")


@dataclass(frozen=True)
class Program:
    """A program on the host; version "" when it does not tell one."""

    path: str
    version: str = ""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler (g++, clang++); `major` 0 when its version is not known."""

    path: str
    kind: Literal["gcc", "clang"]
    version: str
    major: int


@dataclass(frozen=True)
class Nvcc:
    """The compiler of a CUDA toolkit, and the toolkit's version ("12.4")."""

    path: str
    version: str
    on_path: bool = False  # the one that PATH finds


@dataclass(frozen=True)
class Gpu:
    """An NVIDIA card and its CUDA architecture ("86")."""

    name: str
    arch: str


@dataclass(frozen=True)
class Toolchain:
    """What a host has for builds.

    `programs` holds those of PROGRAMS that are there; of the compilers of a kind, PATH's own comes first.
    `driver` is NVIDIA's ("580.95.05"), `driver_cuda` the newest CUDA it runs ("13.0"). Memory is in MiB,
    disk in bytes of the file system that builds are made on. None and "" stand for "not known".
    """

    programs: Mapping[str, Program] = field(default_factory=dict)
    compilers: tuple[Compiler, ...] = ()
    nvccs: tuple[Nvcc, ...] = ()
    driver: str = ""
    driver_cuda: str = ""
    gpus: tuple[Gpu, ...] = ()
    cores: int = 1
    memory_mib: int | None = None
    disk_free: int | None = None
    disk_total: int | None = None
    glibc: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a JSON column."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Toolchain:
        """Rebuild what to_dict returned, by this or another version of the panel."""
        programs = data.get("programs") or {}
        return cls(
            **{
                **_known(cls, data),
                "programs": {name: _one(Program, item) for name, item in programs.items()},
                "compilers": _each(Compiler, data.get("compilers")),
                "nvccs": _each(Nvcc, data.get("nvccs")),
                "gpus": _each(Gpu, data.get("gpus")),
            }
        )

    def version(self, program: str) -> str:
        """Return a program's version, "" when it is missing or does not tell."""
        found = self.programs.get(program)
        return found.version if found else ""

    def nvcc(self, path: str = "") -> Nvcc | None:
        """Return the nvcc of a path, or the one that a build takes by itself: PATH's, else the first."""
        if path:
            return next((nvcc for nvcc in self.nvccs if nvcc.path == path), None)
        return self.path_nvcc or (self.nvccs[0] if self.nvccs else None)

    @property
    def path_nvcc(self) -> Nvcc | None:
        """The nvcc that PATH finds."""
        return next((nvcc for nvcc in self.nvccs if nvcc.on_path), None)

    def compiler(self, path: str = "") -> Compiler | None:
        """Return the compiler of a path, or the g++ that nvcc takes by itself."""
        if path:
            return next((compiler for compiler in self.compilers if compiler.path == path), None)
        return next((compiler for compiler in self.compilers if compiler.kind == "gcc"), None)

    @property
    def architectures(self) -> tuple[str, ...]:
        """The architectures of the host's cards, each once, oldest first."""
        return tuple(sorted({gpu.arch for gpu in self.gpus if gpu.arch.isdigit()}, key=int))


_T = TypeVar("_T", Program, Compiler, Nvcc, Gpu)


def _known(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in dataclasses.fields(kind)}
    return {name: value for name, value in data.items() if name in names}


def _one(kind: type[_T], data: Mapping[str, Any]) -> _T:
    return kind(**_known(kind, data))


def _each(kind: type[_T], items: Iterable[Mapping[str, Any]] | None) -> tuple[_T, ...]:
    return tuple(_one(kind, item) for item in items or ())
