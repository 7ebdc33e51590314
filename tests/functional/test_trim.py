"""A log that passed its limit loses its head: offsets stay, the writer goes on, the page is told."""

import subprocess
import sys

import pytest

from jobs.adapters.runs import log_path
from jobs.adapters.trim import free_head
from jobs.models import Run
from jobs.services import runs
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT = 1024 * 1024
WRITER = """
import sys, time
log = open(sys.argv[1], "ab", buffering=0)
for number in range(40000):
    log.write(f"line {number:06} of a long log, written while its head is freed\\n".encode())
"""


def test_the_head_is_freed_under_a_writer_and_the_rest_stays_as_it_was(run: Run) -> None:
    path = log_path(run.pk)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    try:
        wait_for(lambda: path.stat().st_size > 2 * LIMIT or writer.poll() is not None, 60, "a long log")
        runs.trim_log(run, LIMIT)
    finally:
        assert writer.wait(60) == 0
    run.refresh_from_db()
    whole = "".join(f"line {n:06} of a long log, written while its head is freed\n" for n in range(40000))
    data = path.read_bytes()
    assert len(data) == len(whole)
    assert 0 < run.log_start < len(data)
    assert data[run.log_start :] == whole[run.log_start :].encode()
    assert data[run.log_start :].startswith(b"line ")
    assert data[: run.log_start].strip(b"\0") == b""
    assert path.stat().st_blocks * 512 < len(data)


def test_a_short_log_is_left_alone(run: Run) -> None:
    path = log_path(run.pk)
    path.write_bytes(b"a line\n" * 100)
    runs.trim_log(run, LIMIT)
    run.refresh_from_db()
    assert run.log_start == 0 and path.read_bytes() == b"a line\n" * 100


def test_a_log_without_a_line_end_is_cut_at_the_byte(run: Run) -> None:
    path = log_path(run.pk)
    path.write_bytes(b"x" * (3 * LIMIT))
    assert free_head(path, 0, LIMIT) == 2 * LIMIT
    assert path.read_bytes()[2 * LIMIT :] == b"x" * LIMIT
