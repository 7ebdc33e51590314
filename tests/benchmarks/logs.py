"""A flooding log and its viewers over real sockets: do all lines arrive, how late, at what cost.

`python -m tests.benchmarks.logs VIEWERS LINES LINES_PER_SECOND`, e.g. 5 20050 4000 and 100 20050 2000.
Goals: every line at every socket, p99 below 500 ms, less than one core.
"""

import asyncio
import re
import sys
import threading
import time

from websockets.asyncio.client import connect

from tests.benchmarks.figures import answer, cpu_seconds, percentile
from tests.e2e.panel import LogPanel

STAMP = re.compile(r"line (\d+) at (\d+\.\d+)")
PATIENCE = 60.0  # seconds after the last line


def main(viewers: int, lines: int, pace: int) -> None:
    """Follow the log with all viewers while a thread writes it."""
    with LogPanel() as panel:
        panel.start_web()
        panel.start_shipper()
        assert panel.web is not None and panel.shipper is not None
        before = cpu_seconds(panel.web.pid), cpu_seconds(panel.shipper.pid), time.monotonic()
        seen = asyncio.run(follow(panel, viewers, lines, pace))
        seconds = time.monotonic() - before[2]
        lags = [lag for viewer in seen for lag in viewer.values()]
        answer(
            viewers=viewers,
            lines=lines,
            lines_per_second=pace,
            whole=sum(len(viewer) == lines for viewer in seen),
            lag_p50_ms=round(percentile(lags, 0.5) * 1000),
            lag_p99_ms=round(percentile(lags, 0.99) * 1000),
            web_cores=round((cpu_seconds(panel.web.pid) - before[0]) / seconds, 3),
            shipper_cores=round((cpu_seconds(panel.shipper.pid) - before[1]) / seconds, 3),
        )


async def follow(panel: LogPanel, viewers: int, lines: int, pace: int) -> list[dict[int, float]]:
    """Return for each viewer the lag of each line in seconds."""
    headers = {"Cookie": "=".join(panel.cookie), "Origin": panel.url}
    seen: list[dict[int, float]] = [{} for _ in range(viewers)]
    ready = asyncio.Semaphore(0)

    async def view(number: int) -> None:
        async with connect(panel.socket_url, additional_headers=headers, max_size=None) as socket:
            # Only what is written after the first answer about the log has to come line by line.
            while f'id="log-{panel.run_id}"' not in str(await socket.recv()):
                pass
            ready.release()
            while len(seen[number]) < lines:
                message = str(await socket.recv())
                now = time.time()
                for line, stamp in STAMP.findall(message):
                    seen[number].setdefault(int(line), now - float(stamp))

    tasks = [asyncio.create_task(view(number)) for number in range(viewers)]
    for _ in range(viewers):
        await ready.acquire()
    writer = threading.Thread(target=write, args=(panel, lines, pace))
    writer.start()
    await asyncio.wait(tasks, timeout=lines / pace + PATIENCE)
    for task in tasks:
        task.cancel()
    writer.join()
    return seen


def write(panel: LogPanel, lines: int, pace: int) -> None:
    """Write the lines in 50 bursts a second."""
    burst = max(1, pace // 50)
    began = time.monotonic()
    with panel.log.open("ab", buffering=0) as log:
        for first in range(0, lines, burst):
            last = min(first + burst, lines)
            log.write(
                "".join(
                    f"line {n} at {time.time():.4f} slot print_timing\n" for n in range(first, last)
                ).encode()
            )
            time.sleep(max(0, began + last / pace - time.monotonic()))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
