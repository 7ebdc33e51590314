"""A model hub that is busy, away, slow, or no hub at all."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from huggingface_hub.utils import _http

from jobs.adapters import hub as asked
from jobs.adapters.hub import HubError, repository, resolve, search
from jobs.adapters.hub_client import MAX_ANSWER
from jobs.domain.hf_files import HubFile
from tests.fakes.hub import Hub
from tests.fakes.hub_files import COMMIT

REPO = "org/model-GGUF"
FILE = "model-Q8_0.gguf"
CONTENT = b"GGUF" + bytes(1000)
TOKEN = "hf_a_secret_token"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one repository."""
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        server.add(REPO, FILE, CONTENT)
        server.add(REPO, "README.md", b"# Model", lfs=False)
        yield server


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that answers every request in its own way; yields its address."""

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(65536)
                    answer(peer)
            except OSError:
                if listener.fileno() < 0:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def plain(body: bytes, headers: str = "") -> Callable[[socket.socket], None]:
    """The same answer to every request."""
    head = f"HTTP/1.1 200 OK\r\n{headers}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return lambda peer: peer.sendall(head.encode() + body)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7),
        ({"RateLimit": '"api";r=0;t=55'}, 55),
        ({"RateLimit": '"api";r=3;t=55'}, None),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"Retry-After": "9999999999999999"}, None),
        ({}, None),
    ],
)
def test_a_busy_hub_is_not_waited_for_but_its_wish_is_passed_on(
    hub: Hub, headers: dict[str, str], wait: int | None
) -> None:
    hub.fault("status", "*", code=429, headers=headers)
    begun = time.monotonic()
    for ask in (lambda: search("x"), lambda: repository(REPO), lambda: resolve(REPO, "main", FILE)):
        with pytest.raises(HubError) as caught:
            ask()
        assert (caught.value.code, caught.value.retry_after) == ("rate_limit", wait)
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_hub_with_trouble_of_its_own_is_down(hub: Hub, status: int) -> None:
    hub.fault("status", "*", code=status)
    with pytest.raises(HubError, match=str(status)) as caught:
        search("x")
    assert caught.value.code == "hub_down"
    assert len(hub.seen) == 1


def test_a_hub_that_is_away_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    begun = time.monotonic()
    for ask in (lambda: search("x"), lambda: resolve(REPO, "main", FILE)):
        with pytest.raises(HubError, match=f"127.0.0.1:{port}") as caught:
            ask()
        assert caught.value.code == "hub_down"
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize("silent", [True, False])
def test_a_hub_that_does_not_finish_its_answer_is_given_up(
    silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def drip(peer: socket.socket) -> None:
        if not silent:
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not over.wait(0.1):
            if not silent:
                peer.sendall(b" ")

    monkeypatch.setattr(asked, "SECONDS", 1.0)
    with serving(drip) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        begun = time.monotonic()
        with pytest.raises(HubError, match="did not answer") as caught:
            search("x")
        over.set()
    assert caught.value.code == "hub_down"
    assert time.monotonic() - begun < 5


def test_a_sign_in_page_is_not_taken_for_a_hub(hub: Hub) -> None:
    hub.fault("html", "/api/*")
    for ask in (lambda: search("x"), lambda: repository(REPO)):
        with pytest.raises(HubError, match="not a model hub") as caught:
            ask()
        assert caught.value.code == "bad_answer"


@pytest.mark.parametrize(
    "answer",
    [
        b"[" * 200_000,
        b'{"id": 3}',
        b'["x"]',
        b"null",
        b'{"id": "org/model-GGUF", "sha": null, "siblings": []}',
        b'{"id": "org/model-GGUF", "sha": "x/../y", "siblings": []}',
        b'{"id": "org/model-GGUF", "sha": "%s"}' % COMMIT.encode(),
        b'{"id": "org/model-GGUF", "sha": "%s", "siblings": [{"rfilename": 7}]}' % COMMIT.encode(),
        b'{"id": "org/model-GGUF", "sha": "%s", "siblings": 5}' % COMMIT.encode(),
        b'{"id": "../..", "sha": "%s", "siblings": []}' % COMMIT.encode(),
        b'{"id": "org/model-GGUF", "siblings": [' + b'{"rfilename": "x"},' * 1_000_000 + b"{}]}",
    ],
    ids=range(11),
)
def test_a_foreign_answer_is_refused(hub: Hub, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(answer) > MAX_ANSWER or len(answer) < 1_000_000
    with serving(plain(answer)) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        with pytest.raises(HubError) as caught:
            repository(REPO)
    assert caught.value.code == "bad_answer"


def test_a_packed_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(plain(b"x" * 100, "Content-Encoding: gzip\r\n")) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        with pytest.raises(HubError) as caught:
            repository(REPO)
    assert caught.value.code == "bad_answer"


def test_odd_facts_of_a_file_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def lfs(value: object) -> dict[str, object]:
        return {"sha256": value, "size": 1, "pointerSize": 1}

    files = [
        {"rfilename": "good.gguf", "size": 5, "lfs": lfs("a" * 64)},
        {"rfilename": "../up.gguf", "size": 5},
        {"rfilename": "/root.gguf", "size": 5},
        {"rfilename": "line\nbreak.gguf", "size": 5},
        {"rfilename": "half \ud800.gguf", "size": 5},
        {"rfilename": "negative.gguf", "size": -1, "lfs": lfs("A" * 64)},
        {"rfilename": "text.gguf", "size": "5", "lfs": lfs(7)},
    ]
    answer = json.dumps({"id": REPO, "sha": COMMIT, "siblings": files}).encode()
    with serving(plain(answer)) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        found = repository(REPO).files
    assert found == (HubFile("good.gguf", 5, "a" * 64), HubFile("negative.gguf"), HubFile("text.gguf"))


def test_a_redirect_on_the_hub_is_followed_and_one_away_is_not(hub: Hub) -> None:
    hub.fault("redirect", "/api/models/org/old*", location=f"/api/models/{REPO}?blobs=true")
    assert repository("org/old").repo == REPO
    hub.fault("redirect", "/api/models/org/away*", location=f"{hub.files_host}/api/models/{REPO}")
    with pytest.raises(HubError) as caught:
        repository("org/away", token=TOKEN)
    assert caught.value.code == "bad_answer"
    assert not any(seen.host.startswith("localhost") for seen in hub.seen)


def test_a_mirror_that_sends_on_to_another_hub_does_not_pass_the_token_on(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The library follows a redirect to the public hub, which the second host stands for here.
    monkeypatch.setattr(_http, "_HUB_ORIGINS", {("http", "localhost", hub.port)})
    hub.fault("redirect", "/org/*", times=1, location=f"{hub.files_host}/{REPO}/resolve/main/README.md")
    found = resolve(REPO, "main", FILE, token=TOKEN)
    assert found.url == f"{hub.files_host}/{REPO}/resolve/main/README.md"
    assert found.headers == {}
    first, second = hub.requests("/resolve/")
    assert first.headers["authorization"] == f"Bearer {TOKEN}"
    assert "authorization" not in second.headers


def test_a_connection_that_breaks_once_is_made_again() -> None:
    times = iter(range(10))

    def answer(peer: socket.socket) -> None:
        if next(times):
            plain(b"[]")(peer)

    with serving(answer) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", address)
        assert search("x") == []


def test_a_hub_that_closes_every_connection_is_down() -> None:
    with serving(lambda peer: None) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", address)
        with pytest.raises(HubError) as caught:
            search("x")
    assert caught.value.code == "hub_down"


def test_a_redirect_in_a_circle_ends(hub: Hub) -> None:
    hub.fault("loop", "*")
    for ask in (lambda: repository(REPO), lambda: resolve(REPO, "main", FILE)):
        with pytest.raises(HubError) as caught:
            ask()
        assert caught.value.code == "bad_answer"
    assert len(hub.seen) < 30


def test_a_redirect_to_the_file_system_is_only_reported(hub: Hub) -> None:
    hub.fault("redirect", "/org/*", location="file:///etc/passwd")
    found = resolve(REPO, "main", FILE, token=TOKEN)
    assert found.url == "file:///etc/passwd"
    assert found.headers == {}
