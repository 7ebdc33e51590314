"""Exports for llama.cpp's router and for llama-swap, read back by their own rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.exporting import Exported, ExportedText, Upkeep, export

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text())
FORK = capabilities_from((HELP / "help-fork.txt").read_text())
BASE = ("--model", "/m/a b.gguf", "--alias", "Big one", "--host", "127.0.0.1", "--port", "8081", "--metrics")
FREE = st.one_of(
    st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8"), max_size=12),
    st.text(alphabet="'\"\\$%{}#;\n\r\t []=a`P", max_size=12),
    st.sampled_from(["${PORT}", "${env.HOME}", "$${X}", "a\n# b", "a\\\nb", "\n[evil]\n", "x ; y", "]"]),
)


def server(*extra: str, caps: Capabilities = UPSTREAM, **changes: Any) -> Exported:
    """A server of these arguments."""
    values: dict[str, Any] = {"name": "Big one", "slug": "big-one", "executable": "/opt/x/llama-server"}
    return Exported(**{**values, "argv": [*BASE, *extra], "caps": caps, **changes})


def ini_of(text: str) -> dict[str, dict[str, str]]:
    """Read a preset by the grammar of llama.cpp's common/preset.cpp; a line that fits no rule fails."""
    header = re.compile(r"\[[ \t]*([^]]+)[ \t]*\](?:[ \t]*[;#].*)?$")
    entry = re.compile(r"([a-zA-Z_][a-zA-Z0-9_.-]*)[ \t]*=[ \t]*(.*?)(?:[ \t]*[;#].*|[ \t]*)$")
    found: dict[str, dict[str, str]] = {}
    section = "default"
    for line in re.split(r"\r\n|\n|\r", text):
        if re.match(r"[ \t]*(?:[;#]|$)", line):
            continue
        match = header.match(line)
        if match:
            section = match[1]
            found[section] = {}
            continue
        match = entry.match(line)
        assert match, line
        found.setdefault(section, {})[match[1]] = match[2]
    return found


def split_posix(text: str) -> list[str]:
    """Split as llama-swap's library does: blanks, both quotes, and the backslash outside of single ones."""
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    pos = 0
    while pos < len(text):
        char = text[pos]
        follows = text[pos + 1 : pos + 2]
        pos += 1
        if char == "\\" and quote != "'" and (not quote or follows in '$`"\\'):
            word = [*(word or []), *follows]
            pos += 1
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = [*(word or []), char]
        elif char in "'\"":
            quote, word = char, word or []
        elif char in " \t\n":
            if word is not None:
                words.append("".join(word))
            word = None
        else:
            word = [*(word or []), char]
    return words if word is None else [*words, "".join(word)]


def swap_of(text: str) -> tuple[str, dict[str, Any], list[str]]:
    """Load an entry as llama-swap does: macros, comments, joined lines, words; returns id, model, words."""
    assert "${env." not in text
    ((label, model),) = yaml.safe_load(text)["models"].items()
    for key, value in model.items():
        for part in value if isinstance(value, list) else [value]:
            assert set(re.findall(r"\$\{([a-zA-Z0-9_-]+)\}", str(part))) <= {"PORT"}, key
            assert key in ("cmd", "proxy") or "${" not in str(part)
    kept = []
    for line in model["cmd"].replace("${PORT}", "5800").split("\n"):
        if line.strip().startswith("#"):
            continue
        kept.append(line.strip().removesuffix("\\") + " " if line.strip().endswith("\\") else line)
    return label, model, split_posix("\n".join(kept))


def notes(found: ExportedText) -> str:
    """All notes as one text."""
    return "\n".join(map(str, found.notes))


def test_an_unused_server_is_ended_by_llama_swap_as_by_the_panel() -> None:
    idle = export("llama-swap", server(upkeep=Upkeep(idle_s=1200)))
    assert swap_of(idle.text)[1]["ttl"] == 1200 and "ttl:" not in notes(idle)
    stays = export("llama-swap", server())
    assert "ttl" not in swap_of(stays.text)[1] and "ttl:" in notes(stays)


def test_a_preset_has_one_section_with_keys_without_dashes() -> None:
    extra = ("-ngl", "all", "-nkvo", "--no-mmproj-offload", "--swa-full", "--temp", "0.7", "-c", "4096")
    found = export("router", server(*extra, env={"CUDA_VISIBLE_DEVICES": "0"}))
    assert ini_of(found.text) == {
        "big-one": {
            "model": "/m/a b.gguf",
            "alias": "Big one",
            "metrics": "true",
            "gpu-layers": "all",
            "kv-offload": "false",
            "mmproj-offload": "false",
            "swa-full": "true",
            "temperature" if "temperature = " in found.text else "temp": "0.7",
            "ctx-size": "4096",
        }
    }
    assert "--models-preset big-one.ini" in notes(found) and "CUDA_VISIBLE_DEVICES=0" in notes(found)


def test_a_negative_flag_of_the_older_dialect_is_a_false_one() -> None:
    assert "mmap = false" in export("router", server("--no-mmap", caps=FORK)).text
    assert "load-mode = none" in export("router", server("--load-mode", "none")).text


def test_the_last_of_several_counts_in_any_spelling() -> None:
    found = ini_of(export("router", server("-c", "1024", "--ctx-size", "2048")).text)["big-one"]
    assert found["ctx-size"] == "2048"


def test_what_a_preset_cannot_hold_is_named() -> None:
    extra = ("--control-vector-layer-range", "1", "2", "--chat-template", "a # b\n[evil]")
    found = export("router", server(*extra))
    assert set(ini_of(found.text)) == {"big-one"}
    assert "chat-template" not in ini_of(found.text)["big-one"]
    assert "--control-vector-layer-range is left out" in notes(found)
    assert "--chat-template is left out" in notes(found)


@settings(max_examples=200, deadline=None)
@given(FREE, FREE)
def test_a_preset_holds_a_value_unchanged_or_not_at_all(value: str, name: str) -> None:
    found = export("router", server("--chat-template", value, name=name, description=name))
    sections = ini_of(found.text)
    assert set(sections) == {"big-one"}
    assert sections["big-one"].get("chat-template", value) == value
    assert ("chat-template" in sections["big-one"]) == ("--chat-template is left out" not in notes(found))


def test_an_entry_of_llama_swap_leaves_it_the_port() -> None:
    found = export("llama-swap", server("-c", "4096", env={"CUDA_VISIBLE_DEVICES": "0"}))
    label, model, words = swap_of(found.text)
    assert label == "big-one" and model["proxy"] == "http://127.0.0.1:${PORT}"
    assert model["env"] == ["CUDA_VISIBLE_DEVICES=0"] and model["aliases"] == ["Big one"]
    expected = ["/opt/x/llama-server", *BASE, "-c", "4096"]
    expected[expected.index("8081")] = "5800"
    assert words == expected
    assert "cmd: |\n" in found.text and "apiKeys" in notes(found)


@settings(max_examples=300, deadline=None)
@given(st.lists(FREE, max_size=3), FREE)
def test_llama_swap_reads_every_word_or_is_not_given_it(values: list[str], name: str) -> None:
    extra = [word for value in values for word in ("--chat-template", value)]
    what = server(*extra, name=name or "x", description=name, env={"A": name}, executable="/opt/$x y/s")
    found = export("llama-swap", what)
    _, model, words = swap_of(found.text)
    left = notes(found).count("--chat-template is left out")
    given = [value for value in values if value in words[10:]]
    assert len(words) == 10 + len(extra) - 2 * left
    assert words[:3] == ["/opt/$x y/s", "--model", "/m/a b.gguf"]
    assert words[10:] == [word for value in given for word in ("--chat-template", value)]
    assert model.get("env", [f"A={name}"]) == [f"A={name}"]
    assert ("env" in model) == ("${" not in name)
