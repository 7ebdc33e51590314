"""manage.py doctor: the findings of the page as JSON or text; it always ends well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import redis
from django.core.management import call_command

from jobs.domain.gpu import GpuProcess
from jobs.domain.readiness import GROUPS, STATE_WORDS
from jobs.models import Host
from jobs.services import gpus
from tests.cards import publish_cards
from tests.functional.test_gpu_pages import CARD

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory of what other tests published or failed to read."""
    monkeypatch.setattr(gpus, "_shown", None)
    monkeypatch.setattr(gpus, "_next_try", 0.0)


def doctor(*args: str) -> str:
    out = StringIO()
    call_command("doctor", *args, stdout=out)
    return out.getvalue()


def left_over(host: Host) -> None:
    """A sample with a server that nobody of the panel started."""
    card = replace(CARD, processes=(GpuProcess(77, "llama-server", 3000, ours=False),))
    publish_cards(card)


def test_json_holds_each_finding_with_its_commands(redis_server: redis.Redis, host: Host) -> None:
    left_over(host)
    value = json.loads(doctor("--json"))
    assert set(value) == {"host", "findings"}
    assert value["host"] == host.slug
    found = {finding["key"]: finding for finding in value["findings"]}
    assert len(found) == len(value["findings"])
    for finding in found.values():
        assert set(finding) == {"group", "key", "state", "title", "value", "why", "commands"}
        assert finding["group"] in GROUPS and finding["state"] in STATE_WORDS
    assert found["processes"]["state"] == "look"
    assert found["processes"]["value"] == ["GPU 0: llama-server, pid 77, 3,000 MiB"]
    assert found["processes"]["commands"] == ["ps -o pid,user,lstart,args -p 77", "kill 77"]


def test_text_says_why_and_how_only_where_there_is_something_to_do(
    redis_server: redis.Redis, host: Host
) -> None:
    left_over(host)
    text = doctor()
    assert text.startswith("GPU and driver\n")
    assert "  ! Programs on the cards: GPU 0: llama-server, pid 77, 3,000 MiB (take a look)\n" in text
    assert "      kill 77\n" in text
    assert "  + NVIDIA driver: 580.95.05, runs programs of CUDA up to 13.0 (fine)\n" in text
    assert "Each server that uses a card goes through the driver" not in text
    assert "This host does not run under Windows (WSL2)" in text


def test_it_ends_well_on_a_host_where_the_panel_was_never_started(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PANEL_DATA": str(tmp_path / "data"), "LANG": "C.UTF-8"}
    command = [sys.executable, str(ROOT / "manage.py"), "doctor", "--json"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = {finding["key"]: finding for finding in json.loads(ended.stdout)["findings"]}
    assert found["driver"]["state"] == "unknown"
    assert found["memory"]["state"] in {"good", "look", "bad"}
