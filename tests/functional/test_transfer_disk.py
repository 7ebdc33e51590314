"""Downloads to a disk that is full, too small, or cannot be written any further."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.transfer import TransferError
from jobs.domain.transfer import CHUNK, Limits
from tests.fakes.hub import Hub
from tests.functional.fetching import DATA, NAME, PROBE, REPO, SIZE, Shop


@pytest.fixture
def shop(tmp_path: Path, settings: Any) -> Iterator[Shop]:
    """A hub with one model of five chunks and a bit."""
    with Hub() as hub:
        hub.add(REPO, NAME, DATA)
        settings.PANEL_PRIVATE_HOSTS = hub.private
        yield Shop(hub, tmp_path)


def test_a_disk_that_is_too_small_is_told_before_anything_is_fetched(shop: Shop) -> None:
    free = shutil.disk_usage(shop.folder).free
    with pytest.raises(TransferError) as caught:
        shop.fetch(limits=Limits(spare=free))
    assert caught.value.code == "disk_full"
    assert "MiB" in str(caught.value)
    assert shop.hub.bytes_sent == PROBE
    assert shop.left() == set()


def test_a_file_that_cannot_be_written_any_further_is_an_error_and_resumes(shop: Shop) -> None:
    shop.hub.throttle.rate = 60e6
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit() -> str | None:
        if shop.hub.bytes_sent > CHUNK:
            resource.setrlimit(resource.RLIMIT_FSIZE, (3 * CHUNK, hard))
        return None

    try:
        with pytest.raises(TransferError) as caught:
            shop.fetch(stop=limit)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.code == "disk"
    assert "File too large" in str(caught.value)
    shop.hub.throttle.rate = None
    shop.fetch()
    assert shop.target.read_bytes() == DATA


SMALL_DISK = """
set -e
mount -t tmpfs -o size=20m none "$1"
export PYTHONPATH="$PWD"
{python} - "$1" <<'END'
import sys
from pathlib import Path
from jobs.adapters.transfer import fetch, TransferError
from jobs.domain.transfer import Limits, Place, Source
folder = Path(sys.argv[1])
url = "{url}"
source = Source(url, lambda: Place(url), {size}, "{sha256}")
try:
    fetch(source, folder / "m.gguf", Limits(spare=0), on_progress=lambda p: None, stop=lambda: None)
except TransferError as error:
    print(error.code)
print([path.name for path in folder.iterdir()])
END
"""


def test_a_full_disk_is_told_in_words(shop: Shop) -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no mounts of its own")
    url = shop.hub.file_url(REPO, NAME)
    script = SMALL_DISK.format(python=sys.executable, url=url, size=SIZE, sha256=shop.sha256)
    env = {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "DJANGO_SETTINGS_MODULE": "controlpanel.settings",
        "PANEL_DATA": str(shop.folder / "data"),
        "PANEL_PRIVATE_HOSTS": shop.hub.private,
    }
    (shop.folder / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", textwrap.dedent(script), "sh", str(shop.folder / "disk")],
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
    )
    assert done.stdout.split("\n")[:2] == ["disk_full", "[]"], done.stderr
