"""Generation speed of a server with and without the panel watching it, in turns. Goal: at least 0.99.

The panel is stopped by SIGSTOP for the runs without it, so that the same server answers in both.
"""

import signal
import tempfile
from pathlib import Path

import httpx

from jobs.runtime.procs import signal_proc
from tests.benchmarks.figures import answer, median
from tests.e2e.whole import Panel

ROUNDS = 24
TOKENS = 200
WATCHERS = ("web", "agent", "worker-control", "worker-work", "valkey")


def main() -> None:
    """Measure pairs."""
    with tempfile.TemporaryDirectory() as folder, Panel(Path(folder) / "data") as panel:
        panel.start("--demo")
        port = panel.server("smollm2")["port"]
        key = panel.value("smollm2", "server_key(instance.run_id)")
        generate(port, key)
        pairs = []
        for number in range(ROUNDS):
            watched = generate(port, key) if number % 2 else 0.0
            stop(panel, signal.SIGSTOP)
            alone = generate(port, key)
            stop(panel, signal.SIGCONT)
            pairs.append((watched or generate(port, key), alone))
    answer(
        watched_tokens_per_s=median(watched for watched, _ in pairs),
        alone_tokens_per_s=median(alone for _, alone in pairs),
        ratio=median(watched / alone for watched, alone in pairs),
    )


def stop(panel: Panel, number: int) -> None:
    """Send a signal to all processes of the panel that could watch."""
    for role in WATCHERS:
        for proc in panel.processes(role):
            signal_proc(proc, number)


def generate(port: int, key: str) -> float:
    """Tokens per second of one answer of fixed length, as the server says."""
    reply = httpx.post(
        f"http://127.0.0.1:{port}/completion",
        json={"prompt": "Once upon a time", "n_predict": TOKENS, "ignore_eos": True, "cache_prompt": False},
        headers={"Authorization": f"Bearer {key}"},
        timeout=120,
        trust_env=False,
    )
    return float(reply.json()["timings"]["predicted_per_second"])


if __name__ == "__main__":
    main()
