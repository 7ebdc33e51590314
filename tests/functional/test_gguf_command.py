"""manage.py gguf: everything about a model file, of a path or an address, and errors in words."""

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.gguf import describe
from jobs.adapters import buildwords
from jobs.adapters.buildwords import words_in_build
from jobs.models import Build
from jobs.services.hosts import local_host
from tests.fakes.hub import Hub
from tests.models import plain_model, tiny_models
from tests.unit.gguf_samples import build, mtp_model, projector, string, u32

ROOT = Path(__file__).resolve().parents[2]
ENGINE = Path(sys.prefix) / "bin" / "panel-llama-server"
WORDS = ("general.architecture", "q4_K", "dequantize_row_q4_K", "qwen35")


def run(*args: str | Path) -> str:
    """The command's answer."""
    out = StringIO()
    call_command("gguf", *map(str, args), stdout=out)
    return out.getvalue()


def report(*args: str | Path) -> dict[str, Any]:
    """The command's answer as JSON."""
    value: dict[str, Any] = json.loads(run(*args, "--json"))
    return value


def refused(target: str | Path) -> dict[str, Any]:
    """The JSON error of a command that ends with 1."""
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("gguf", str(target), "--json", stdout=out)
    assert ended.value.code == 1
    value: dict[str, Any] = json.loads(out.getvalue())
    return value


def add_build(name: str, binary: Path, **capabilities: Any) -> Build:
    """A ready build of this host."""
    return Build.objects.create(
        host=local_host(),
        name=name,
        path=str(binary),
        state=Build.State.READY,
        capabilities=Capabilities(**capabilities).to_dict(),
    )


def fake_build(folder: Path, *words: str) -> Path:
    """A binary with a library beside it that holds some texts as a C program does."""
    folder.mkdir()
    (folder / "llama-server").write_bytes(b"\x7fELF")
    (folder / "libllama.so").write_bytes(b"\x00".join(word.encode() for word in words) + b"\x00")
    return folder / "llama-server"


@pytest.mark.django_db
def test_the_answer_begins_with_what_describe_says_and_goes_on_with_all_facts(tmp_path: Path) -> None:
    model, mmproj = tiny_models(tmp_path)
    found = report(model)
    assert {key: found[key] for key in describe(model)} == dict(describe(model))
    assert found["facts"]["trunk_layers"] == 2
    assert found["facts"]["template"]["present"] is True
    assert found["mtp"] == "MTP heads: 1."
    assert found["shards"] == {"count": 1, "read": 1, "missing": [], "size": model.stat().st_size}
    assert found["fits"] == [{"name": mmproj.name, "content": "projector", "fits": True, "reasons": []}]
    assert found["builds"] == []


@pytest.mark.django_db
def test_a_projector_is_compared_with_the_models_beside_it(tmp_path: Path) -> None:
    tiny_models(tmp_path)
    plain_model(tmp_path)
    (tmp_path / "other.gguf").write_bytes(mtp_model())
    (tmp_path / "broken.gguf").write_bytes(b"<html>")
    found = report(tmp_path / "mmproj-tiny.gguf")
    assert {item["name"]: item["fits"] for item in found["fits"]} == {
        "other.gguf": False,
        "tiny-mtp.gguf": True,
        "tiny-plain.gguf": True,
    }


@pytest.mark.django_db
def test_each_ready_build_of_this_host_is_judged(tmp_path: Path) -> None:
    model, _ = tiny_models(tmp_path)
    add_build("knows it", fake_build(tmp_path / "a", *WORDS), mtp_value="draft-mtp")
    add_build("older", fake_build(tmp_path / "b", *WORDS[:3]), mtp_value="draft-mtp")
    add_build("gone", tmp_path / "c" / "llama-server")
    Build.objects.create(host=local_host(), name="failed", path="/x", state=Build.State.FAILED)
    found = {item["build"]: item for item in report(model)["builds"]}
    assert {name: item["runs"] for name, item in found.items()} == {
        "knows it": True,
        "older": False,
        "gone": None,
    }
    assert "qwen35" in found["older"]["reasons"][0]["text"]


@pytest.mark.django_db
def test_the_bundled_engine_knows_the_tiny_model_and_no_turboquant_weights(tmp_path: Path) -> None:
    model, _ = tiny_models(tmp_path)
    add_build("bundled", ENGINE, mtp_value="draft-mtp")
    assert report(model)["builds"] == [{"build": "bundled", "runs": True, "reasons": []}]
    fork = tmp_path / "fork.gguf"
    fork.write_bytes(build([string("general.architecture", "qwen35")], [("t", [32], 45, 0)], bytes(64)))
    assert report(fork)["builds"][0]["runs"] is False
    unknown = tmp_path / "unknown.gguf"
    unknown.write_bytes(build([string("general.architecture", "qwen99")], [("t", [32], 0, 0)], bytes(128)))
    assert report(unknown)["builds"][0]["runs"] is False


@pytest.mark.django_db
def test_a_missing_part_is_named(tmp_path: Path) -> None:
    path = tmp_path / "big-00001-of-00003.gguf"
    path.write_bytes(mtp_model(1, False, parts=(0, 3)))
    found = report(path)
    assert found["shards"]["missing"] == ["big-00002-of-00003.gguf", "big-00003-of-00003.gguf"]
    assert found["complete"] is False
    assert found["facts"]["mtp"]["usable"] is None


@pytest.mark.django_db
def test_text_for_people_says_the_same_and_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "evil\x1b[2J.gguf.part"
    path.write_bytes(
        build(
            [string("general.architecture", "llama"), string("general.name", b"x\x1b[31m\r\nrm -rf")],
            [("t\x07", [32], 0, 0)],
            bytes(128),
        )
    )
    text = run(path)
    assert "unfinished download" in text
    assert all(line.isprintable() for line in text.splitlines())
    model, _ = tiny_models(tmp_path)
    assert "Fits mmproj-tiny.gguf: yes" in run(model)


@pytest.mark.parametrize(
    "content, word",
    [
        (b"<!DOCTYPE html>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-LFS pointer"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"\x10\x00\x00\x00\x00\x00\x00\x00" + b'{"a"', "safetensors"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(60), "packed"),
        (b"\x28\xb5\x2f\xfd" + bytes(60), "packed"),
        (b"\x80\x02}q\x00", "PyTorch"),
        (b"Entry not found", "error answer"),
        (b'{"error":"Invalid username or password."}', "JSON"),
    ],
)
def test_a_foreign_file_is_called_what_it_is(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    error = refused(path)
    assert error["error"] == "not_gguf"
    assert word in error["detail"]


def test_without_a_database_the_builds_are_unknown_and_the_rest_is_said(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(projector())
    env = {
        **os.environ,
        "PANEL_DATA": str(tmp_path / "data"),
        "DJANGO_SETTINGS_MODULE": "controlpanel.settings",
    }
    argv = [sys.executable, str(ROOT / "manage.py"), "gguf", str(path), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=True, timeout=60)
    found = json.loads(done.stdout)
    assert found["builds"] is None
    assert found["projector"] == "qwen3vl_merger"


@pytest.mark.django_db
def test_the_header_at_an_address_is_reported_without_loading_the_file(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = build(
        [string("general.architecture", "qwen35"), u32("qwen35.context_length", 8192), u32("split.count", 2)],
        [("blk.0.attn_norm.weight", [1 << 20], 0, 0)],
        bytes(4 << 20),
    )
    with Hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        settings.PANEL_PRIVATE_HOSTS = hub.private
        hub.add("org/model-GGUF", "m-00001-of-00002.gguf", raw)
        found = report(f"{hub.endpoint}/org/model-GGUF/resolve/main/m-00001-of-00002.gguf")
        assert (found["context_length"], found["file_size"]) == (8192, len(raw))
        assert "only this part" in found["problems"][0]
        assert refused(f"{hub.endpoint}/org/model-GGUF/resolve/main/nope.gguf")["error"] == "not_found_file"
    assert refused("file:///etc/passwd")["detail"]
    assert refused("http://127.0.0.1:9/x.gguf")["error"] == "refused_address"


def test_a_text_across_two_blocks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "llama-server"
    binary.write_bytes(b"." * 95 + b"qwen35\x00" + b"." * 500 + b"q4_K\x00" + b"tail")
    monkeypatch.setattr(buildwords, "_BLOCK", 100)
    assert words_in_build(binary, ["qwen35", "q4_K", "qwen3", "tail"]) == {"qwen35", "q4_K"}


def test_a_build_too_large_to_be_read_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "llama-server"
    binary.write_bytes(bytes(1000) + b"qwen35\x00")
    monkeypatch.setattr(buildwords, "MAX_BYTES", 500)
    assert words_in_build(binary, ["qwen35"]) is None
    assert words_in_build(tmp_path / "gone", ["qwen35"]) is None
