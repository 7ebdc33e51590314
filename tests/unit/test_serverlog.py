"""Stages and errors in logs of both dialects."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlpanel.llamacpp.serverlog import MILESTONES, last_errors, milestone, strip_prefix

LOGS = Path(__file__).parent.parent / "data" / "logs"


def _log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


def _stages(text: str) -> list[str]:
    found = [stage for line in text.splitlines() if (stage := milestone(line))]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("ok-upstream-mtp", ["loading", "mtp", "context", "loaded", "listening"]),
        ("sample_up_jsonl", ["loading", "mtp", "context", "loaded", "listening"]),
        (
            "ok-fork-mtp-mmproj-short",
            ["loading", "context", "warmup", "mtp", "vision", "loaded", "listening"],
        ),
        ("fail-fork-bad-magic", ["loading"]),
        ("fail-fork-port-in-use", []),
    ],
)
def test_a_start_passes_its_stages(name: str, stages: list[str]) -> None:
    assert _stages(_log(name)) == stages
    assert set(stages) <= set(MILESTONES)


@pytest.mark.parametrize(
    "line",
    [
        "main: server is listening on http://127.0.0.1:18170",
        "0.01.626.444 I srv  llama_server: listening on http://127.0.0.1:18110",
        "0.00.068.820 I srv          init: listening on http://127.0.0.1:18177",
        "0.01.626.444 I srv  llama_server: listening on unix:///run/llama.sock",
        "\x1b[32m0.01.626.444 \x1b[0mI srv  llama_server: listening on http://127.0.0.1:18110\x1b[0m\r\n",
    ],
)
def test_the_ready_line_is_known_in_every_dialect(line: str) -> None:
    assert milestone(line) == "listening"


def test_the_loaded_line_is_known_in_every_dialect() -> None:
    for line in ("main: model loaded", "0.01.1 x", "0.00.068.819 I srv          init: model loaded"):
        assert (milestone(line) == "loaded") == line.endswith("model loaded")


def test_words_in_an_answer_are_no_stage() -> None:
    assert milestone("slot print_timing: id 0 | the model loaded and is listening on http://x") is None


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("0.00.015.482 I srv    load_model: x", "srv    load_model: x"),
        ("...........srv    load_model: x", "srv    load_model: x"),
        ("0.00.015.482 W plain", "plain"),
        ('{"type":"log","time":1,"level":"info","msg":"srv  x\\n"}', "srv  x"),
        ('{"type":"log" broken', '{"type":"log" broken'),
        ("1.2.3 no stamp", "1.2.3 no stamp"),
        ("......", "......"),
        ("", ""),
    ],
)
def test_prefixes_are_removed(line: str, plain: str) -> None:
    assert strip_prefix(line) == plain


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("fail-fork-bad-magic", "gguf_init_from_file_ptr: invalid magic characters: 'GGML', expected 'GGUF'"),
        (
            "fail-fork-port-in-use",
            "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 18170",
        ),
        ("fail-fork-vquant-fa-off", "llama_init_from_model: V cache quantization requires flash_attn"),
        ("fail-fork-parallel4-mtp-end", "srv    load_model: MTP currently supports only n_parallel=1; got 4"),
        (
            "fail-fork-bad-spec-type",
            'error while handling argument "--spec-type": unknown speculative decoding type without draft',
        ),
        (
            "fail-upstream-missing-file",
            "gguf_init_from_file: failed to open GGUF file '/models/nope.gguf' (No such file or directory)",
        ),
        (
            "fail-upstream-mtp-without-heads",
            "llama_init_from_model: context type MTP requested but model doesn't contain MTP layers",
        ),
        ("fail-upstream-unknown-option", "error: invalid argument: --no-such-option"),
        (
            "fail-upstream-mmproj-dim-mismatch",
            "mtmd_init_from_file: error: mismatch between text model (n_embd = 384) and mmproj",
        ),
        (
            "fail-upstream-memory-limit",
            "/src/llama.cpp/ggml/src/ggml.c:1644: GGML_ASSERT(ctx->mem_buffer != NULL) failed",
        ),
    ],
)
def test_the_telling_line_comes_first_and_general_last_words_do_not_come(name: str, first: str) -> None:
    found = last_errors(_log(name), 5)
    assert found[0].startswith(first)
    assert len(found) == len(set(found))
    assert not any("exiting due to" in line for line in found)


def test_general_last_words_are_better_than_nothing() -> None:
    text = "0.00.1 x\n0.00.016.967 E srv  llama_server: exiting due to model loading error\n"
    assert last_errors(text, 3) == ["srv  llama_server: exiting due to model loading error"]


def test_a_healthy_log_has_no_errors() -> None:
    assert last_errors(_log("ok-upstream-mtp"), 5) == []
    assert last_errors(_log("ok-fork-mtp-mmproj-short"), 5) == []
    assert last_errors("", 5) == []


def test_a_refused_request_counts_only_when_nothing_worse_happened() -> None:
    text = _log("fail-upstream-request-too-long")
    assert "exceeds the available context size" in last_errors(text, 3)[0]
    crash = text + "CUDA error: out of memory\n"
    assert last_errors(crash, 3) == ["CUDA error: out of memory"]


def test_after_the_start_the_last_errors_matter() -> None:
    ready = "0.00.353.973 E early: failed to do something\nmain: server is listening on http://127.0.0.1:1\n"
    later = "".join(f"0.01.000.00{n} E later {n}\n" for n in (1, 2, 3, 1))
    assert last_errors(ready + later.replace("\n", "\r\n"), 2) == ["later 3", "later 1"]


def test_a_very_long_line_is_cut() -> None:
    assert len(last_errors("error: " + "x" * 5_000, 1)[0]) == 500


@given(st.text(max_size=400))
def test_any_text_is_read_without_a_crash(text: str) -> None:
    last_errors(text, 3)
    for line in text.splitlines():
        assert milestone(line) is None or milestone(line) in MILESTONES
