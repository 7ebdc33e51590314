"""The end of a run's log, read on the run's own host."""

import os

from jobs.adapters.runs import log_path

LINES = 16 * 1024  # bytes in which last_lines() looks


def log_end(run_id: str, limit: int) -> tuple[int, bytes]:
    """Return at most the last `limit` bytes of a log with the byte they start at; b"" when there is none."""
    try:
        with log_path(run_id).open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - limit)
            file.seek(start)
            return start, file.read(limit)
    except OSError:
        return 0, b""


def log_part(run_id: str, start: int, limit: int) -> bytes:
    """Return at most `limit` bytes of a log from the byte `start` on; b"" when there are none."""
    try:
        with log_path(run_id).open("rb") as file:
            file.seek(start)
            return file.read(limit)
    except OSError:
        return b""


def log_size(run_id: str) -> int:
    """Return the bytes of a log, 0 when there is none."""
    try:
        return log_path(run_id).stat().st_size
    except OSError:
        return 0


def last_lines(run_id: str) -> list[str]:
    """Return the last lines of a log, the first of them perhaps cut."""
    return log_end(run_id, LINES)[1].decode("utf-8", "replace").splitlines()
