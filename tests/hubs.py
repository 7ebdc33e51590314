"""A local hub with the tiny model for tests of what downloads from it."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.services import artifacts
from jobs.services.downloads import WantedFile
from tests.fakes.hub import Hub
from tests.models import tiny_models

REPO = "someone/tiny-GGUF"


@pytest.fixture
def model_hub(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Hub]:
    """A hub with the tiny model and its projector; the panel may connect to it."""
    with Hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.endpoint)
        settings.PANEL_PRIVATE_HOSTS = found.private
        yield found


@pytest.fixture
def hub_files(model_hub: Hub, tmp_path: Path) -> dict[str, WantedFile]:
    """What the hub has, by name."""
    wanted = {}
    for path in tiny_models(tmp_path):
        stored = model_hub.add(REPO, path.name, path)
        wanted[path.name] = WantedFile(path.name, stored.size, hashlib.sha256(path.read_bytes()).hexdigest())
    return wanted


@pytest.fixture
def models_folder(settings: Any, tmp_path: Path) -> Path:
    """An empty models folder."""
    settings.PANEL_DATA = tmp_path / "data"
    settings.PANEL_DATA.mkdir()
    return artifacts.models_folder()
