"""What the panel concludes from a binary's own words."""

import json
from pathlib import Path

import pytest

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from, why_not_a_server
from controlpanel.llamacpp.helptext import Device

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = (HELP / "upstream-b11434.txt").read_text()
FORK = (HELP / "help-fork.txt").read_text()
DEVICES = "Available devices:\n  CUDA0: NVIDIA GeForce RTX 3090 (24135 MiB, 23800 MiB free)\n"


def test_upstream_speaks_the_newer_dialect() -> None:
    caps = capabilities_from(UPSTREAM, "version: 0.6.0-dev (build 11434, commit abc)", DEVICES)
    assert (caps.version, caps.build, caps.commit) == ("0.6.0-dev", 11434, "abc")
    assert caps.mtp_value == "draft-mtp"
    assert caps.load_mode == "load-mode"
    assert caps.log == "new"
    assert not caps.turboquant
    assert caps.devices == (Device("CUDA0", "NVIDIA GeForce RTX 3090", 24135, 23800),)


def test_the_fork_speaks_the_older_dialect_and_has_turboquant() -> None:
    caps = capabilities_from(FORK, "version: 9123 (67f38aa53)", "Available devices:\n")
    assert (caps.build, caps.commit) == (9123, "67f38aa53")
    assert caps.mtp_value == "mtp"
    assert caps.load_mode == "mmap"
    assert caps.log == "old"
    assert caps.turboquant
    assert caps.cache_types[-3:] == ("turbo2", "turbo3", "turbo4")
    assert caps.devices == ()


@pytest.mark.parametrize("text", [UPSTREAM, FORK, ""])
def test_capabilities_survive_a_trip_through_json(text: str) -> None:
    caps = capabilities_from(text, "version: 9123 (67f38aa53)", DEVICES)
    assert Capabilities.from_dict(json.loads(json.dumps(caps.to_dict()))) == caps


def test_stored_capabilities_of_another_release_are_still_read() -> None:
    stored = {**capabilities_from(FORK).to_dict(), "something_new": 1}
    del stored["log"]
    assert Capabilities.from_dict(stored).log == "old"


def test_flags_are_found_in_every_spelling_but_not_when_removed() -> None:
    caps = capabilities_from(UPSTREAM)
    for name in ("--ctx-size", "--ctx_size", "-c", "--no-mmproj", "-nkvo"):
        assert caps.has(name), name
    for name in ("--draft-max", "--no-mmap", "--ctx", "-C_size", ""):
        assert not caps.has(name), name


def test_a_build_without_speculation_has_no_mtp() -> None:
    caps = capabilities_from("-m,    --model FNAME  model\n--port PORT  port\n")
    assert (caps.mtp_value, caps.spec_types, caps.load_mode, caps.log) == (None, (), None, "old")


def test_a_server_is_told_from_other_programs() -> None:
    assert why_not_a_server(capabilities_from(UPSTREAM)) is None
    assert why_not_a_server(capabilities_from(FORK)) is None
    bench = capabilities_from("usage: llama-bench [options]\n\noptions:\n  -h, --help\n")
    assert "no list of options" in str(why_not_a_server(bench))
    fit = capabilities_from("----- common params -----\n\n-m,    --model FNAME   model path to load\n")
    assert "--port" in str(why_not_a_server(fit))
