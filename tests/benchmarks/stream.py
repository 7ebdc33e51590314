"""What a chat stream costs over a direct request: first text of one stream, speed of one and of eight.

Each panel request is paired with a direct one in the same run. Goals: first text at most 3 ms later (p50),
eight streams at 0.94 of direct.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from controlpanel.demo.tiny_model import make_text_model
from servers.domain.chat import build_request
from servers.models import Instance, ServerProfile
from servers.services.conversations import ask_in_new_conversation
from servers.services.instances import server_key
from tests.benchmarks.figures import answer, cpu_seconds, median, percentile
from tests.chat import ready_profile
from tests.conftest import person
from tests.engines import ROOT, free_port, running
from tests.waiting import wait_for

PAIRS = 60
RUNS = 5
TOKENS = 1500  # of one stream in the runs for speed
FIRST = {True: b"event: delta\n", False: b'"delta":{"content":"'}


async def request(port: int, head: str, body: bytes, mark: bytes, whole: bool) -> tuple[float, float, float]:
    """Send a request on a fresh connection; seconds until the first text, the last text and the end."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{head}\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    data, first, last = b" " * 40, 0.0, 0.0
    while chunk := await reader.read(65536):
        now = time.perf_counter() - began
        data = data[-40:] + chunk
        if mark in data[40 - len(mark) :]:
            first, last = first or now, now
        if data.endswith(b"\r\n0\r\n\r\n") or (first and not whole):
            break
    writer.close()
    assert first, data
    return first, last, time.perf_counter() - began


class Bench:
    """An engine, a web process beside it, and turns to ask."""

    def __init__(self, engine_port: int, web_port: int, key: str, cookie: str) -> None:
        self.engine_port, self.web_port, self.key, self.cookie = engine_port, web_port, key, cookie

    async def direct(self, whole: bool = True) -> tuple[float, float, float]:
        """Ask the engine itself, as the panel would ask it."""
        head = "POST /v1/chat/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
        head += f"Authorization: Bearer {self.key}"
        body = json.dumps(build_request([], "hi")).encode()
        return await request(self.engine_port, head, body, FIRST[False], whole)

    async def panel(self, turn: int, whole: bool = True) -> tuple[float, float, float]:
        """Open the stream of a pending turn."""
        head = f"GET /turns/{turn}/stream HTTP/1.1\r\nAccept: text/event-stream\r\nCookie: {self.cookie}"
        return await request(self.web_port, head, b"", FIRST[True], whole)


def make_turns(count: int) -> list[int]:
    """Pending turns, each in a conversation of its own."""
    user, profile = User.objects.get(), ServerProfile.objects.get()
    return [ask_in_new_conversation(user, profile, "hi").pk for _ in range(count)]


async def together(make: Callable[[int], Awaitable[tuple[float, float, float]]], count: int) -> Any:
    """Seconds until the last text and until the end of so many requests at once."""
    results = await asyncio.gather(*(make(number) for number in range(count)))
    return max(result[1] for result in results), max(result[2] for result in results)


def measure(bench: Bench, web: int) -> dict[str, Any]:
    """All figures."""
    figures: dict[str, Any] = {}
    later, own = [], []
    for turn in make_turns(PAIRS + 10):
        direct = asyncio.run(bench.direct(whole=False))[0]
        panel = asyncio.run(bench.panel(turn, whole=False))[0]
        own.append(direct * 1000)
        later.append((panel - direct) * 1000)
    figures["first_text_direct_ms"] = median(own[10:])
    figures["first_text_later_ms"] = {"p50": median(later[10:]), "p95": percentile(later[10:], 0.95)}
    for streams in (1, 8):
        ratios, cpu, ends = [], [], []
        for _ in range(RUNS):
            direct = asyncio.run(together(lambda _number: bench.direct(), streams))
            turns, used = make_turns(streams), cpu_seconds(web)
            panel = asyncio.run(together(lambda number, turns=turns: bench.panel(turns[number]), streams))
            cpu.append((cpu_seconds(web) - used) / streams / TOKENS * 1e6)
            ratios.append(direct[0] / panel[0])
            ends.append((panel[1] - panel[0]) * 1000)
        figures[f"speed_of_direct_{streams}"] = median(ratios)
        figures[f"end_after_text_ms_{streams}"] = median(ends)
        figures[f"direct_tokens_per_second_{streams}"] = round(streams * TOKENS / direct[0])
        figures[f"web_cpu_us_per_token_{streams}"] = median(cpu)
    return figures


def main() -> None:
    """Start an engine and a web process on a data folder of their own, and measure."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        call_command("migrate", verbosity=0)
        model = folder / "endless.gguf"
        make_text_model(model, ctx=131072, heads=False)
        instance = ready_profile(9).instance
        assert instance.run is not None
        key = os.environ["LLAMA_API_KEY"] = server_key(instance.run.pk)
        engine = stack.enter_context(
            running(
                folder, "-m", model, "-c", "131072", "-np", "8", "-t", "1", "-n", str(TOKENS), "--ignore-eos"
            )
        )
        Instance.objects.update(port=engine.port)
        client = Client()
        client.force_login(person("charlie", "viewer"))
        cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
        port = free_port()
        environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "controlpanel.settings"}
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            os.environ.get("BENCH_APPLICATION", "controlpanel.asgi:application"),
            "--port",
            str(port),
        ]
        web = subprocess.Popen([*command, "--log-level", "warning", "--no-access-log"], cwd=ROOT, env=environ)
        stack.callback(web.wait, 30)
        stack.callback(web.terminate)
        wait_for(lambda: _answers(port), 60, "the web process")
        figures = measure(Bench(engine.port, port, key, cookie), web.pid)
    answer(**figures)


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/", timeout=10).status_code < 500
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    main()
