"""Writes a log fast: `python -m tests.e2e.flood LINES LINES_PER_SECOND`; SIGTERM ends it sooner."""

from __future__ import annotations

import signal
import sys
import threading
import time


def line(number: int) -> str:
    """Return the text of one line; every sort of line that logs have comes again and again."""
    match number % 50:
        case 7:
            return f"{number} 載入模型：完成 漢字 ─ ║ ╬ ▒ 進度 {number % 100}%\n"
        case 13:
            return f"0.00.{number % 1000:03}.000 W warn: <b>&amp; \"quoted\" 'text' </span>\n"
        case 21:
            return f"progress {number} 10%\rprogress {number} 50%\rprogress {number} 100%\n"
        case 33:
            return "\n"
        case 42 if number % 1000 == 42:
            return f"{number} " + "長い行─" * 3000 + "\n"
        case _:
            return f"0.12.{number % 1000:03}.123 I slot print_timing: id  0 | task {number} | draft = 0.5\n"


def main(lines: int, pace: int) -> None:
    """Write the lines in bursts, some cut inside a character, as a pipe or a full buffer cuts them."""
    out = open(1, "wb", buffering=0)  # noqa: SIM115
    enough = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: enough.set())
    burst = max(1, pace // 50)
    began = time.monotonic()
    for first in range(0, lines, burst):
        data = "".join(line(number) for number in range(first, min(first + burst, lines))).encode()
        cut = len(data) * 2 // 3
        out.write(data[:cut])
        out.write(data[cut:])
        if enough.wait(max(0, began + (first + burst) / pace - time.monotonic())):
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
