"""The arguments for llama-fit-params, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.command import Managed, render
from controlpanel.llamacpp.fitparams import Measured, measure_args, parse_measured

HELP = Path(__file__).parents[1] / "data" / "help"


@pytest.fixture(scope="module")
def tool() -> Capabilities:
    return capabilities_from((HELP / "llama-fit-params-b11434.txt").read_text())


@pytest.fixture(scope="module")
def server() -> Capabilities:
    return capabilities_from((HELP / "upstream-b11434.txt").read_text())


def arguments(server: Capabilities, tool: Capabilities, **settings: object) -> tuple[list[str], list[str]]:
    managed = Managed(model="/m.gguf", mmproj="/p.gguf", alias="m", port=1, config_home="/none")
    return measure_args(render(server, settings, (), managed).lines, tool)


def test_only_what_the_tool_knows_is_passed(server: Capabilities, tool: Capabilities) -> None:
    args, left = arguments(server, tool, ctx_size=8192, cache_type_k="q8_0", speculation="mtp", parallel=2)
    assert args == [
        *("--model", "/m.gguf", "--ctx-size", "8192", "--parallel", "2", "--cache-type-k", "q8_0"),
        *("--fit-print", "on"),
    ]
    assert left == ["--spec-type"]


def test_without_slots_the_tool_takes_those_of_the_server(server: Capabilities, tool: Capabilities) -> None:
    args, left = arguments(server, tool)
    assert args == ["--model", "/m.gguf", "--parallel", "4", "--fit-print", "on"] and left == []


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("Host 2 3 7 \n", [Measured("Host", 2, 3, 7)]),
        (
            "Host 682 0 522\nCUDA0 12730 3264 1204 \nCUDA1 13672 3264 1990 \n",
            [
                Measured("CUDA0", 12730, 3264, 1204),
                Measured("CUDA1", 13672, 3264, 1990),
                Measured("Host", 682, 0, 522),
            ],
        ),
        ("-c 4096 -ngl -1\n", []),
        ("", []),
        ("Host 1 2\nHost a b c\n" + "x" * 100_000, []),
    ],
)
def test_the_rows_are_read_and_anything_else_is_none(text: str, rows: list[Measured]) -> None:
    assert parse_measured(text) == rows
