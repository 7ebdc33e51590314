"""Where builds lie on this host, and what is done to their files without a run of its own.

`<data>/sources/<repository>.git` is a mirror; `<data>/builds/<build>/` holds source, build (CMake's), and in
the end only install, a folder with programs and their libraries that may be moved anywhere.
"""

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from controlpanel.lib.text import N_, Worded
from jobs.domain.trees import SCANNED

TEXT_LIMIT = 512 * 1024  # bytes of one CMakeLists.txt
TEXTS = 400  # files


class TreeError(Worded):
    """A folder of a build is not as it has to be; str() says how."""


@dataclass(frozen=True)
class BuildTree:
    """The folders of one build."""

    root: Path

    @property
    def source(self) -> Path:
        """What is checked out."""
        return self.root / "source"

    @property
    def build(self) -> Path:
        """CMake's folder."""
        return self.root / "build"

    @property
    def installed(self) -> Path:
        """The result; there only when it is complete."""
        return self.root / "install"


def tree(build_pk: int) -> BuildTree:
    """Return the folders of a build; they need not exist."""
    return BuildTree(Path(settings.PANEL_DATA) / "builds" / str(build_pk))


def mirror(repository_pk: int) -> Path:
    """Return the bare repository into which a repository is fetched; it need not exist."""
    return Path(settings.PANEL_DATA) / "sources" / f"{repository_pk}.git"


def ccache_folder() -> Path:
    """Return the folder that all builds of this host share for compiled objects."""
    return Path(settings.PANEL_DATA) / "ccache"


def read_texts(source: Path) -> dict[str, str]:
    """Return the CMake files of a source by their names in it, so far as they are regular files in it."""
    texts: dict[str, str] = {}
    root = source.resolve()
    for pattern in SCANNED:
        for path in sorted(source.glob(pattern)):
            if len(texts) >= TEXTS:
                return texts
            with suppress(OSError):
                if path.is_file() and path.resolve().is_relative_to(root):
                    with path.open("rb") as file:
                        texts[str(path.relative_to(source))] = file.read(TEXT_LIMIT).decode(
                            "utf-8", "replace"
                        )
    return texts


def unlock(mirror_folder: Path) -> None:
    """Remove the locks that a killed git left in a mirror; only while no other git works in it."""
    for path in mirror_folder.rglob("*.lock"):
        path.unlink(missing_ok=True)
    for path in (mirror_folder / "objects" / "pack").glob("tmp_pack_*"):
        path.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Remove a folder with all that is in it; TreeError when something stays."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise TreeError(N_("%(path)s could not be removed: %(why)s"), path=path, why=error) from error


def size_of(path: Path) -> int:
    """Return the bytes that the files below a folder take; 0 when it is not there."""
    total = 0
    for folder, _names, files in os.walk(path):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
    return total


def free_bytes() -> int | None:
    """Return the free space where builds lie; None when it is not known."""
    try:
        return shutil.disk_usage(settings.PANEL_DATA).free
    except OSError:
        return None


def install(made: BuildTree, programs: Iterable[str]) -> None:
    """Copy programs and all shared libraries of a build into its installed folder, which appears at once.

    Each program finds its libraries beside itself; the first program has to be there, others may be missing.
    """
    if made.installed.is_dir():
        return
    part = made.root / "install.part"
    remove(part)
    wanted = list(programs)
    found = {path.name: path for path in _built(made.build) if path.name in wanted}
    if wanted[0] not in found:
        raise TreeError(N_("The build ended without a program named %(name)s."), name=wanted[0])
    try:
        (part / "bin").mkdir(parents=True)
        for path in [*found.values(), *_libraries(made.build)]:
            target = part / "bin" / path.name
            if not target.exists() and not target.is_symlink():
                shutil.copy2(path, target, follow_symlinks=False)
        part.rename(made.installed)
    except OSError as error:
        raise TreeError(N_("The result could not be installed: %(why)s"), why=error) from error


def _built(folder: Path) -> list[Path]:
    """Return the executables of a build: those in its bin folder, or else anywhere in it."""
    places = [path for path in (folder / "bin").glob("*") if _is_program(path)]
    return places or sorted(path for path in folder.rglob("llama-*") if _is_program(path))


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK) and ".so" not in path.suffixes


def _libraries(folder: Path) -> list[Path]:
    """Return shared libraries with the links that name them, those beside the programs first."""
    beside = sorted((folder / "bin").glob("lib*.so*"))
    return beside + sorted(path for path in folder.rglob("lib*.so*") if path.parent != folder / "bin")
