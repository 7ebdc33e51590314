"""Exports of a profile read back: by bash, by a YAML parser and by the importer."""

from __future__ import annotations

import re
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.command import Managed, render
from controlpanel.llamacpp.exporting import (
    KINDS,
    Exported,
    ExportedText,
    ExportError,
    Upkeep,
    export,
    own_words,
)
from controlpanel.llamacpp.importing import read_command

HELP = Path(__file__).parent.parent / "data" / "help"
TWO_GPUS = "".join(f"  CUDA{n}: RTX 3090 (24135 MiB, 23800 MiB free)\n" for n in (0, 1))
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text(), "version: 1 (a)", TWO_GPUS)
FORK = capabilities_from((HELP / "help-fork.txt").read_text(), "version: 9123 (67f38aa53)")
RECIPE: dict[str, object] = {
    "ctx_size": 204_800,
    "gpu_layers": "all",
    "parallel": 1,
    "flash_attn": "on",
    "cache_type_k": "q8_0",
    "cache_type_v": "q8_0",
    "speculation": "mtp",
    "draft_max": 3,
    "load_mode": "mlock",
    "kv_offload": "on",
    "mmproj_offload": "off",
    "temperature": "0.7",
    "reasoning_budget": -1,
}
CARDS = "GPU-8f3c1a2b-0000-1111-2222-333344445555,GPU-9f3c1a2b-0000-1111-2222-333344445555"
ENV = {"CUDA_VISIBLE_DEVICES": CARDS}
# Names of files, of profiles and arguments as nobody should choose them.
NASTY = [
    "a b",
    "it's",
    'say "x"',
    "$HOME",
    "${PORT}",
    "${env.HOME}",
    "`id`",
    "50%",
    "%h %%",
    "back\\slash",
    "#c",
]
NASTY += [
    "end\\",
    "; rm -rf /",
    ";",
    "a\nb",
    "- x",
    "müde 日本 🦙",
    "<&>|*?[~]!",
    "]",
    "{{.X}}",
    "\t",
    "\u2028",
    "\x85",
]


def server(caps: Capabilities = UPSTREAM, *extra: str, **changes: Any) -> Exported:
    """The recipe as it is exported."""
    managed = Managed(changes.get("model", "/m/M.gguf"), "/m/P.gguf", "My profile", 8081)
    argv, _ = own_words(render(caps, RECIPE, extra, managed))
    values: dict[str, Any] = {
        "name": "My profile",
        "slug": "my-profile",
        "executable": "/opt/llama server/bin/llama-server",
        "argv": argv,
        "env": ENV,
        "port": 8081,
        "model": "/m/M.gguf",
        "mmproj": "/m/P.gguf",
        "memory_mib": 9000,
        "description": "M",
        "caps": caps,
    }
    return Exported(**{**values, **changes})


def with_words(*words: str, **changes: Any) -> Exported:
    """A server whose arguments are free words."""
    return server(argv=["--model", "/m/M.gguf", *words], **changes)


def words_of_script(text: str) -> list[str]:
    """What bash gives to the program of a script."""
    check = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert check.returncode == 0 and not check.stderr, check.stderr
    assert text.count("\nexec ") >= 1
    printed = text.replace("\nexec ", "\nprintf '%s\\0' ", 1)
    env = {"LLAMA_API_KEY": "k", "PATH": "/nowhere", "HOME": "/home", "PORT": "1"}
    found = subprocess.run(["/bin/bash"], input=printed.encode(), env=env, capture_output=True, check=True)
    assert not found.stderr
    return found.stdout.decode().split("\0")[:-1]


def interpolated(value: Any) -> Any:
    """Values of a compose file with $$ read back; the key's variable stays."""
    if isinstance(value, dict):
        return {key: interpolated(part) for key, part in value.items()}
    if isinstance(value, list):
        return [interpolated(part) for part in value]
    if isinstance(value, str) and not value.startswith("${LLAMA_API_KEY:?"):
        assert not re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", value), value
        return value.replace("$$", "$")
    return value


def service_of(text: str) -> dict[str, Any]:
    """The only service of a compose file."""
    ((name, service),) = yaml.safe_load(text)["services"].items()
    assert re.fullmatch(r"[a-zA-Z0-9._-]+", name)
    found: dict[str, Any] = interpolated(service)
    return found


def notes(found: ExportedText) -> str:
    """All notes as one text."""
    return "\n".join(map(str, found.notes))


def test_every_kind_has_a_label_a_file_and_notes() -> None:
    names = set()
    for kind, label in KINDS.items():
        found = export(kind, server())
        assert label and found.text.endswith("\n") and found.notes
        names.add(found.filename)
    assert len(names) == len(KINDS)


def test_the_panels_own_words_are_left_out_with_a_note() -> None:
    argv, said = own_words(render(UPSTREAM, {}, ["-lv", "5"], Managed("/m", None, "a", 1)))
    assert argv[:6] == ["--model", "/m", "--alias", "a", "--host", "127.0.0.1"]
    assert argv[-2:] == ["-lv", "5"] and "--log-colors" not in argv and "--sse-ping-interval" not in argv
    assert "--sse-ping-interval 2, --log-colors off" in str(said[0]) and "config.ini" in str(said[1])


def test_a_script_asks_for_the_key_and_sets_the_variables() -> None:
    text = export("shell", server()).text
    assert 'LLAMA_API_KEY="${LLAMA_API_KEY:?' in text and f"export CUDA_VISIBLE_DEVICES={CARDS}" in text
    assert words_of_script(text) == [server().executable, *server().argv]
    failed = subprocess.run(["sh"], input=text, env={}, text=True, capture_output=True, check=False)
    assert failed.returncode != 0 and "the key" in failed.stderr


WORDS = st.lists(
    st.one_of(
        st.sampled_from(NASTY),
        st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8"), max_size=12),
        st.text(alphabet="'\"\\$%{}#;\n\r\t -=a`", max_size=12),
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(WORDS, st.sampled_from(NASTY))
def test_bash_reads_every_word_of_a_script(words: list[str], name: str) -> None:
    what = with_words(*words, name=name, description=name, env={"A": name}, executable=f"/x/{name}")
    assert words_of_script(export("shell", what).text) == [what.executable, *what.argv]


@settings(max_examples=200, deadline=None)
@given(WORDS, st.sampled_from(NASTY))
def test_compose_reads_every_word_of_a_service(words: list[str], name: str) -> None:
    what = with_words(*words, name=name, env={"A": name}, model=f"/m/{name}.gguf", mmproj=None)
    service = service_of(export("compose", what).text)
    if not {"--host", "--port"} & set(words):
        assert service["command"] == list(what.argv)
    assert service["environment"]["A"] == name
    assert service["volumes"][0]["source"] == f"/m/{name}.gguf"


def test_a_service_of_compose_has_its_files_cards_and_health() -> None:
    extra = ("--lora", "/m/l.gguf,/m/k.gguf", "--chat-template-file", "/m/t.jinja")
    found = export("compose", server(UPSTREAM, *extra, model="/m/M-00001-of-00002.gguf"))
    service = service_of(found.text)
    assert service["image"] == "ghcr.io/ggml-org/llama.cpp:server-cuda"
    assert service["restart"] == "on-failure:3" and service["ports"] == ["127.0.0.1:8081:8081"]
    assert service["command"][service["command"].index("--host") + 1] == "0.0.0.0"
    assert service["healthcheck"]["test"][-1] == "http://localhost:8081/health"
    assert service["ulimits"] == {"memlock": -1}
    (card,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert card == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    names = ["M-00001-of-00002.gguf", "M-00002-of-00002.gguf", "P.gguf", "l.gguf", "k.gguf", "t.jinja"]
    assert [volume["target"] for volume in service["volumes"]] == [f"/m/{name}" for name in names]
    assert all(volume["read_only"] and volume["type"] == "bind" for volume in service["volumes"])
    assert service["environment"]["LLAMA_API_KEY"].startswith("${LLAMA_API_KEY:?")


def test_a_service_of_compose_is_kept_running_as_the_profile_is() -> None:
    for upkeep, restart, limit in (
        (Upkeep("never"), "no", None),
        (Upkeep("on-failure", 7), "on-failure:7", None),
        (Upkeep("always", memory_mib=9000), "unless-stopped", "9000m"),
    ):
        found = export("compose", server(upkeep=upkeep))
        service = service_of(found.text)
        assert (service["restart"], service.get("mem_limit")) == (restart, limit)
        assert ("reboot" in notes(found)) == (upkeep.restart == "on-failure")


@pytest.mark.parametrize(
    ("device", "tag"), [("", "server"), ("Vulkan0", "server-vulkan"), ("ROCm0", "server-rocm")]
)
def test_the_image_follows_the_builds_devices(device: str, tag: str) -> None:
    devices = f"  {device}: Card (8000 MiB, 8000 MiB free)\n" if device else ""
    caps = capabilities_from((HELP / "upstream-b11434.txt").read_text(), "", devices)
    service = service_of(export("compose", server(caps)).text)
    assert service["image"].endswith(f":{tag}") and "deploy" not in service
    assert ("devices" in service) == bool(device)


def test_a_fork_is_told_that_the_image_is_not_its_own() -> None:
    assert "fork" in notes(export("compose", server(FORK)))
    assert "fork" not in notes(export("compose", server()))


def test_without_a_port_a_container_has_8080() -> None:
    service = service_of(export("compose", server(port=None)).text)
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    assert service["command"][service["command"].index("--port") + 1] == "8080"


@pytest.mark.parametrize("caps", [UPSTREAM, FORK], ids=["upstream", "fork"])
@pytest.mark.parametrize("kind", ["shell", "systemd"])
def test_the_importer_gets_the_same_settings_back(kind: Any, caps: Capabilities) -> None:
    found = read_command(export(kind, server(caps, "--jinja", "--override-kv", "a.b=int:1")).text, caps)
    assert found.settings == RECIPE
    assert (found.model, found.mmproj, found.port) == ("/m/M.gguf", "/m/P.gguf", 8081)
    assert found.alias == "My profile" and found.env == ENV
    assert found.extra == ("--jinja", "--override-kv", "a.b=int:1")
    assert not [line for line in found.report if line.kind == "wrong"]


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_no_file_can_hold_is_refused_in_words(kind: Any) -> None:
    for what in (with_words("a\0"), with_words("\ud800"), server(env={"A B": "x"}), server(env={"A": "\0"})):
        with pytest.raises(ExportError, match=r"\w+ \w+"):
            export(kind, what)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_hostile_slug_is_made_a_plain_one(kind: Any) -> None:
    for slug in ("../../etc/x", "]\n[evil]", "", "-x", "ü"):
        found = export(kind, server(slug=slug))
        assert set(found.filename) <= set(string.ascii_letters + string.digits + "._-")
        assert len(slug) < 3 or slug not in found.text
