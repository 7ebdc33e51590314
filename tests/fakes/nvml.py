"""NVIDIA cards that are not there: builds the fake library, and changes its state while processes use it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fakenvml.c")
FLAGS = ("-shared", "-fPIC", "-O1")


class FakeNvml:
    """One set of cards; `environ` makes a process see them, `set()` changes what it sees from then on."""

    def __init__(self, library: Path, state: Path) -> None:
        self.environ = {"LD_LIBRARY_PATH": str(library), "FAKENVML_STATE": str(state)}
        self._state = state
        self._values: dict[str, object] = {}
        self.reset()

    def reset(self) -> None:
        """Back to two idle cards."""
        self._values = {}
        self._change({})

    def set(self, **values: object) -> None:
        """Change global values, such as count=8; None takes one away."""
        self._change(values)

    def card(self, index: int, values: dict[str, object] | None = None, **more: object) -> None:
        """Change values of one card, such as used=20000 or {"error.nvmlDeviceGetFanSpeed": 3}."""
        self._change({f"{index}.{key}": value for key, value in {**(values or {}), **more}.items()})

    def function(self, key: str, value: object) -> None:
        """Change how a function behaves for all cards: `error.<name>` or `hang.<name>`."""
        self._change({key: value})

    def _change(self, values: dict[str, object]) -> None:
        self._values.update(values)
        lines = [f"{key}={value}\n" for key, value in self._values.items() if value is not None]
        new = self._state.with_suffix(".new")
        new.write_text("".join(lines), encoding="utf-8")
        new.replace(self._state)


def compiler() -> str | None:
    """Return the path of a C compiler, None without one."""
    return shutil.which("gcc") or shutil.which("g++")


def build_library(folder: Path) -> Path:
    """Compile libnvidia-ml.so.1 into a folder, and return that."""
    command = [compiler() or "gcc", *FLAGS, "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake libnvidia-ml.so.1, compiled once."""
    if compiler() is None:
        pytest.skip("the fake NVIDIA library needs gcc or g++")
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    """Two idle cards."""
    return FakeNvml(nvml_library, tmp_path / "nvml.state")
