"""Units are read back by systemd's rules and by systemd itself."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.exporting import ExportError, Upkeep, export
from controlpanel.llamacpp.importing import read_command
from tests.unit.test_exporting import NASTY, WORDS, notes, server, with_words

_C_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "s": " "}
_C_ESCAPES |= {"a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def systemd_words(value: str) -> list[str]:
    """Split as extract_first_word() with unquoting and C escapes does."""
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    pos = 0
    while pos < len(value):
        char = value[pos]
        pos += 1
        if char == "\\":
            kind = value[pos]
            pos += 1
            if kind == "x":
                found = chr(int(value[pos : pos + 2], 16))
                pos += 2
            elif kind.isdigit():
                found = chr(int(value[pos - 1 : pos + 2], 8))
                pos += 2
            else:
                found = _C_ESCAPES[kind]
            word = [*(word or []), found]
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = [*(word or []), char]
        elif char in "\"'":
            quote, word = char, word or []
        elif char in " \t\n\r":
            if word is not None:
                words.append("".join(word))
            word = None
        else:
            word = [*(word or []), char]
    assert not quote
    return words if word is None else [*words, "".join(word)]


def unit_of(text: str) -> dict[str, list[str]]:
    """The settings of a unit: comments left out, lines joined where one ends with an odd backslash."""
    found: dict[str, list[str]] = {}
    joined = ""
    for line in text.split("\n"):
        if line.lstrip().startswith(("#", ";")):
            continue
        joined += line
        if re.search(r"(?<!\\)(?:\\\\)*\\$", line):
            joined = joined[:-1] + " "
            continue
        if "=" in joined:
            key, _, value = joined.partition("=")
            found.setdefault(key.strip(), []).append(value.strip())
        joined = ""
    return found


def specifiers(word: str) -> str:
    """Specifiers filled in: only %% may be there."""
    assert not re.search(r"(?<!%)(?:%%)*%(?!%)", word), word
    return word.replace("%%", "%")


def words_of_unit(text: str) -> list[str]:
    """What systemd starts."""
    (start,) = unit_of(text)["ExecStart"]
    path, *rest = map(specifiers, systemd_words(start))
    for word in rest:
        assert not re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", word), word
    filled = [path, *(word.replace("$$", "$") for word in rest)]
    return filled[1:] if path == "/usr/bin/env" else filled


@settings(max_examples=200, deadline=None)
@given(WORDS, st.sampled_from(NASTY))
def test_systemd_reads_every_word_of_a_unit(words: list[str], name: str) -> None:
    what = with_words(*words, name=name, description=name, env={"A": name}, executable=f"/x/{name}")
    unit = unit_of(export("systemd", what).text)
    assert words_of_unit(export("systemd", what).text) == [what.executable, *what.argv]
    assert [specifiers(word) for word in systemd_words(unit["Environment"][0])] == [f"A={name}"]
    assert len(unit["Description"]) == len(unit["Restart"]) == 1
    specifiers(unit["Description"][0])


def analyze(path: Path, level: str = "info") -> tuple[str, str]:
    """What systemd says of a unit that it accepts, and what it prints of it at the level "debug"."""
    env = {**os.environ, "SYSTEMD_LOG_LEVEL": level}
    command = ["systemd-analyze", "verify", str(path)]
    found = subprocess.run(command, env=env, text=True, capture_output=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stderr, found.stdout


def dumped_words(text: str) -> list[str]:
    """The words of the command in systemd's own dump, which escapes as a shell would."""
    match = re.search(r"Command Line: (.*)\n", text)
    if match is None:
        pytest.skip("this systemd prints no dump of a unit")
    return systemd_words(re.sub(r"\\(.)", lambda found: found[1] if found[1] in "$`" else found[0], match[1]))


needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed"
)


@needs_systemd
def test_systemd_itself_accepts_the_unit(tmp_path: Path) -> None:
    for index, name in enumerate(["llama-server", "a b 50% ü", "it's $x", 'q"\\']):
        program = tmp_path / str(index) / name
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        what = with_words(*NASTY, name=name, executable=str(program), env={"A": "x %h $y 'z'"})
        path = tmp_path / export("systemd", what).filename
        path.write_text(export("systemd", what).text)
        assert str(path) not in analyze(path)[0]


@needs_systemd
def test_systemd_itself_reads_every_word(tmp_path: Path) -> None:
    """Its dump shows words after unquoting and specifiers, and before it fills in variables."""
    odd = ["".join(chars) for chars in itertools.product("\\\"'$%;# ", repeat=3)]
    odd += [chr(number) for number in (*range(1, 33), 127, 128, 0x2028, 0x1F999)]
    what = with_words(*NASTY, *odd, "", executable="/bin/echo")
    path = tmp_path / "unit.service"
    path.write_text(export("systemd", what).text)
    words = dumped_words(analyze(path, "debug")[1])
    assert [word.replace("$$", "$") for word in words] == ["/bin/echo", *what.argv]


def test_a_unit_restarts_bounds_the_memory_and_names_the_file_of_the_key() -> None:
    found = export("systemd", server())
    unit = unit_of(found.text)
    assert unit["Restart"] == ["on-failure"] and unit["MemoryMax"] == ["11264M"]
    assert unit["LimitMEMLOCK"] == ["infinity"] and unit["KillMode"] == ["mixed"]
    assert "# EnvironmentFile=/etc/llama-server/my-profile.env" in found.text
    assert "11264" in notes(found) and "as root" in notes(found)
    unknown = export("systemd", server(memory_mib=None))
    assert "MemoryMax" not in unknown.text and "MemoryMax" not in notes(unknown)


def test_a_unit_keeps_the_server_running_as_the_profile_does_and_the_importer_reads_that_back() -> None:
    unit = unit_of(export("systemd", server()).text)
    assert unit["RestartSec"] == ["2"] and unit["StartLimitBurst"] == ["4"]
    assert unit["StartLimitIntervalSec"] == ["906"]
    for upkeep, word in (
        (Upkeep("never", 1, memory_mib=9000), "no"),
        (Upkeep("on-failure", 7), "on-failure"),
        (Upkeep("always", 100, memory_mib=64), "always"),
    ):
        found = export("systemd", server(upkeep=upkeep))
        assert unit_of(found.text)["Restart"] == [word]
        assert ("reserve" in notes(found)) == (upkeep.memory_mib is None)
        kept = {"restart": upkeep.restart, "limit": upkeep.limit}
        limit = {"memory_mib": upkeep.memory_mib} if upkeep.memory_mib else {}
        assert read_command(found.text).policy == {**kept, **limit}


def test_a_path_that_no_unit_can_name_is_refused() -> None:
    with pytest.raises(ExportError, match="move the build"):
        export("systemd", server(executable="/opt/it's=x/llama-server"))
