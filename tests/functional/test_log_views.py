"""A log's range, download and page."""

from __future__ import annotations

import os
import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient
from django.urls import reverse

from jobs.adapters.hostlink import link
from jobs.adapters.runs import log_path
from jobs.models import Run

TAG = re.compile(r"<[^>]*>")
TEXT = "".join(f"line {n} 中 <&>\n" for n in range(100))


@pytest.fixture
def written(run: Run) -> Run:
    """A run with a hundred lines in its log."""
    log_path(run.pk).write_text(TEXT)
    return run


def get_range(client: Any, run: Run, **query: Any) -> tuple[int, int, str]:
    response = client.get(reverse("log-range", args=[run.pk]), query)
    assert response.status_code == 200
    body = response.content.decode()
    start, end = re.findall(r'class="lf" data-start="(\d+)" data-end="(\d+)"', body)[0]
    return int(start), int(end), unescape(TAG.sub("", body))


def test_a_range_is_exactly_what_was_asked_for(written: Run, charlie: User, signed_in: Any) -> None:
    data = TEXT.encode()
    start, end, text = get_range(signed_in(charlie), written, start=5, end=300)
    assert (start, end) == (5, 300)
    assert text == data[5:300].decode("utf-8", "replace")


def test_a_range_can_begin_or_end_at_a_line(written: Run, charlie: User, signed_in: Any) -> None:
    client, data = signed_in(charlie), TEXT.encode()
    start, end, text = get_range(client, written, start=5, end=300, align="start")
    assert start == data.index(b"\n") + 1
    assert text == data[start:300].decode("utf-8", "replace")
    start, end, text = get_range(client, written, start=0, end=300, align="end")
    assert end == data.rindex(b"\n", 0, 300) + 1
    assert text == data[:end].decode()


def test_a_range_inside_one_long_line_still_brings_text(run: Run, charlie: User, signed_in: Any) -> None:
    log_path(run.pk).write_text("界" * 1000)
    client = signed_in(charlie)
    assert get_range(client, run, start=1, end=600, align="start") == (3, 600, "界" * 199)
    assert get_range(client, run, start=0, end=301, align="end") == (0, 300, "界" * 100)


def test_a_range_is_bounded_and_says_how_far_it_goes(run: Run, charlie: User, signed_in: Any) -> None:
    log_path(run.pk).write_bytes(b"x" * 99 + b"\n")
    os.truncate(log_path(run.pk), 5_000_000)
    start, end, text = get_range(signed_in(charlie), run, start=0, end=5_000_000)
    assert (start, end) == (0, 1024 * 1024)


def test_what_was_removed_from_the_head_is_not_shown(written: Run, charlie: User, signed_in: Any) -> None:
    data = TEXT.encode()
    log_start = data.index(b"\n") + 1
    with log_path(written.pk).open("r+b") as file:
        file.write(b"\0" * log_start)
    Run.objects.filter(pk=written.pk).update(log_start=log_start)
    start, _end, text = get_range(signed_in(charlie), written, start=0, end=200)
    assert start == log_start
    assert "\ufffd" not in text[:-1]
    assert link("local").log_tail(written.pk, 500, log_start) == (log_start, data[log_start:])


@pytest.mark.parametrize(
    "query", [{}, {"start": "-1", "end": "5"}, {"start": "a", "end": "5"}, {"start": "9" * 40, "end": "1"}]
)
def test_a_range_without_numbers_is_refused(query: Any, written: Run, charlie: User, signed_in: Any) -> None:
    assert signed_in(charlie).get(reverse("log-range", args=[written.pk]), query).status_code == 400


@pytest.mark.parametrize("name", ["log-range", "log-download", "run-log"])
def test_logs_are_for_people_with_a_role(
    name: str, written: Run, dora: User, signed_in: Any, client: Any
) -> None:
    address = reverse(name, args=[written.pk])
    assert client.get(address).status_code == 302
    assert signed_in(dora).get(address).status_code == 403


@pytest.mark.parametrize("name", ["log-range", "log-download", "run-log"])
def test_a_log_of_no_run_is_not_found(name: str, charlie: User, signed_in: Any) -> None:
    address = reverse(name, args=["20300101-000000-00000000"])
    assert signed_in(charlie).get(address, {"start": 0, "end": 1}).status_code == 404


@pytest.mark.django_db(transaction=True)
async def test_the_download_is_the_file(written: Run, charlie: User) -> None:
    client = AsyncClient()
    await client.aforce_login(charlie)
    response = await client.get(reverse("log-download", args=[written.pk]))
    blocks = [block async for block in response.streaming_content]
    assert b"".join(blocks).decode() == TEXT
    assert response["Content-Disposition"] == f'attachment; filename="{written.pk}.log"'
    assert response["Content-Type"].startswith("text/plain")


def test_the_page_follows_its_log(written: Run, charlie: User, signed_in: Any) -> None:
    page = signed_in(charlie).get(reverse("run-log", args=[written.pk])).content.decode()
    assert f'id="log-{written.pk}"' in page
    assert f"topics=log:{written.pk}" in page
    assert "style=" not in page


def test_a_tail_is_the_last_lines(written: Run) -> None:
    data = TEXT.encode()
    lines = data.splitlines(keepends=True)
    start, tail = link("local").log_tail(written.pk, 3)
    assert tail == b"".join(lines[-3:])
    assert start == len(data) - len(tail)
    with log_path(written.pk).open("ab") as file:
        file.write(b"unfinished")
    assert link("local").log_tail(written.pk, 2)[1] == lines[-1] + b"unfinished"
    assert link("local").log_tail(written.pk, 1000) == (0, data + b"unfinished")


def test_a_search_finds_lines_across_blocks(run: Run) -> None:
    filler = b"y" * 120_000 + b"\n"
    with log_path(run.pk).open("wb") as file:
        for number in range(20):
            file.write(filler)
            file.write(f"Needle {number} 中\n".encode())
    found = link("local").log_search(run.pk, "needle", 15)
    assert [line for _, line in found] == [f"Needle {number} 中" for number in range(15)]
    assert all(
        offset == (number + 1) * len(filler) + sum(len(f"Needle {n} 中\n".encode()) for n in range(number))
        for number, (offset, _) in enumerate(found)
    )
    assert link("local").log_search(run.pk, "absent", 15) == []


def test_a_log_that_is_not_there_reads_as_empty(run: Run) -> None:
    log_path(run.pk).unlink()
    assert link("local").log_size(run.pk) == (0, 0)
    assert link("local").log_tail(run.pk, 5) == (0, b"")
    assert list(link("local").log_download(run.pk)) == []
