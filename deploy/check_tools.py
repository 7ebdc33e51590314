"""Say in one line which system packages are missing; run as `python3 deploy/check_tools.py install|test`.

It has to run on the Python that is there, so it uses nothing that came after Python 3.7.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import sys
from pathlib import Path

OLDEST = (3, 11)
TEST_PROGRAMS = ["git", "g++", "cmake", "chromium"]


def python_problem() -> str:
    """Words for a Python that is too old, empty when it will do."""
    if sys.version_info[:2] >= OLDEST:
        return ""
    found = "{}.{}".format(*sys.version_info[:2])
    return (
        f"The panel needs Python 3.11 or newer, and {sys.executable} is Python {found}.\n"
        "Install a newer one and name it, for example: apt-get install python3.11 python3.11-venv, "
        "then make PYTHON=python3.11 ..."
    )


def venv_package() -> str:
    """Debian's package with venv and ensurepip for this interpreter; empty when both are there."""
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        return ""
    name = Path(os.environ.get("PYTHON") or "python3").name
    return "python3-venv" if name in {"python", "python3"} else name + "-venv"


def openmp_package() -> str:
    """Debian's package with the OpenMP library that the bundled engine loads; empty when it is there."""
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        return "libgomp1"
    return ""


def missing_packages(purpose: str) -> list[str]:
    """Debian packages to install before `make install` or `make test` can work."""
    packages = [venv_package(), openmp_package()]
    if purpose == "test":
        packages += [name for name in TEST_PROGRAMS if not shutil.which(name)]
    return [name for name in packages if name]


def main(arguments: list[str]) -> int:
    """Print what to do and return 1 when something is missing; 0 and silence otherwise."""
    if arguments not in (["install"], ["test"]):
        print("usage: check_tools.py install|test", file=sys.stderr)
        return 2
    problem = python_problem()
    if problem:
        print(problem, file=sys.stderr)
        return 1
    packages = missing_packages(arguments[0])
    if packages:
        print("System packages are missing. As root, run:", file=sys.stderr)
        print("apt-get install " + " ".join(packages), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
