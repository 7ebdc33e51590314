"""Start of a whole panel and its memory. Goals: web answers within 6 s, 320 MiB (PSS) for all of ours."""

import tempfile
import time
from pathlib import Path

from tests.benchmarks.figures import answer, median, pss_mib
from tests.e2e.whole import Panel

ROUNDS = 3
ROLES = ("up", "supervisord", "valkey", "web", "worker-control", "worker-work", "agent")


def main() -> None:
    """Start a panel on the same data some times; the first start also migrates."""
    starts = []
    with tempfile.TemporaryDirectory() as folder, Panel(Path(folder) / "data") as panel:
        for _ in range(ROUNDS + 1):
            starts.append(panel.start())
            with panel.client() as client:
                client.get("/servers/")
            time.sleep(5)
            memory = {
                role: round(sum(pss_mib(proc.pid) for proc in panel.processes(role)), 1) for role in ROLES
            }
            panel.interrupt()
    answer(
        first_start_s=round(starts[0], 2),
        later_starts_s=median(starts[1:]),
        pss_mib=memory,
        pss_mib_together=round(sum(memory.values()), 1),
    )


if __name__ == "__main__":
    main()
