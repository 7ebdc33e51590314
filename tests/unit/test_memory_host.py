"""What of a server's main memory is its own: what its memory limit counts, whatever maps the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from controlpanel.llamacpp.capabilities import capabilities_from
from controlpanel.llamacpp.memory import estimate
from controlpanel.llamacpp.memory_flags import read_flags
from controlpanel.llamacpp.memory_host import is_mapped, own_memory
from tests.unit.memory_headers import big_qwen

HELP = Path(__file__).parent.parent / "data" / "help"
NEW, OLD = (capabilities_from((HELP / name).read_text()) for name in ("upstream-b11434.txt", "help-fork.txt"))


@pytest.mark.parametrize(
    ("settings", "new", "old"),
    [
        ({}, True, True),
        ({"load_mode": "auto"}, True, True),
        ({"load_mode": "mmap+mlock"}, True, True),
        ({"load_mode": "none"}, False, False),
        ({"load_mode": "dio"}, False, False),
        # A mode of its own that reads the file, or a lock on what is mapped.
        ({"load_mode": "mlock"}, False, True),
    ],
)
def test_what_maps_the_file_is_up_to_the_mode_and_the_dialect(
    settings: Mapping[str, object], new: bool, old: bool
) -> None:
    assert (is_mapped(settings, NEW), is_mapped(settings, OLD)) == (new, old)


@pytest.mark.parametrize(
    ("args", "mapped"),
    [
        (["--no-mmap"], False),
        (["-dio"], False),
        (["--mlock"], True),
        (["--no-mmap", "--mlock"], False),
        (["--no-mmap", "--mmap"], True),
        ([], True),
    ],
)
def test_flags_of_the_older_dialect_say_it_without_a_value(args: list[str], mapped: bool) -> None:
    assert is_mapped(read_flags(args, OLD)[0], OLD) is mapped


def test_weights_of_the_drafts_are_in_the_file_too_and_the_prompt_cache_comes_on_top() -> None:
    settings = {"speculation": "mtp", "parallel": 1, "ctx_size": 4096, "cache_ram": 512}
    found = estimate(big_qwen(), None, settings, "upstream", ())
    weights = [found.host[term] or 0 for term in ("weights", "mtp_weights")]
    assert all(weights)
    mapped, read = own_memory(found, True), own_memory(found, False)
    assert mapped.most is not None and read.most is not None and mapped.filled == mapped.most + 512
    assert read.most - mapped.most == pytest.approx(sum(weights), abs=1)
    assert read.certain - mapped.certain == pytest.approx(sum(weights), abs=1)
    unlimited = estimate(big_qwen(), None, {**settings, "cache_ram": -1}, "upstream", ())
    assert own_memory(unlimited, True).filled is None
