"""How the guarded client gets to a server: over TLS, through a proxy, never to what was not checked."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.adapters import addresses
from jobs.adapters.addresses import AddressRefused, Guard, guarded_client, private_hosts
from tests.fakes.hub import Hub
from tests.functional.fetching import DATA, NAME, REPO, Shop
from tests.waiting import wait_for


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub with one model."""
    with Hub() as running:
        running.add(REPO, NAME, DATA)
        yield running


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy but one that the test sets."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """A certificate for localhost that this process trusts."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    addresses._trust.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    yield context
    addresses._trust.cache_clear()


def test_a_file_comes_over_tls(certificate: ssl.SSLContext, tmp_path: Path, settings: Any) -> None:
    hub = Hub(tls=certificate)
    settings.PANEL_PRIVATE_HOSTS = hub.private
    with hub:
        hub.add(REPO, NAME, DATA)
        shop = Shop(hub, tmp_path)
        assert shop.source(known=False).url.startswith("https://localhost:")
        shop.fetch(shop.source(known=False))
        assert shop.target.read_bytes() == DATA


def test_a_certificate_for_another_name_is_refused(certificate: ssl.SSLContext) -> None:
    with Hub(tls=certificate) as hub, guarded_client(Guard(private_hosts(hub.private))) as client:
        with pytest.raises(httpx.ConnectError, match="certificate"):
            client.get(f"https://127.0.0.1:{hub.port}/")
        assert client.get(f"https://localhost:{hub.port}/").status_code == 404


def test_nothing_is_sent_to_a_private_address(hub: Hub) -> None:
    with guarded_client(Guard()) as client, pytest.raises(AddressRefused):
        client.get(f"https://localhost:{hub.port}/")
    with guarded_client(Guard(private_hosts(f"localhost:{hub.port + 1}"))) as client:
        for url in (f"http://localhost:{hub.port}/", f"https://127.0.0.1:{hub.port}/"):
            with pytest.raises(AddressRefused):
                client.get(url)
    assert hub.seen == []


def test_redirects_that_a_client_follows_are_checked_as_well(hub: Hub) -> None:
    hub.fault("redirect", path="*/resolve/*", location="https://127.0.0.1:1/latest")
    hub.fault("redirect", path="*/file/*", location="file:///etc/passwd")
    with guarded_client(Guard(private_hosts(f"127.0.0.1:{hub.port}"))) as client:
        with pytest.raises(AddressRefused):
            client.get(hub.resolve_url(REPO, NAME), follow_redirects=True)
        with pytest.raises((AddressRefused, httpx.HTTPError)):
            client.get(f"{hub.endpoint}/file/x", follow_redirects=True)


def test_a_name_that_changes_its_answer_gains_nothing(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["8.8.8.8", "127.0.0.1"])
    asked: list[str] = []

    def lookup(host: str, port: int, **kind: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    guard = Guard()
    with monkeypatch.context() as patched:
        patched.setattr(addresses.socket, "getaddrinfo", lookup)
        assert guard.addresses("rebind.example", hub.port) == ["8.8.8.8"]
        with guarded_client(guard) as client, pytest.raises(AddressRefused):
            client.get(f"https://rebind.example:{hub.port}/")
    assert asked == ["rebind.example", "rebind.example"]
    assert hub.seen == []


class Proxy:
    """Answers any request that comes through it, and remembers its first line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                head = connection.recv(65536).decode()
                self.lines.append(head.split("\r\n")[0])
                status = "403 Forbidden" if head.startswith("CONNECT") else "200 OK"
                connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok".encode())


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    proxy = Proxy()
    monkeypatch.setenv("HTTP_PROXY", proxy.address)
    monkeypatch.setenv("HTTPS_PROXY", proxy.address)
    with guarded_client(Guard(private_hosts("models.invalid"))) as client:
        assert client.get("http://models.invalid/m.gguf").text == "ok"
        with pytest.raises(httpx.ProxyError):
            client.get("https://files.invalid/m.gguf")
        for url in ("https://10.0.0.1/", f"https://localhost:{hub.port}/", "http://files.invalid/"):
            with pytest.raises(AddressRefused):
                client.get(url)
    assert proxy.lines == ["GET http://models.invalid/m.gguf HTTP/1.1", "CONNECT files.invalid:443 HTTP/1.1"]
    proxy.socket.close()


def test_another_thread_can_end_a_connection(hub: Hub) -> None:
    hub.fault("stall", after=1000)
    caught: list[Exception] = []
    with guarded_client(Guard(private_hosts(hub.private))) as client:

        def read() -> None:
            try:
                client.get(hub.file_url(REPO, NAME))
            except httpx.TransportError as error:
                caught.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        wait_for(lambda: hub.bytes_sent >= 1000, 10, "the server to stand still")
        client.abort()
        thread.join(10)
        assert caught
