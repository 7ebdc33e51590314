"""The panel's own code against a llama-server that was built from llama.cpp's sources."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from controlpanel.demo.tiny_model import make_text_model
from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.command import Managed, render
from controlpanel.llamacpp.fitparams import measure_args, parse_measured
from controlpanel.llamacpp.gguf import read_header
from controlpanel.llamacpp.helptext import parse_help, unparsed_lines
from controlpanel.llamacpp.memory import estimate
from controlpanel.llamacpp.serverlog import MILESTONES, last_errors, milestone
from jobs.adapters import runs
from jobs.adapters.hostlink import link
from jobs.adapters.probe import probe_binary
from servers.domain.chat import AnswerParts, ChatOptions, build_request, image_data_uri
from servers.domain.facts import read_facts
from servers.services.answers import stream_deltas
from servers.services.launch import GRACE
from tests.models import COLOURS, solid_png, tiny_models
from tests.real import RealServer, program, started, tool

pytestmark = pytest.mark.real
RECORDED = Path(__file__).parents[1] / "data" / "help" / "upstream-b11434.txt"
END_SECONDS = 60.0


@pytest.fixture(scope="module")
def caps() -> Capabilities:
    return probe_binary(program("llama-server"))


@pytest.fixture(scope="module")
def server(caps: Capabilities, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """The tiny model with MTP and its projector, two slots."""
    text, projector = tiny_models(tmp_path_factory.mktemp("models"))
    settings = {"ctx_size": 4096, "parallel": 2, "speculation": "mtp"}
    with started(caps, settings, text, projector) as found:
        found.wait_ready()
        yield found


async def answer(server: RealServer, prompt: str, *pictures: bytes) -> AnswerParts:
    options = ChatOptions(temperature=0, max_tokens=200)
    request = build_request((), prompt, [image_data_uri(picture) for picture in pictures], options)
    parts = AnswerParts()
    async for delta in stream_deltas(server.endpoint, request):
        parts.add(delta)
    return parts


async def ask(server: RealServer, path: str) -> Any:
    reply = await link("local").ask_server(server.endpoint, path, 30)
    assert reply.status == 200, reply
    return json.loads(reply.body)


def test_the_probe_understands_all_that_the_binary_says_of_itself(caps: Capabilities) -> None:
    help_text = tool("llama-server", "--help")
    assert unparsed_lines(help_text) == ()
    assert (caps.version, caps.build, caps.commit) == ("0.6.0-dev", 0, "unknown")
    assert (caps.mtp_value, caps.load_mode, caps.log) == ("draft-mtp", "load-mode", "new")
    assert {"none", "draft-simple", "draft-mtp"} <= set(caps.spec_types)
    assert set(caps.cache_types) == {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}
    assert not caps.turboquant
    recorded = {flag.name: (flag.names, flag.hint, flag.env) for flag in parse_help(RECORDED.read_text())}
    assert {flag.name: (flag.names, flag.hint, flag.env) for flag in caps.flags} == recorded


def test_a_rendered_command_gives_a_server_with_mtp_and_vision(server: RealServer) -> None:
    async def facts() -> dict[str, Any]:
        return read_facts(await ask(server, "/props"), await ask(server, "/slots"))

    wanted = {"mtp": True, "vision": True, "n_ctx": 2048, "slots": 2, "build": "b0-unknown"}
    assert async_to_sync(facts)() == wanted
    stages = {milestone(line) for line in server.log().splitlines()}
    assert set(MILESTONES) - stages == set()
    assert "KV buffer size" in server.log()


async def test_mtp_drafts_and_accepts_the_known_numbers_of_tokens(server: RealServer) -> None:
    parts = await answer(server, "hi")
    text = "".join(parts.answer)
    assert text.startswith("Hello! I am a tiny deterministic language model") and text.endswith("Goodbye.")
    counts = [parts.timings[name] for name in ("prompt_n", "predicted_n", "draft_n", "draft_n_accepted")]
    assert counts == [21, 66, 78, 39]
    assert parts.finish_reason == "stop"


async def test_a_picture_is_answered_by_its_colour(server: RealServer) -> None:
    for colour, pixels in COLOURS.items():
        parts = await answer(server, "", solid_png(pixels))
        assert "".join(parts.answer) == f"{colour} is the main color of this picture."


async def test_a_stop_ends_an_idle_server_with_zero_and_a_busy_one_within_the_grace(
    caps: Capabilities, tmp_path: Path
) -> None:
    model = tmp_path / "endless.gguf"
    make_text_model(model, ctx=131072)
    settings = {"ctx_size": 131072, "parallel": 1, "speculation": "mtp"}
    for busy in (False, True):
        with started(caps, settings, model, extra=["--ignore-eos"]) as server:
            await sync_to_async(server.wait_ready)()
            deltas = stream_deltas(server.endpoint, build_request((), "hi"))
            while busy and not (await anext(deltas)).content:
                pass
            began = time.monotonic()
            runs.request_stop(server.run_id)
            ended = await sync_to_async(runs.wait)(server.run_id, END_SECONDS)
            took = time.monotonic() - began
            await deltas.aclose()
            assert (ended.status, ended.stop_requested) == ("exited", True), server.log()
            # With an open stream llama-server sleeps until its next ping (30 s), or takes a lock that its
            # main thread holds and stays: then the shim ends it.
            assert ended.exit_code == 0 or (busy and ended.exit_code == -signal.SIGKILL), server.log()
            assert took < (GRACE + 5 if busy else GRACE / 2)


def test_a_failed_start_ends_with_one_and_its_cause_is_found(caps: Capabilities, tmp_path: Path) -> None:
    text, missing = tiny_models(tmp_path)[0], tmp_path / "absent.gguf"
    opened = f"failed to open GGUF file '{missing}' (No such file or directory)"
    cases: list[tuple[Path, Path | None, str, list[str]]] = [
        (missing, None, opened, []),
        (text, text, f"Failed to load CLIP model from {text}", ["mmproj"]),
    ]
    for model, mmproj, cause, refused in cases:
        with started(caps, {}, model, mmproj) as server:
            ended = runs.wait(server.run_id, END_SECONDS)
            assert (ended.status, ended.exit_code) == ("exited", 1)
            assert cause in last_errors(server.log())[0]
            assert [problem.field for problem in server.wrong] == refused


def test_the_other_programs_answer_in_forms_that_can_be_read(tmp_path: Path) -> None:
    text, _projector = tiny_models(tmp_path)
    memory = tool("llama-fit-params", "-m", text, "-c", "4096", "-fitp", "on").split()
    assert memory[0] == "Host" and len(memory) == 4 and all(word.isdigit() for word in memory[1:])
    lines = tool("llama-bench", "-m", text, "-p", "32", "-n", "16", "-r", "2", "-t", "2", "-o", "jsonl")
    records = [json.loads(line) for line in lines.splitlines()]
    assert [(record["n_prompt"], record["n_gen"]) for record in records] == [(32, 0), (0, 16)]
    assert all(record["avg_ts"] > 0 and len(record["samples_ts"]) == 2 for record in records)
    assert {record["build_number"] for record in records} == {0}


def test_what_llama_quantize_writes_is_read_by_the_header_reader(tmp_path: Path) -> None:
    text, _projector = tiny_models(tmp_path)
    small = tmp_path / "tiny-Q8_0.gguf"
    tool("llama-quantize", text, small, "Q8_0", "2")
    before, after = read_header(text), read_header(small)
    assert (before.quant, after.quant) == ("F16", "Q8_0")
    assert after.file_size < 0.7 * before.file_size and after.missing_bytes == 0
    assert after.tensor_names == before.tensor_names
    assert (after.nextn_layers, after.context_length) == (1, 4096)


def test_the_tool_beside_it_measures_what_is_estimated(caps: Capabilities, tmp_path: Path) -> None:
    model, _projector = tiny_models(tmp_path)
    settings = {"ctx_size": 8192, "parallel": 2, "cache_type_k": "q8_0", "flash_attn": "on"}
    managed = Managed(model=str(model), mmproj=None, alias="tiny", port=1)
    known = capabilities_from(tool("llama-fit-params", "--help"))
    args, left = measure_args(render(caps, settings, (), managed).lines, known)
    rows = parse_measured(tool("llama-fit-params", *args))
    assert [row.name for row in rows] == ["Host"] and left == []
    host = estimate(read_header(model), None, settings, "upstream", ()).host
    assert host["weights"] is not None and host["kv"] is not None
    # The tool prints whole MiB, rounded down.
    assert 0 <= host["weights"] - rows[0].model < 1
    assert 0 <= host["kv"] + (host["recurrent"] or 0) - rows[0].context < 2
    assert (host["compute"] or 0) >= rows[0].compute
