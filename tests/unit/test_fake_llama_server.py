"""The fake llama-server fails as told: what other tests rely on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.fakes import fake_llama_server, llama_flags
from tests.fakes.running_llama import SECONDS, fake, ready, run
from tests.waiting import async_wait_for, wait_for


def contents(events: list[str]) -> str:
    chunks = [json.loads(event) for event in events if event.startswith('{"id"')]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


def test_the_file_is_a_program_by_itself() -> None:
    path = Path(fake_llama_server.__file__)
    result = run(path, "--list-devices", env={"PATH": str(Path(sys.executable).parent)})
    assert (result.returncode, result.stdout) == (0, "Available devices:\n  (none)\n")


def test_help_and_version_go_where_llama_server_writes_them(tmp_path: Path) -> None:
    path = llama_flags.install(tmp_path)
    assert run(path, "--help").stdout.startswith("----- common params -----")
    version = run(path, "--version")
    assert (version.returncode, version.stdout) == (0, "")
    assert version.stderr.startswith("version: 0.6.0-dev (build 11434")


def test_help_can_be_a_file_another_program_huge_or_endless(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("--some-flag N    a flag\n")
    path = llama_flags.install(tmp_path, help="other")
    assert "frobnicate" in run(path, "--help").stdout
    llama_flags.set_flags(path)
    assert run(path, "--help", env={**os.environ, "FAKE_HELP": str(other)}).stdout == other.read_text()
    llama_flags.set_flags(path, help="huge")
    with subprocess.Popen([path, "--help"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert len(process.stdout.read(5_000_000)) == 5_000_000
        process.kill()
    llama_flags.set_flags(path, help="hang")
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([path, "--help"], timeout=1, check=False)


def test_a_flag_without_meaning_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no_such_flag"):
        llama_flags.install(tmp_path, no_such_flag=1)


def test_flags_come_from_the_environment_and_the_file_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "flags"
    file.write_text('{"reply": "from the file"}')
    for name, value in {"FLAGS": str(file), "REPLY": "env", "TOKEN_DELAY": "0.5", "NEVER_READY": "1"}.items():
        monkeypatch.setenv(f"FAKE_{name}", value)
    flags = llama_flags.read_flags()
    assert (flags.reply, flags.token_delay, flags.never_ready) == ("from the file", 0.5, True)


def test_a_load_delay_is_503_until_the_model_is_there(tmp_path: Path) -> None:
    with fake(tmp_path, never_ready=True) as server:
        wait_for(lambda: server.health() == 503, SECONDS, "the port to be open")
        loading = server.get("/v1/models")
        assert (loading.status_code, loading.json()["error"]["message"]) == (503, "Loading model")
        assert "listening on" not in server.log()
        llama_flags.set_flags(server.path, load_delay=0.1)
        wait_for(lambda: server.health() == 200, SECONDS, "the model")
        wait_for(
            lambda: "I srv  llama_server: listening on http://127.0.0.1:" in server.log(), SECONDS, "the line"
        )


def test_an_exit_by_itself_has_its_code_and_its_text(tmp_path: Path) -> None:
    with fake(tmp_path, exit_after=0.2, exit_code=3, exit_text="CUDA error: out of memory") as server:
        assert server.process.wait(SECONDS) == 3
        assert server.log().endswith("CUDA error: out of memory\n")
    with fake(tmp_path, exit_after=0.2, exit_code=-signal.SIGABRT) as server:
        assert server.process.wait(SECONDS) == -signal.SIGABRT


def test_a_busy_port_is_told_as_llama_server_does(tmp_path: Path) -> None:
    with ready(tmp_path) as server, fake(tmp_path, "--port", server.url.rsplit(":")[-1]) as second:
        assert second.process.wait(SECONDS) == 1
        assert "couldn't bind HTTP server socket" in second.log()


def test_sigterm_ends_it_unless_it_is_ignored(tmp_path: Path) -> None:
    with ready(tmp_path, ignore_sigterm=True) as server:
        server.process.send_signal(signal.SIGTERM)
        assert server.health() == 200
        llama_flags.set_flags(server.path)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SECONDS) == 0


def test_the_log_can_be_flooded(tmp_path: Path) -> None:
    with ready(tmp_path, flood_lines=3000) as server:
        wait_for(lambda: "flood line 2999" in server.log(), SECONDS, "the last line")
        lines = [line for line in server.log().splitlines() if "flood line" in line]
        assert len(lines) == 3000
        assert all(line.endswith(fake_llama_server.FLOOD_TEXT) for line in lines)


def test_a_flood_keeps_its_rate(tmp_path: Path) -> None:
    begin = time.monotonic()
    with fake(tmp_path, flood_lines=21, flood_rate=50) as server:
        wait_for(lambda: "flood line 20:" in server.log(), SECONDS, "line 20")
        assert time.monotonic() - begin >= 20 / 50


def test_status_pages_follow_the_command_line(tmp_path: Path) -> None:
    arguments = ["-c", "8192", "-np", "2", "--alias", "some name", "--mmproj", "/m/p.gguf", "--metrics"]
    with ready(tmp_path, *arguments, draft=78, accepted=39) as server:
        props = server.get("/props").json()
        assert props["default_generation_settings"]["n_ctx"] == 4096
        assert (props["total_slots"], props["modalities"]["vision"]) == (2, True)
        assert [slot["speculative"] for slot in server.get("/slots").json()] == [True, True]
        assert server.get("/v1/models").json()["data"][0]["id"] == "some name"
        server.chat()
        assert "llamacpp:spec_decode_num_accepted_tokens_total 39\n" in server.get("/metrics").text
    with ready(tmp_path, "--no-slots") as server:
        assert (server.get("/slots").status_code, server.get("/metrics").status_code) == (501, 501)


def test_a_key_is_asked_for_everywhere_but_health(tmp_path: Path) -> None:
    with ready(tmp_path, "--api-key", "secret") as server:
        assert server.get("/props").status_code == 401
        assert server.get("/props", headers={"Authorization": "Bearer secret"}).status_code == 200
        assert server.get("/props", headers={"X-Api-Key": "secret"}).status_code == 200
        assert server.get("/health").status_code == 200


def test_an_answer_streams_as_llama_server_s_do(tmp_path: Path) -> None:
    with ready(tmp_path, reply="one two three", draft=4, accepted=2) as server:
        events = server.events(stream_options={"include_usage": True})
        assert contents(events) == "one two three"
        assert events[-1] == "[DONE]"
        first, finish, last = (json.loads(events[n]) for n in (0, -3, -2))
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
        assert finish["choices"][0]["finish_reason"] == "stop"
        assert last["choices"] == [] and last["usage"]["completion_tokens"] == 3
        assert (last["timings"]["draft_n"], last["timings"]["draft_n_accepted"]) == (4, 2)
        whole = server.chat(max_tokens=2).json()
        assert whole["choices"][0]["message"]["content"] == "one two"
        assert whole["timings"]["predicted_n"] == 2


def test_an_image_without_a_projector_is_refused(tmp_path: Path) -> None:
    with ready(tmp_path) as server:
        content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
        answer = server.chat(messages=[{"role": "user", "content": content}])
        assert answer.status_code == 500
        assert answer.json()["error"]["message"].startswith("image input is not supported")


def test_answers_fail_before_and_after_the_first_token(tmp_path: Path) -> None:
    with ready(tmp_path, error_before=503, error_text="no slot") as server:
        refused = server.chat(stream=True)
        assert refused.status_code == 503
        assert refused.json()["error"] == {"code": 503, "message": "no slot", "type": "unavailable_error"}
        llama_flags.set_flags(server.path, reply="one two three", error_after=2, error_text="compute error")
        events = server.events()
        assert contents(events) == "one two"
        assert json.loads(events[-1])["error"]["message"] == "compute error"
        llama_flags.set_flags(server.path, reply="one two three", drop_after=1)
        events = server.events()
        assert (contents(events), events[-1]) == ("one", "connection lost")


def test_chosen_paths_answer_nonsense_or_nothing(tmp_path: Path) -> None:
    with ready(tmp_path, wrong_json="/props,/v1/chat/completions", hang="/slots") as server:
        for answer in (server.get("/props"), server.chat()):
            assert answer.status_code == 200
            with pytest.raises(ValueError, match="Expecting"):
                answer.json()
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{server.url}/slots", timeout=0.3)


async def test_a_client_that_leaves_is_noted(tmp_path: Path) -> None:
    with ready(tmp_path, token_delay=SECONDS) as server:
        async with httpx.AsyncClient(timeout=SECONDS) as client:
            body = {"messages": [], "stream": True}
            async with client.stream("POST", f"{server.url}/v1/chat/completions", json=body) as response:
                await anext(response.aiter_bytes())

            async def ends() -> list[str]:
                requests = (await client.get(f"{server.url}/fake/requests")).json()
                return [entry["end"] for entry in requests if entry["method"] == "POST" and entry["end"]]

            assert await async_wait_for(ends, SECONDS, "the end of the request") == ["cancelled"]
        assert "cancel task" in server.log()


def test_each_request_is_counted_and_logged(tmp_path: Path) -> None:
    with ready(tmp_path) as server:
        server.chat()
        requests = server.get("/fake/requests").json()
        assert requests[-1]["path"] == "/v1/chat/completions"
        assert json.loads(requests[-1]["body"])["messages"][0]["content"] == "hi"
        line = f"done request {len(requests)}: POST /v1/chat/completions 127.0.0.1 200"
        wait_for(lambda: line in server.log(), SECONDS, "the log line")


def test_waiting_names_what_did_not_come() -> None:
    values = iter([0, 0, 7])
    assert wait_for(lambda: next(values), SECONDS, "a number") == 7
    with pytest.raises(AssertionError, match=r"waited 0.1 s for the moon; last value: \[\]"):
        wait_for(list, 0.1, "the moon")
