"""Whatever is pasted as a command becomes a report or a refusal in words, in a short time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.lib.text import Worded
from controlpanel.llamacpp.capabilities import capabilities_from
from controlpanel.llamacpp.importing import read_command
from controlpanel.llamacpp.meanings import MEANINGS

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text())
FORK = capabilities_from((HELP / "help-fork.txt").read_text())
BUILDS = (UPSTREAM, FORK, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "paste the one"),
        (" \n\t", "paste the one"),
        ("llama-server -m 'a", "not closed"),
        ('llama-server -m "a', "not closed"),
        ("llama-server -m $(a", "not closed"),
        ("llama-server -m `a", "not closed"),
        ("llama-server -m a\\", "lone backslash"),
        ("llama-server -m a\x00", "NUL"),
        ("llama-server -m \udcff", "no valid text"),
        ("llama-server " + "a" * 65_536, "64 KiB"),
        ("llama-server " + "語" * 30_000, "64 KiB"),
        ("llama-server" + " -c 1" * 1_000, "1000 words"),
        ("llama-server" + " --jinja" * 400, "300 extra"),
        ("A=" + "x" * 2_000 + "\nllama-server" + " $A" * 900, "variables"),
        ("A=xx\n" + "A=$A$A$A$A\n" * 100 + "llama-server -m $A", "variables"),
        ("hello world", "no command that starts"),
        ("[Service]\nExecStart='a\n", "not closed"),
    ],
)
def test_a_text_that_is_no_command_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(Worded, match=words):
        read_command(text, UPSTREAM)


@pytest.mark.parametrize(
    "text",
    [
        "llama-server " + " ".join(f"--x{n}" for n in range(290)),
        "llama-server -m " + "a" * 65_000,
        "llama-server " + "-" * 65_000,
        "llama-server -m '" + "\\" * 65_000 + "'",
        "llama-server " + ">" * 65_000,
        "llama-server " + "$(" * 32_000,
        "llama-server -m " + "()" * 32_000,
        "llama-server -m " + "$A" * 32_000,
        "llama-server -m " + "'a'" * 21_000,
        "llama-server" + "\\\n" * 32_000,
        "A=1\n" * 15_000 + "llama-server -m a",
        "llama-server -m a" + "\n# x" * 16_000,
        "llama-server -m a" + " " * 65_000,
        "llama-server --ctx" + "_size" * 13_000 + " 4",
        "ExecStart=" + "\nEnvironment=A=$A$A" * 800 + "\nExecStart=llama-server -m $A",
        "docker run " + "-v a:b " * 900 + "image -m a",
    ],
)
def test_hostile_text_takes_no_long_time(text: str) -> None:
    for caps in BUILDS:
        start = time.process_time()
        try:
            read_command(text, caps)
        except Worded as error:
            assert str(error)
        assert time.process_time() - start < 3


_PIECES = st.sampled_from(
    [
        "llama-server",
        "docker",
        "run",
        "ExecStart=",
        "Environment=",
        "-m",
        "-c",
        "--spec-type",
        "mtp",
        "=",
        "$A",
    ]
    + ["'", '"', "\\", "\n", "$(", ")", "`", "&", ">", "<", "-", "--", "-e", "A=1", "LLAMA_ARG_MLOCK=1", "#"]
    + ["sudo", "sh", "-lc", "--api-key", "-fa", "\x00", "\udc80", " ", "9" * 40, "-dio", "--load-mode"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_PIECES | st.text(max_size=6), max_size=25), st.sampled_from(["", " "]))
def test_any_text_becomes_a_report_or_words(pieces: list[str], between: str) -> None:
    for caps in BUILDS:
        try:
            found = read_command(between.join(pieces), caps)
        except Worded as error:
            assert str(error)
        else:
            assert all(str(line.message) and line.flag is not None for line in found.report)
            assert all(isinstance(word, str) for word in found.extra)
            assert set(found.settings) <= set(MEANINGS)
