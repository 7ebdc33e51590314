"""Settings from the environment: good values, and bad ones in words."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlpanel.lib import env
from controlpanel.lib.redis import kombu_url

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "origin", "path"),
    [
        ("https://panel.example/panel/", "https://panel.example", "/panel"),
        ("http://box:8800", "http://box:8800", ""),
        ("https://[2001:db8::1]:8443/", "https://[2001:db8::1]:8443", ""),
    ],
)
def test_the_public_address_is_split(
    monkeypatch: pytest.MonkeyPatch, text: str, origin: str, path: str
) -> None:
    monkeypatch.setenv("PANEL_URL", text)
    found = env.env_url("PANEL_URL")
    assert found is not None
    assert (found.origin, found.path) == (origin, path)


@pytest.mark.parametrize(
    "text", ["panel.example", "ftp://x/", "https://", "http://x:99999/", "https://x/?a=1"]
)
def test_a_bad_public_address_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PANEL_URL", text)
    with pytest.raises(ImproperlyConfigured, match="PANEL_URL"):
        env.env_url("PANEL_URL")


@pytest.mark.parametrize("text", ["80-90", "18080", "20000-19000", "a-b", "18080-70000"])
def test_bad_port_ranges_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PANEL_SERVER_PORTS", text)
    with pytest.raises(ImproperlyConfigured, match="PANEL_SERVER_PORTS"):
        env.env_ports("PANEL_SERVER_PORTS", "18080-18179")


def test_secrets_can_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "key"))
    assert env.secret_key(tmp_path) == "from a file"


def test_the_kept_secret_key_is_private_and_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SECRET_KEY", raising=False)
    monkeypatch.delenv("SECRET_KEY_FILE", raising=False)
    first = env.secret_key(tmp_path)
    assert env.secret_key(tmp_path) == first
    assert (tmp_path / "secret_key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("runtime", ["short", "r" * 150])
def test_socket_paths_stay_short_whatever_the_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runtime: str
) -> None:
    base = tmp_path / runtime
    base.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    folder = env.runtime_folder(tmp_path / ("d" * 120))
    try:
        assert len(str(folder / "supervisor.sock")) < 108
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        folder.rmdir()


def test_a_socket_folder_of_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = env.runtime_folder(tmp_path / "data")
    folder.chmod(0o777)
    with pytest.raises(ImproperlyConfigured, match="0700"):
        env.runtime_folder(tmp_path / "data")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("unix:///run/x/valkey.sock?db=2", "redis+socket:///run/x/valkey.sock?virtual_host=2"),
        ("unix:///run/x/valkey.sock", "redis+socket:///run/x/valkey.sock?virtual_host=0"),
        ("redis://:secret@box:6379/1", "redis://:secret@box:6379/1"),
        ("rediss://box:6380/0", "rediss://box:6380/0"),
    ],
)
def test_one_redis_address_serves_both_libraries(url: str, expected: str) -> None:
    assert kombu_url(url) == expected


def settings_with(tmp_path: Path, **environ: str) -> dict[str, Any]:
    """Some settings as a fresh process sees them with these variables."""
    code = (
        "import json; from django.conf import settings as s; print(json.dumps({n: getattr(s, n) for n in "
        "('ALLOWED_HOSTS','CSRF_TRUSTED_ORIGINS','SESSION_COOKIE_SECURE','FORCE_SCRIPT_NAME','STATIC_URL',"
        "'SESSION_COOKIE_PATH','SESSION_COOKIE_NAME','REDIS_URL') if hasattr(s, n)}))"
    )
    base = {k: v for k, v in os.environ.items() if not k.startswith(("PANEL_", "REDIS_", "DATABASE_"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={
            **base,
            "DJANGO_SETTINGS_MODULE": "controlpanel.settings",
            "PANEL_DATA": str(tmp_path),
            **environ,
        },
        capture_output=True,
        check=True,
        timeout=120,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_public_address_gives_hosts_origins_cookies_and_sub_path(tmp_path: Path) -> None:
    found = settings_with(tmp_path, PANEL_URL="https://panel.example/panel/")
    assert "panel.example" in found["ALLOWED_HOSTS"] and "*" not in found["ALLOWED_HOSTS"]
    assert found["CSRF_TRUSTED_ORIGINS"] == ["https://panel.example"]
    assert found["SESSION_COOKIE_SECURE"] is True
    assert (found["FORCE_SCRIPT_NAME"], found["STATIC_URL"]) == ("/panel", "/panel/static/")
    assert found["SESSION_COOKIE_PATH"] == "/panel/"


def test_two_panels_on_one_machine_share_neither_cookie_nor_socket(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    one = settings_with(tmp_path, PANEL_PORT="8801")
    two = settings_with(tmp_path / "b", PANEL_PORT="8802")
    assert one["SESSION_COOKIE_NAME"] != two["SESSION_COOKIE_NAME"]
    assert one["REDIS_URL"] != two["REDIS_URL"]
