"""manage.py command and the exports behind it: words, files, other builds, refusals, and real servers."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import CommandError, call_command

from controlpanel.lib.errors import Refused
from controlpanel.llamacpp.capabilities import capabilities_from
from controlpanel.llamacpp.exporting import KINDS
from jobs.services.audit import Actor
from servers.models import ServerProfile
from servers.services.exports import export_profile
from servers.services.profiles import ProfileData, save_profile
from tests.engines import bundled_only, engine, engine_path, free_port, started
from tests.functional import pages
from tests.models import tiny_models
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db
UUID = "GPU-8f3c1a2b-0000-1111-2222-333344445555"


def profile(name: str = "My profile", **given: Any) -> ServerProfile:
    """A saved profile; without other words it has MTP and a turbo type as only the fork has it."""
    values: dict[str, Any] = {
        "settings": {"ctx_size": 8192, "parallel": 1, "cache_type_v": "turbo4", "speculation": "mtp"},
        "environment": {"CUDA_VISIBLE_DEVICES": UUID},
    }
    if "build" not in given:
        given["build"] = pages.build("fork", pages.FORK)
    if "model" not in given:
        given["model"] = pages.model()
    return save_profile(Actor.cli(), None, ProfileData(name, **{**values, **given}))


def run(*args: object) -> tuple[str, str]:
    """What the command prints on both streams."""
    out, err = StringIO(), StringIO()
    call_command("command", *map(str, args), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def answer(*args: object) -> dict[str, Any]:
    """The command's answer as JSON."""
    value: dict[str, Any] = json.loads(run(*args, "--json")[0])
    return value


def test_the_command_line_is_one_line_for_a_shell() -> None:
    profile(port=18123)
    out, err = run("My profile")
    first, program, *words = shlex.split(out)
    assert first == f"CUDA_VISIBLE_DEVICES={UUID}" and program == "/opt/fork/llama-server"
    assert words == answer("my-profile")["argv"] and "\n" not in out.strip()
    assert words[words.index("--port") + 1] == "18123"
    assert "! warning: This build drafts 16 tokens" in err


def test_the_answer_tells_where_each_flag_comes_from() -> None:
    found = answer(profile().slug)
    assert (found["profile"], found["build"]) == ("my-profile", "fork")
    assert found["executable"] == "/opt/fork/llama-server" and found["env"]["CUDA_VISIBLE_DEVICES"] == UUID
    sources = {flag["flag"]: (flag["value"], flag["source"]) for flag in found["flags"]}
    assert sources["--cache-type-v"] == ("turbo4", "passed")
    assert sources["--metrics"] == (None, "managed") and sources["--port"] == ("8080", "managed")
    assert found["problems"][0]["field"] == "draft_max" and "16 tokens" in found["problems"][0]["text"]
    assert "text" not in found


def test_another_build_writes_it_in_its_own_words_and_says_what_it_cannot() -> None:
    profile()
    pages.build("mainline")
    found = answer("my-profile", "--build", "mainline")
    assert found["executable"] == "/opt/mainline/llama-server"
    assert found["argv"][found["argv"].index("--spec-type") + 1] == "draft-mtp"
    wrong = [problem for problem in found["problems"] if problem["level"] == "error"]
    assert [problem["field"] for problem in wrong] == ["cache_type_v"]
    notes = answer("my-profile", "--build", "mainline", "--as", "shell")["notes"]
    assert any("does not start like this" in note and "turbo4" in note for note in notes)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_file_is_printed_with_its_notes_beside_it(kind: str) -> None:
    profile()
    found = answer("my-profile", "--as", kind)
    out, err = run("my-profile", "--as", kind)
    assert out == found["text"] and found["filename"]
    assert [line.removeprefix("! ") for line in err.splitlines()] == found["notes"]
    leaves_port = any("leaves the port to the panel" in note for note in found["notes"])
    assert leaves_port == (kind in ("shell", "systemd", "compose"))
    assert "log-colors" not in out and "XDG_CONFIG_HOME" not in out


def test_a_unit_bounds_what_the_model_takes_of_main_memory(tmp_path: Path) -> None:
    model, _ = tiny_models(tmp_path)
    build = pages.build()
    settings = {"parallel": 1, "ctx_size": 4096, "gpu_layers": 0, "cache_ram": 1024}
    row = profile(build=build, model=pages.model_of(model), settings=settings)
    assert "\nMemoryMax=2304M\n" in export_profile(row, "systemd").text
    gone = profile("Gone", build=build, model=pages.model("gone"), settings=settings)
    assert "MemoryMax" not in export_profile(gone, "systemd").text


def test_what_is_not_there_is_refused_in_words() -> None:
    profile()
    for args, code in ((("other",), "no_such_profile"), (("my-profile", "--build", "x"), "no_such_build")):
        out = StringIO()
        with pytest.raises(SystemExit) as ended:
            call_command("command", *args, "--json", stdout=out)
        assert ended.value.code == 1 and json.loads(out.getvalue())["error"] == code
    with pytest.raises(CommandError, match="invalid choice"):
        run("my-profile", "--as", "windows")


def test_a_profile_that_no_file_can_hold_is_refused() -> None:
    row = profile()
    row.model.path = "/data/a\0b.gguf"
    with pytest.raises(Refused, match="NUL"):
        export_profile(row, "shell")


def real_profile(folder: Path, **given: Any) -> ServerProfile:
    """A profile of the engine that tests run, with a file name that needs care."""
    model, mmproj = tiny_models(folder)
    strange = folder / 'é "x" \\ % $HOME'
    strange.mkdir()
    os.link(model, strange / "it's my model.gguf")
    text = subprocess.run([*engine(), "--help"], capture_output=True, text=True, check=True).stdout
    capabilities = capabilities_from(text).to_dict()
    build = pages.build("engine", path=str(engine_path()), capabilities=capabilities)
    values: dict[str, Any] = {
        "build": build,
        "model": pages.model_of(strange / "it's my model.gguf"),
        "mmproj": pages.model_of(mmproj),
        "settings": {"ctx_size": 1024, "parallel": 2, "gpu_layers": 0, "temperature": "0.5"},
        "extra_args": '--no-warmup --chat-template "{{ \'a\' }} \\"x\\" % $HOME"',
        "environment": {},
    }
    return profile(**{**values, **given})


def check_props(url: str, headers: dict[str, str], folder: Path) -> None:
    """The server is the one of the profile."""
    found = httpx.get(f"{url}/props", headers=headers).json()
    assert found["model_path"] == str(folder / 'é "x" \\ % $HOME' / "it's my model.gguf")
    assert found["total_slots"] == 2 and found["model_alias"] == "My profile"
    assert found["chat_template"] == "{{ 'a' }} \"x\" % $HOME"
    assert found["default_generation_settings"]["params"]["temperature"] == 0.5
    assert found["endpoint_metrics"] is True and found["modalities"]["vision"] is True


def test_a_script_starts_the_server_and_its_key_is_asked_for(tmp_path: Path) -> None:
    port = free_port()
    script = tmp_path / "start.sh"
    script.write_text(export_profile(real_profile(tmp_path, port=port), "shell").text)
    log = tmp_path / "log"
    with log.open("wb") as out:
        env = {**os.environ, "LLAMA_API_KEY": "secret"}
        server = subprocess.Popen(["sh", str(script)], stdout=out, stderr=out, env=env)
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            return httpx.get(f"{url}/health").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_for(ready, 60, "the server of the script")
        assert httpx.get(f"{url}/props").status_code == 401
        check_props(url, {"Authorization": "Bearer secret"}, tmp_path)
        server.send_signal(signal.SIGTERM)
        assert server.wait(40) == 0
    finally:
        server.kill()
        server.wait(40)


@bundled_only
def test_llamacpp_itself_reads_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled engine has no router, but it reads its own config.ini by the same rules."""
    row = real_profile(tmp_path)
    row.slug = "default"
    folder = tmp_path / "config" / "llama.cpp"
    folder.mkdir(parents=True)
    (folder / "config.ini").write_text(export_profile(row, "router").text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with started(tmp_path) as server:
        server.wait_ready()
        check_props(server.url, {}, tmp_path)
