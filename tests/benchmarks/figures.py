"""What the scripts share: medians, memory of processes, one JSON answer."""

import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call took."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def median(values: Iterable[float]) -> float:
    """The middle value, rounded to four digits."""
    return round(statistics.median(values), 4)


def percentile(values: list[float], part: float) -> float:
    """The value below which this part of all values lies."""
    return round(sorted(values)[min(len(values) - 1, int(len(values) * part))], 4)


def pss_mib(pid: int) -> float:
    """Proportional set size of a process in MiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.M)
    return int(found[1]) / 1024 if found else 0.0


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def answer(**figures: Any) -> None:
    """Print the figures."""
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
