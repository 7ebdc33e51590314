"""The engine itself: that it is a llama-server in its command line, its answers and the way it ends."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import models
from tests.engines import EXIT_SECONDS, ROOT, Server, bundled_only, engine, running, started

STOPS = 10
STOP_LIMIT = 15.0
CHAT_SECONDS = 60.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*engine(), *arguments], capture_output=True, text=True, timeout=60, check=False)


def chat(server: Server, content: object, **options: object) -> dict[str, Any]:
    body = {
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "cache_prompt": False,
        **options,
    }
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=CHAT_SECONDS)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def image(png: bytes) -> dict[str, object]:
    return {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + base64.b64encode(png).decode()},
    }


@pytest.fixture
def text_model(tmp_path: Path) -> Path:
    return models.tiny_models(tmp_path)[0]


@pytest.fixture(scope="module")
def mtp_vision_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("mtp")
    text, projector = models.tiny_models(folder)
    with running(folder, "-m", text, "--mmproj", projector, "--spec-type", "draft-mtp", "-t", "2") as server:
        yield server


def test_help_goes_to_stdout_and_describes_a_llama_server() -> None:
    result = run("--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert "----- speculative params -----" in result.stdout
    options = set(re.findall(r"^(?:-[\w-]+, +)*(--[a-z][\w-]+)", result.stdout, re.MULTILINE))
    assert {
        "--model",
        "--mmproj",
        "--ctx-size",
        "--spec-type",
        "--parallel",
        "--metrics",
        "--port",
    } <= options
    assert len(options) > 200
    assert re.search(r"^--spec-type \S*draft-mtp", result.stdout, re.MULTILINE)


def test_version_goes_to_stderr() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, "")
    assert re.match(r"version: \S+ \(build \d+, commit \w+\)\nbuilt with .+ for .+\n$", result.stderr)


def test_devices_are_listed_on_stdout() -> None:
    result = run("--list-devices")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "Available devices:"
    device = re.compile(r"  (\(none\)|\w+: .+ \(\d+ MiB, \d+ MiB free\))")
    assert lines[1:] and all(device.fullmatch(line) for line in lines[1:])


def test_an_unknown_option_is_refused_in_the_library_s_words() -> None:
    result = run("--no-such-option")
    assert (result.returncode, result.stdout) == (1, "")
    assert "error: invalid argument: --no-such-option" in result.stderr


def test_a_cache_type_of_another_build_is_refused() -> None:
    result = run("-ctk", "turbo4")
    assert result.returncode == 1
    assert "Unsupported cache type: turbo4" in result.stderr


def test_a_missing_model_ends_with_the_cause_in_the_log(tmp_path: Path) -> None:
    with started(tmp_path, "-m", tmp_path / "absent.gguf") as server:
        assert server.process.wait(EXIT_SECONDS) == 1
        assert re.search(r"failed to open GGUF file '\S+absent.gguf' \(No such file", server.log())
        assert server.log().rstrip().endswith("exiting due to model loading error")


def test_a_busy_port_ends_with_the_cause_in_the_log(mtp_vision_server: Server, tmp_path: Path) -> None:
    taken = str(mtp_vision_server.port)
    with started(tmp_path, "-m", models.plain_model(tmp_path), "--port", taken) as server:
        assert server.process.wait(EXIT_SECONDS) == 1
        assert "couldn't bind HTTP server socket" in server.log()


@bundled_only
def test_no_model_at_all_ends_with_a_message() -> None:
    result = run()
    assert result.returncode == 1
    assert result.stderr.startswith("error: params.model.path is required")


@bundled_only
def test_another_version_of_the_wheel_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "xllamacpp"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '2099.1.1'\n")
    (package / "xllamacpp.py").write_text("")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(
        [*engine(), "--version"], capture_output=True, text=True, env=environment, check=False
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: The bundled engine works with xllamacpp ")
    assert "version 2099.1.1 is installed. Install it with: pip install xllamacpp==" in result.stderr


@bundled_only
def test_a_missing_wheel_is_named(tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('no such wheel')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(
        [*engine(), "--version"], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == 1
    assert "cannot be loaded (no such wheel). Install it with: pip install xllamacpp==" in result.stderr


@bundled_only
def test_the_launcher_needs_neither_django_nor_numpy() -> None:
    code = "import sys; from controlpanel.demo.engine import Library; Library(); print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    loaded = set(result.stdout.split())
    assert "xllamacpp" in loaded
    assert not {"django", "numpy", "gguf"} & loaded


def test_mtp_drafts_and_accepts_the_known_numbers_of_tokens(mtp_vision_server: Server) -> None:
    answer = chat(mtp_vision_server, "hi", max_tokens=200)
    text = answer["choices"][0]["message"]["content"]
    assert text.startswith("Hello! I am a tiny deterministic language model") and text.endswith("Goodbye.")
    timings = answer["timings"]
    counts = [timings[key] for key in ("prompt_n", "predicted_n", "draft_n", "draft_n_accepted")]
    assert counts == [21, 66, 78, 39]


def test_without_mtp_the_same_reply_comes_without_drafts(tmp_path: Path, text_model: Path) -> None:
    with running(tmp_path, "-m", text_model) as server:
        answer = chat(server, "hi", max_tokens=200)
        assert answer["timings"]["predicted_n"] == 66
        assert "draft_n" not in answer["timings"]
        assert server.stop() == 0
        assert "cleaning up before exit" in server.log()


@pytest.mark.parametrize("colour", models.COLOURS)
def test_an_image_is_answered_by_its_colour(mtp_vision_server: Server, colour: str) -> None:
    picture = image(models.solid_png(models.COLOURS[colour]))
    answer = chat(mtp_vision_server, [{"type": "text", "text": "Which color?"}, picture], max_tokens=50)
    assert answer["choices"][0]["message"]["content"] == f"{colour} is the main color of this picture."


def test_an_image_of_no_known_colour_is_mixed(mtp_vision_server: Server) -> None:
    picture = image(models.solid_png((128, 128, 128), size=512))
    answer = chat(mtp_vision_server, [picture], max_tokens=50)
    assert answer["choices"][0]["message"]["content"] == "Mixed is the main color of this picture."


class Stream:
    """An answer without end whose client stays until the server closes the connection."""

    def __init__(self, server: Server) -> None:
        self.first = threading.Event()
        self.thread = threading.Thread(
            target=self._read, args=(f"{server.url}/v1/chat/completions",), daemon=True
        )
        self.thread.start()
        assert self.first.wait(CHAT_SECONDS), "no token arrived"

    def _read(self, url: str) -> None:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "ignore_eos": True}
        try:
            with httpx.stream("POST", url, json=body, timeout=CHAT_SECONDS) as response:
                for line in response.iter_lines():
                    if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["delta"].get(
                        "content"
                    ):
                        self.first.set()
        except httpx.TransportError:
            pass


@pytest.mark.slow
@bundled_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_during_a_stream_ends_with_zero_each_time(
    tmp_path: Path, text_model: Path, number: int
) -> None:
    times = []
    for _ in range(STOPS // 2):
        with running(tmp_path, "-m", text_model, "-c", "32768", "-np", "1") as server:
            stream = Stream(server)
            begin = time.monotonic()
            code = server.stop(number)
            times.append(round(time.monotonic() - begin, 2))
            assert code == 0, server.log()
            stream.thread.join(CHAT_SECONDS)
    assert max(times) < STOP_LIMIT


@bundled_only
def test_a_second_signal_during_the_stop_ends_with_one(tmp_path: Path, text_model: Path) -> None:
    for _ in range(20):
        with running(tmp_path, "-m", text_model, "-c", "32768", "-np", "1") as server:
            Stream(server)
            server.process.send_signal(signal.SIGTERM)
            server.wait_log("cleaning up before exit")
            if server.stop() == 1:
                assert "Received second interrupt, terminating immediately." in server.log()
                return
    pytest.fail("20 stops ended before the second signal")


@bundled_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_loading_ends_the_process_at_once(tmp_path: Path, number: int) -> None:
    endless = tmp_path / "endless.gguf"
    os.mkfifo(endless)
    with started(tmp_path, "-m", endless) as server:
        server.wait_log("loading model")
        assert server.stop(number) == -number
