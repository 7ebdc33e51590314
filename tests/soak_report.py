"""What a soak run says: a line per event, counts, longest times, and what went against the rules."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path


class Report:
    """Events go to standard output and, when given, to a file; several threads may report."""

    def __init__(self, out: Path | None) -> None:
        self.counts: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.longest: dict[str, float] = {}  # seconds until the panel answered again, by kind of kill
        self.violations: list[str] = []
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._file = None if out is None else out.open("w", encoding="utf-8")

    def say(self, text: str) -> None:
        """Print an event with the time since the begin."""
        seconds = time.monotonic() - self._began
        self.write(f"{int(seconds // 60):3}:{seconds % 60:04.1f}  {text}")

    def write(self, text: str) -> None:
        """Print text as it is."""
        with self._lock:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
            if self._file is not None:
                self._file.write(text + "\n")
                self._file.flush()

    def violation(self, text: str) -> None:
        """Note that something went against the rules; the run goes on and fails at its end."""
        seconds = time.monotonic() - self._began
        self.violations.append(f"{int(seconds // 60)}:{seconds % 60:04.1f}  {text}")
        self.say(f"VIOLATION  {text}")

    def took(self, kind: str, seconds: float) -> None:
        """Keep the longest time of a kind."""
        self.longest[kind] = max(self.longest.get(kind, 0.0), seconds)

    def summary(self, minutes: float, before: dict[str, float], after: dict[str, float]) -> None:
        """Print the table at the end; `before` and `after` are MiB by role."""
        rows = [
            ("minutes", f"{minutes:.1f}"),
            ("seconds of quiet until all was settled", self._longest("quiet")),
        ]
        rows += [(f"kills of {kind}", str(self.kills[kind])) for kind in sorted(self.kills)]
        rows += [
            (f"longest until an answer after a kill of {kind} (s)", self._longest(kind))
            for kind in sorted(self.kills)
        ]
        rows += [("longest until a crashed server was back (s)", self._longest("crash"))]
        rows += [(name, str(number)) for name, number in sorted(self.counts.items())]
        rows += [
            ("memory at begin (MiB, PSS)", _memory(before)),
            ("memory at end (MiB, PSS)", _memory(after)),
        ]
        width = max(len(name) for name, _ in rows)
        self.write("\n" + "\n".join(f"{name:{width}}  {value}" for name, value in rows))
        if self.violations:
            self.write(f"\nFAILED: {len(self.violations)} violations")
            self.write("\n".join(f"- {text}" for text in self.violations))
        else:
            self.write("\nPASSED")

    def _longest(self, kind: str) -> str:
        return f"{self.longest[kind]:.1f}" if kind in self.longest else "–"


def _memory(roles: dict[str, float]) -> str:
    parts = ", ".join(f"{role} {mib:.0f}" for role, mib in roles.items())
    return f"{sum(roles.values()):.0f} ({parts})"
