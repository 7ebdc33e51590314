"""The fake hub answers as the real one does where the panel looks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fakes.hub import Hub
from tests.fakes.hub_files import GRANTED, NO_LICENCE, REJECTED, WAITING

ROOT = Path(__file__).resolve().parents[2]
REPO, NAME = "org/model", "sub folder/model-Q4_K_M.gguf"
DATA = b"GGUF" + bytes(range(256)) * 100


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub with a model in a folder and a small text."""
    with Hub() as running:
        running.add(REPO, NAME, DATA)
        running.add(REPO, "README.md", b"# words", lfs=False)
        yield running


def test_files_are_told_with_their_size_and_hash(hub: Hub) -> None:
    info = httpx.get(f"{hub.endpoint}/api/models/{REPO}", params={"blobs": "true"}).json()
    model, text = info["siblings"]
    assert model["rfilename"] == NAME
    assert model["lfs"]["sha256"] == hub.repository(REPO).files[NAME].sha256
    assert model["size"] == len(DATA)
    assert "lfs" not in text
    tree = httpx.get(f"{hub.endpoint}/api/models/{REPO}/tree/main").json()
    assert [entry["path"] for entry in tree] == [NAME, "README.md"]
    found = httpx.get(f"{hub.endpoint}/api/models", params={"search": "MODEL"}).json()
    assert [entry["id"] for entry in found] == [REPO]


def test_a_part_of_a_file_comes_from_another_host(hub: Hub) -> None:
    answer = httpx.get(hub.resolve_url(REPO, NAME))
    assert answer.status_code == 302
    assert answer.headers["X-Linked-Size"] == str(len(DATA))
    part = httpx.get(answer.headers["Location"], headers={"Range": "bytes=4-9"})
    assert part.url.host == "localhost"
    assert (part.status_code, part.content) == (206, DATA[4:10])
    assert part.headers["Content-Range"] == f"bytes 4-9/{len(DATA)}"
    hub.expire_links()
    assert httpx.get(answer.headers["Location"]).status_code == 403
    assert httpx.head(hub.file_url(REPO, NAME)).headers["Content-Length"] == str(len(DATA))


@pytest.mark.parametrize(
    ("token", "status", "words"),
    [
        ("", 401, "must have access"),
        ("hf_new", 403, "not in the authorized list"),
        ("hf_waiting", 403, "awaiting a review"),
        ("hf_rejected", 403, "has been rejected"),
        ("hf_good", 302, None),
    ],
)
def test_a_gated_model_tells_why_it_is_not_given(
    hub: Hub, token: str, status: int, words: str | None
) -> None:
    gated = hub.repository(REPO)
    gated.gated = "manual"
    gated.tokens = {"hf_new": NO_LICENCE, "hf_waiting": WAITING, "hf_rejected": REJECTED, "hf_good": GRANTED}
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(hub.resolve_url(REPO, NAME), headers=headers)
    assert answer.status_code == status
    if words:
        assert answer.headers["X-Error-Code"] == "GatedRepo"
        assert words in answer.headers["X-Error-Message"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/org/none/resolve/main/a.gguf", 401, "RepoNotFound"),
        (f"/{REPO}/resolve/none/a.gguf", 404, "RevisionNotFound"),
        (f"/{REPO}/resolve/main/none.gguf", 404, "EntryNotFound"),
    ],
)
def test_what_is_not_there_is_told_apart(hub: Hub, path: str, status: int, code: str) -> None:
    answer = httpx.get(hub.endpoint + path)
    assert (answer.status_code, answer.headers["X-Error-Code"]) == (status, code)


def test_as_a_program_it_serves_a_folder_and_takes_orders(tmp_path: Path) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    (tmp_path / "org" / "model" / "m.gguf").write_bytes(DATA)
    argv = [sys.executable, "-m", "tests.fakes.hub", str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        endpoint = json.loads(process.stdout.readline())["endpoint"]
        url = f"{endpoint}/cdn/org/model/m.gguf"
        assert httpx.get(url).content == DATA
        httpx.post(f"{endpoint}/_control", json={"fault": {"kind": "status", "code": 429, "times": 1}})
        assert httpx.get(url).status_code == 429
        assert httpx.get(url).status_code == 200
        log = httpx.get(f"{endpoint}/_log").json()
        assert log["sent"] == 2 * len(DATA)
        assert [entry["status"] for entry in log["log"]] == [200, 429, 200]
        process.terminate()
