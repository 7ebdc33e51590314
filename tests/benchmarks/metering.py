"""Generation speed of a server with and without the duty that measures it, in turns. Goal: at least 0.99.

Also how many lines watching writes into its log, in a minute without and in a second with work.
"""

import asyncio
import os
import tempfile
import threading
import time
from pathlib import Path

import django
import httpx

from tests.benchmarks.figures import answer, median
from tests.engines import Server, running
from tests.models import tiny_models

ROUNDS = 24
TOKENS = 20_000
IDLE = b"all slots are idle"


def main() -> None:
    """Measure pairs."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlpanel.settings")
    django.setup()
    pairs, lines = [], []
    with tempfile.TemporaryDirectory() as folder:
        text, _projector = tiny_models(Path(folder))
        arguments = (
            "-m",
            text,
            "-c",
            "65536",
            "-np",
            "2",
            "-t",
            "1",
            "--metrics",
            "-lv",
            "4",
            "--log-colors",
            "off",
        )
        with running(Path(folder), *arguments) as server:
            generate(server)
            for _ in range(ROUNDS):
                before = server.log_path.read_bytes().count(IDLE)
                watched = Watched(server)
                with_duty = generate(server)
                watched.stop()
                lines.append(server.log_path.read_bytes().count(IDLE) - before)
                pairs.append((with_duty, generate(server)))
    answer(
        measured_tokens_per_s=median(measured for measured, _ in pairs),
        alone_tokens_per_s=median(alone for _, alone in pairs),
        ratio=median(measured / alone for measured, alone in pairs),
        idle_lines_of_an_answer=median(lines),
    )


class Watched:
    """Asks a server as the duty does, in a thread with a loop of its own."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.over = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.ask()))
        self.thread.start()

    async def ask(self) -> None:
        """Ask once a second until it is over, and once more: the end of the work."""
        from jobs.adapters.hostlink import Endpoint
        from servers.domain.meter_state import MeterState
        from servers.services import metering_duty

        place = Endpoint("local", "benchmark", self.server.port, "")
        watch = metering_duty.Watch(0, place, 0, MeterState())
        while True:
            over = self.over.is_set()
            await metering_duty._ask(watch)
            watch.state.meter(time.time())
            if over:
                return
            for _ in range(10):
                if not self.over.is_set():
                    await asyncio.sleep(0.1)

    def stop(self) -> None:
        """Ask a last time and wait for that."""
        self.over.set()
        self.thread.join()


def generate(server: Server) -> float:
    """Tokens per second of one answer of fixed length, as the server says."""
    body = {"prompt": "Once upon a time", "n_predict": TOKENS, "ignore_eos": True, "cache_prompt": False}
    reply = httpx.post(f"{server.url}/completion", json=body, timeout=120, trust_env=False)
    return float(reply.json()["timings"]["predicted_per_second"])


if __name__ == "__main__":
    main()
