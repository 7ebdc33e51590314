"""The containers: what compose starts, what it publishes, and how it knows that a part is well."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
OWN = ["host", "migrate", "web"]


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return found


def test_compose_has_the_panels_parts_and_its_stores(services: dict[str, dict[str, Any]]) -> None:
    assert sorted(services) == ["host", "migrate", "postgres", "redis", "web"]
    assert services["host"]["build"]["target"] == "host"
    assert services["web"]["build"]["target"] == "web"


def test_only_the_panels_own_port_is_published_and_only_on_this_machine(
    services: dict[str, dict[str, Any]],
) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"host": ["${PANEL_PUBLISH:-127.0.0.1:8800}:8800"]}


def test_web_shares_the_network_of_host_to_reach_its_llama_servers(
    services: dict[str, dict[str, Any]],
) -> None:
    assert services["web"]["network_mode"] == "service:host"
    assert services["web"]["depends_on"]["host"]["restart"] is True


def test_web_and_host_wait_for_the_stores_and_the_tables(services: dict[str, dict[str, Any]]) -> None:
    for name in ("web", "host"):
        conditions = {other: entry["condition"] for other, entry in services[name]["depends_on"].items()}
        assert conditions["postgres"] == conditions["redis"] == "service_healthy"
        assert conditions["migrate"] == "service_completed_successfully"


def test_each_lasting_service_has_a_healthcheck(services: dict[str, dict[str, Any]]) -> None:
    checks = {name: service["healthcheck"]["test"] for name, service in services.items() if name != "migrate"}
    assert checks["web"] == ["CMD", "python", "deploy/healthcheck.py", "web"]
    assert checks["host"] == ["CMD", "python", "deploy/healthcheck.py", "host"]
    assert checks["postgres"][1] == "pg_isready"
    assert checks["redis"][1:] == ["valkey-cli", "ping"]


@pytest.mark.parametrize("name", OWN)
def test_own_services_share_the_data_and_reap_orphans(services: dict[str, dict[str, Any]], name: str) -> None:
    assert services[name]["volumes"] == ["data:/data"]
    assert services[name]["init"] is True


def test_servers_get_time_to_stop_with_their_container(services: dict[str, dict[str, Any]]) -> None:
    assert services["host"]["stop_grace_period"] == "60s"


def test_named_volumes_are_declared(services: dict[str, dict[str, Any]]) -> None:
    declared = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["volumes"]
    used = {mount.split(":")[0] for service in services.values() for mount in service.get("volumes", [])}
    assert used == set(declared) == {"data", "database"}


def test_no_password_has_a_default(services: dict[str, dict[str, Any]]) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    values = re.findall(r"\$\{POSTGRES_PASSWORD([^}]*)\}", text)
    assert len(values) == 2
    assert all(value.startswith(":?") for value in values)
    assert all(
        service["environment"]["PANEL_URL"].startswith("${PANEL_URL:?") for service in map(services.get, OWN)
    )


def test_the_gpu_file_only_adds_to_host() -> None:
    override = yaml.safe_load((ROOT / "deploy" / "compose.gpu.yml").read_text())
    assert list(override) == ["services"]
    assert list(override["services"]) == ["host"]
    [device] = override["services"]["host"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}


def stages() -> dict[str, str]:
    """Text of each stage of the Dockerfile, by name."""
    text = (ROOT / "Dockerfile").read_text()
    parts = re.split(r"^FROM \S+ AS (\w+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("name", ["web", "host"])
def test_images_run_as_an_ordinary_user(name: str) -> None:
    users = re.findall(r"^USER (\S+)", stages()[name], re.MULTILINE)
    assert users == ["panel"]


def test_the_web_image_ends_open_streams_when_it_stops() -> None:
    command = stages()["web"].partition("\nCMD ")[2]
    assert '"controlpanel.asgi:application"' in command
    assert '"--timeout-graceful-shutdown", "3"' in command
    assert '"--lifespan", "off"' in command


def test_only_the_host_image_has_compilers() -> None:
    assert all(word in stages()["host"] for word in ("build-essential", "cmake", "git", "libgomp1"))
    assert "apt-get" not in stages()["web"] + stages()["runtime"]


def test_paths_that_the_dockerfile_copies_reach_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    for line in re.findall(r"^COPY (?!--from)(.+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source.split("/")[0] not in ignored, source


def healthcheck(part: str, **environment: str) -> int:
    """Exit code of the real check."""
    command = [sys.executable, str(ROOT / "deploy" / "healthcheck.py"), part]
    return subprocess.run(command, env={**os.environ, **environment}, timeout=60).returncode


def test_host_is_well_while_its_agent_holds_the_lock(tmp_path: Path) -> None:
    assert healthcheck("host", PANEL_DATA=str(tmp_path)) == 1
    with (tmp_path / "agent.lock").open("w") as lock:
        assert healthcheck("host", PANEL_DATA=str(tmp_path)) == 1
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert healthcheck("host", PANEL_DATA=str(tmp_path)) == 0
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert healthcheck("host", PANEL_DATA=str(tmp_path)) == 1


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[HTTPServer]:
    """A server whose sign-in page answers with the status given as the parameter; other pages are missing."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(request.param if self.path == "/accounts/login/" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answering", "code"), [(200, 0), (302, 0), (400, 1), (500, 1)], indirect=["answering"]
)
def test_web_is_well_when_its_sign_in_page_answers(answering: HTTPServer, code: int) -> None:
    assert healthcheck("web", PANEL_PORT=str(answering.server_port)) == code


def test_web_is_ill_when_nothing_listens() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port
    assert healthcheck("web", PANEL_PORT=str(port)) == 1
