"""A download in a whole panel whose worker is killed while it loads."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.domain.transfer import CHUNK
from tests.e2e.whole import Panel
from tests.fakes.hub import Hub
from tests.models import padded_model
from tests.waiting import wait_for

REPO = "someone/padded-GGUF"
CONNECTIONS = 4
LOOK = """
import json; from jobs.models import Download, ModelArtifact
download = Download.objects.get(); model = ModelArtifact.objects.filter(name__startswith="padded").first()
print(json.dumps({"state": download.state, "error": download.error_text, "received": download.received,
    "path": model and model.path, "verified": bool(model and model.verified_at)}))
"""


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with Hub(connection_rate=1.5 * 1024**2) as found:
        yield found


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory, hub: Hub) -> Iterator[Panel]:
    data = tmp_path_factory.mktemp("downloads") / "data"
    with Panel(data, HF_ENDPOINT=hub.endpoint, PANEL_PRIVATE_HOSTS=hub.private) as found:
        found.start()
        yield found


def look(panel: Panel) -> dict[str, Any]:
    found = json.loads(panel.shell(LOOK))
    assert isinstance(found, dict)
    return found


def test_a_download_survives_kill_9_of_its_worker(panel: Panel, hub: Hub, tmp_path: Path) -> None:
    file = padded_model(tmp_path, 64)
    stored = hub.add(REPO, file.name, file)
    queued = panel.manage("download", REPO, file.name, "--no-wait")
    assert queued["state"] == "queued"
    for least in (0, 24 * 1024**2):
        wait_for(lambda least=least: hub.bytes_sent > least, 60, "bytes")  # type: ignore[misc]
        panel.kill("worker-work")
    wait_for(lambda: look(panel)["state"] not in ("queued", "loading"), 180, "the end of the download")
    found = look(panel)
    assert (found["state"], found["verified"]) == ("complete", True), (found, panel.logs())
    assert hashlib.sha256(Path(found["path"]).read_bytes()).hexdigest() == stored.sha256
    assert hub.bytes_sent <= stored.size + 2 * CONNECTIONS * CHUNK + CHUNK
